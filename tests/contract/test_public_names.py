"""The public names, with the parameters that callers may use."""

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import lhkit
from tests.rows import check_rows

PINNED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "recorded" / "public_names.json").read_text(encoding="utf-8")
)
"""`module:Name` or `module:Name.method` to its parameters, each `required` or `optional`.

A parameter that can only be given by keyword is marked with `*` before its name.
"""


def public_value(name: str) -> Any:
    module, _, path = name.partition(":")
    value: Any = import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def parameters(value: Any) -> dict[str, str]:
    return {
        ("*" if p.kind is p.KEYWORD_ONLY else "") + p.name: (
            "optional" if p.default is not p.empty else "required"
        )
        for p in inspect.signature(value).parameters.values()
        if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL} and p.name != "self"
    }


def test_every_public_name_is_pinned() -> None:
    pinned = {name.removeprefix("lhkit:") for name in PINNED if name.startswith("lhkit:")}
    assert {name for name in pinned if "." not in name} == set(lhkit.__all__)


@check_rows("name", PINNED)
def test_public_name_exists_and_is_exported(name: str) -> None:
    module, _, path = name.partition(":")
    assert path.split(".")[0] in import_module(module).__all__
    assert public_value(name) is not None


@check_rows("name", [name for name, pinned in PINNED.items() if pinned])
def test_public_callable_keeps_its_parameters(name: str) -> None:
    present = parameters(public_value(name))
    assert {key: present.get(key) for key in PINNED[name]} == PINNED[name]
    added = {key for key in present if key not in PINNED[name]}
    assert [key for key in added if present[key] == "required"] == []


def test_a_changed_signature_is_noticed() -> None:
    def changed(first: int, *, second: int) -> None: ...

    assert parameters(changed) == {"first": "required", "*second": "required"}
