"""The composition root: what a notebook asks of it."""

import pytest

from lhkit import app
from lhkit.errors import UsageError


def test_shipped_scenarios_come_in_the_order_asked_for() -> None:
    ids = ("ac12-small-talk-ko-01", "ac06-caffeine-ko-01")
    assert tuple(scenario.id for scenario in app.shipped_scenarios(*ids)) == ids


def test_a_scenario_that_is_not_shipped_is_named() -> None:
    with pytest.raises(UsageError, match=r"no scenario ac99-made-up: all stand in .*ac"):
        app.shipped_scenarios("ac06-caffeine-ko-01", "ac99-made-up")
