"""The composition root, as notebooks use it."""

from contextlib import closing

import pytest

from lhkit import app
from lhkit.base.errors import UsageError
from lhkit.lifehelper.shipped import scenario_folder, scenario_paths
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.settings import load_settings


@pytest.mark.longer
def test_shipped_scenarios_come_in_the_order_asked_for() -> None:
    ids = ("ac12-small-talk-ko-01", "ac06-caffeine-ko-01")
    assert tuple(scenario.id for scenario in app.shipped_scenarios(*ids)) == ids


@pytest.mark.longer
def test_a_scenario_that_is_not_shipped_is_named() -> None:
    with pytest.raises(UsageError, match=r"no scenario ac99-made-up: all are in .*ac"):
        app.shipped_scenarios("ac06-caffeine-ko-01", "ac99-made-up")


def test_life_helpers_model_reads_the_same_hint_as_ever_through_every_door() -> None:
    hint = (
        "the result of {bytes} bytes was left out; for one item use a single-item tool such as "
        "query_protocol"
    )
    settings = load_settings()
    stored = LIFE_HELPER.open_kept(None, now=settings.now, locale="ko")
    fresh = LIFE_HELPER.open({"now": "2026-06-17T09:00:00+09:00"}, "ko")
    with closing(fresh), closing(stored):
        assert fresh.assistant.truncation_hint == hint
        assert stored.assistant.truncation_hint == hint


def test_a_split_is_a_folder_and_all_is_both() -> None:
    root = scenario_folder()
    assert scenario_paths("dev") == (root / "dev",)
    assert scenario_paths("test") == (root / "test",)
    assert scenario_paths("all") == (root,)
    with pytest.raises(UsageError, match="Unknown split 'train': choose one of dev, test, all"):
        scenario_paths("train")
