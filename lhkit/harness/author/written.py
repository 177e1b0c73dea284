"""Scenarios written by a program: matchers for exact values, state changes, and the YAML file."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from lhkit.errors import UsageError
from lhkit.harness.documents import read_yaml
from lhkit.harness.matchers import MATCHER_KEYS
from lhkit.harness.record import RowKeys, State
from lhkit.harness.state_diff import state_changes
from lhkit.json_values import plain_json

_HANGUL = re.compile(r"[가-힣]")


def literal(value: Any) -> Any:
    """Return a matcher for exactly `value`; an object that looks like a matcher is wrapped."""
    looks_so = isinstance(value, dict) and any(key in MATCHER_KEYS for key in value)
    return {"equals": value} if looks_so else value


def literals(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a matcher for exactly each value of a row or of arguments."""
    return {name: literal(value) for name, value in fields.items()}


def changes(before: State, after: State, row_keys: RowKeys) -> dict[str, Any]:
    """Return `final`, the rows that are new or changed, and `gone`, by table; not what is empty.

    Deleted rows are told by their key; those of a table without a key as they were.
    """
    final: dict[str, Any] = {}
    gone: dict[str, Any] = {}
    for table, change in state_changes(before, after, row_keys=row_keys).items():
        new = sorted((*change.added, *(j for _, j in change.changed)))
        if new:
            final[table] = [literals(after[table][j]) for j in new]
        lost = [before[table][i] for i in change.removed]
        if lost:
            gone[table] = [
                literals({name: row[name] for name in change.key or row if name in row})
                for row in lost
            ]
    return {name: rows for name, rows in (("final", final), ("gone", gone)) if rows}


def spoken(lines: Sequence[str], locale: str) -> str:
    """Return `ko` or `en`, whichever the user spoke; any other locale stays as it is."""
    if locale not in {"ko", "en"}:
        return locale
    return "ko" if _HANGUL.search(" ".join(lines)) else "en"


def yaml_text(scenarios: Sequence[Mapping[str, Any]]) -> str:
    """Return a scenario file, which reads back as exactly these scenarios.

    Raises:
        UsageError: a text holds what no file can carry, such as half a surrogate pair.
    """
    plain = plain_json(list(scenarios))
    try:
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the conversation is invalid: half a surrogate pair ({error.object[error.start]!a}) "
            "cannot be written to a file. Leave that character out"
        ) from error
    for is_quoted in (False, True):
        text = _dumped(plain, is_quoted=is_quoted)
        read = read_yaml(text)
        if not read.faults and read.value == plain:
            return text
    raise UsageError("the conversation is invalid: it cannot be written as YAML. Shorten it")


def _dumped(scenarios: Any, *, is_quoted: bool) -> str:
    """Return YAML with no text folded; with `is_quoted` each text that needs it is escaped."""
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = sys.maxsize  # a folded text is another one where blanks or tabs stand at the fold
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(_escaped(scenarios) if is_quoted else scenarios, stream)
    lines = stream.getvalue().removesuffix("\n").split("\n")
    return "\n".join(line.removeprefix("  ") for line in lines) + "\n"


def _escaped(value: Any) -> Any:
    """Return plain JSON in which texts of more than plain letters are written in double quotes."""
    if isinstance(value, dict):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return DoubleQuotedScalarString(value)
    return value


_PLAIN = re.compile(r"[\w.-]+(?: [\w.-]+)*")
