"""Wishes told at length: whole turns as people write them, with what to search for beside them."""

from lhkit.models.scripted import call
from lhkit.tuning.life_helper.catalog_talk import (
    found_words,
    steps_words,
    two_found_words,
)
from lhkit.tuning.life_helper.scene import Scene, hits


def told(scene: Scene) -> None:
    """A wish among everything else that is told: only the wish is searched for."""
    _searched(scene, "told")


def told_two(scene: Scene) -> None:
    """Two wishes in one turn: two searches, and what each of them found."""
    user, *queries = scene.written("told_two")
    calls = [call("search_catalog", query=query) for query in queries]
    scene.add(user, scene.acts(calls, two_found_words()))


def told_opened(scene: Scene) -> None:
    """A wish, and what is found first is to be read: searched, opened, told."""
    user, query = scene.written("told_opened")
    first = hits(query, scene.locale)[0]
    calls = [call("search_catalog", query=query), call("query_protocol", protocol_id=first)]
    scene.add(user, scene.acts(calls, steps_words(first)))


def told_absent(scene: Scene) -> None:
    """A wish that the catalog has nothing for: searched, and said so."""
    _searched(scene, "told_absent")


def _searched(scene: Scene, key: str) -> None:
    user, query = scene.written(key)
    calls = [call("search_catalog", query=query)]
    scene.add(user, scene.acts(calls, found_words(scene, None, query)))
