import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.locales import Catalog, load_catalog
from lhkit.confirm.summary import summarize

KO = load_catalog("ko")


def broken(args: Mapping[str, Any], catalog: Any) -> str:
    raise KeyError(args, catalog)


def test_summary_shows_arguments_as_json_by_default() -> None:
    shown = summarize(None, {"이름": "물", "n": 1}, KO)
    assert json.loads(shown) == {"이름": "물", "n": 1}
    assert "이름" in shown


@pytest.mark.longer
@given(st.dictionaries(st.text(), st.none() | st.floats() | st.text() | st.binary()))
def test_summary_shows_arguments_if_the_tools_own_fails(args: dict[str, Any]) -> None:
    assert all(key in summarize(broken, args, KO) for key in args if key.isalnum())


@pytest.mark.parametrize(
    ("locale", "message"), [("ko", "오류가 났습니다(KeyError)"), ("en", "(KeyError)")]
)
def test_summary_reports_a_failure_above_the_arguments(locale: str, message: str) -> None:
    catalog = load_catalog(locale)
    first_line, _, shown = summarize(broken, {"to": "ct-37"}, catalog).partition("\n")
    assert message in first_line
    assert json.loads(shown) == {"to": "ct-37"}


def to_whom(args: Mapping[str, Any], catalog: Catalog, *, deps: Mapping[str, str]) -> str:
    assert isinstance(args, dict)
    return f"{catalog.locale}: to {deps[args.pop('to')]}"


@pytest.mark.parametrize("own", [to_whom, partial(to_whom)])
def test_summary_receives_deps_and_cannot_change_arguments(own: Any) -> None:
    args = {"to": "ct-37"}
    assert summarize(own, args, KO, {"ct-37": "김민수 (010-1234)"}) == "ko: to 김민수 (010-1234)"
    assert args == {"to": "ct-37"}
