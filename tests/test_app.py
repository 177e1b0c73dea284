"""The composition root: what a notebook asks of it."""

from contextlib import closing

import pytest

from lhkit import app
from lhkit.errors import UsageError
from lhkit.notebook.life_helper import life_helper, memory_store
from lhkit.settings import load_settings
from lhkit.vocab.generation import Sampling


def test_shipped_scenarios_come_in_the_order_asked_for() -> None:
    ids = ("ac12-small-talk-ko-01", "ac06-caffeine-ko-01")
    assert tuple(scenario.id for scenario in app.shipped_scenarios(*ids)) == ids


def test_a_scenario_that_is_not_shipped_is_named() -> None:
    with pytest.raises(UsageError, match=r"no scenario ac99-made-up: all stand in .*ac"):
        app.shipped_scenarios("ac06-caffeine-ko-01", "ac99-made-up")


def test_life_helpers_model_reads_the_same_hint_as_ever_through_every_door() -> None:
    told = (
        "the result of {bytes} bytes was left out; for one item use a single-item tool such as "
        "query_protocol"
    )
    session = app.LifeHelperEnvironment().open({"now": "2026-06-17T09:00:00+09:00"}, "ko")
    settings = load_settings()
    with closing(session), closing(memory_store()) as store:
        panel = life_helper(store, settings.now, "ko", Sampling())
        assert session.assistant.truncation_hint == told
        assert panel.assistant.truncation_hint == told
