import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.confirm.summary import summarize
from lhkit.locales import Catalog, load_catalog
from lhkit.testing import echo_tool

KO = load_catalog("ko")


def broken(args: Mapping[str, Any], catalog: Any) -> str:
    raise KeyError(args, catalog)


def test_a_tool_may_say_it_in_its_own_words() -> None:
    tool = replace(echo_tool(), summarize=lambda args, _catalog: f"물 {args['cups']}잔")
    assert summarize(tool, {"cups": 2}, KO) == "물 2잔"


def test_without_own_words_the_arguments_are_shown_as_indented_json() -> None:
    shown = summarize(echo_tool(), {"이름": "물", "n": 1}, KO)
    assert json.loads(shown) == {"이름": "물", "n": 1}
    assert "이름" in shown


@given(st.dictionaries(st.text(), st.none() | st.floats() | st.text() | st.binary()))
def test_a_broken_summary_still_shows_the_arguments(args: dict[str, Any]) -> None:
    tool = replace(echo_tool(), summarize=broken)
    assert all(key in summarize(tool, args, KO) for key in args if key.isalnum())


@pytest.mark.parametrize(
    ("locale", "said"), [("ko", "오류가 났어요(KeyError)"), ("en", "(KeyError)")]
)
def test_a_broken_summary_says_so_above_the_arguments(locale: str, said: str) -> None:
    catalog = load_catalog(locale)
    told, _, shown = summarize(
        replace(echo_tool(), summarize=broken), {"to": "ct-37"}, catalog
    ).partition("\n")
    assert said in told
    assert json.loads(shown) == {"to": "ct-37"}


def to_whom(args: Mapping[str, Any], catalog: Catalog, *, deps: Mapping[str, str]) -> str:
    assert isinstance(args, dict)
    return f"{catalog.locale}: to {deps[args.pop('to')]}"


@pytest.mark.parametrize("own", [to_whom, partial(to_whom)])
def test_a_summary_may_look_up_whom_an_id_means_and_changes_no_argument(own: Any) -> None:
    args = {"to": "ct-37"}
    tool = replace(echo_tool(), summarize=own)
    assert summarize(tool, args, KO, {"ct-37": "김민수 (010-1234)"}) == "ko: to 김민수 (010-1234)"
    assert args == {"to": "ct-37"}
