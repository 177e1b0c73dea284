"""Korean and English say the same things."""

import string
from collections.abc import Callable

import pytest

from lhkit.base.errors import LhkitError, ModelError, UsageError
from lhkit.base.locales import Catalog, available_locales, load_catalog
from lhkit.lifehelper.locales import life_helper_catalog
from tests.rows import check_rows


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_korean_is_the_default() -> None:
    assert load_catalog("ko").locale == "ko"


@check_rows("load", [load_catalog, life_helper_catalog])
@check_rows("locale", available_locales())
def test_a_locale_has_the_keys_and_placeholders_of_the_default(
    locale: str, load: Callable[[str], Catalog]
) -> None:
    expected = {key: placeholders(text) for key, text in load("ko").texts.items()}
    actual = {key: placeholders(text) for key, text in load(locale).texts.items()}
    assert actual == expected


@pytest.mark.parametrize(
    ("count", "start"),
    [(1, "1 scenario read: 1 error"), (2, "2 scenarios read: 2 errors"), (0, "0 scenarios read")],
)
def test_a_number_has_the_word_that_goes_with_it(count: int, start: str) -> None:
    counts = dict.fromkeys(("scenarios", "errors", "warnings"), count)
    text = load_catalog("en").text("lint.counts", refused="", **counts)
    assert text.startswith(start)
    refused = load_catalog("en").text("lint.refused", files=count)
    assert refused == f", {count} file{'' if count == 1 else 's'} refused"


@pytest.mark.parametrize("locale", available_locales())
def test_no_text_is_empty(locale: str) -> None:
    assert [key for key, text in load_catalog(locale).texts.items() if not text.strip()] == []


def test_an_unknown_locale_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=", ".join(available_locales())):
        load_catalog("fr")


def test_every_model_error_has_a_sentence_of_its_own() -> None:
    kinds = ModelError.__subclasses__()
    keys = [kind.key for kind in kinds]
    assert len(set(keys)) == len(kinds)
    assert set(keys) <= set(load_catalog("ko").texts)
    assert issubclass(ModelError, LhkitError)
