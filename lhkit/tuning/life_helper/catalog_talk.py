"""Talk about the catalog: finding protocols by a wish, opening one, one that is not there."""

import re
from collections.abc import Callable

from lhkit.models.scripted import Reply, call
from lhkit.tuning.life_helper.phrases import Wish
from lhkit.tuning.life_helper.scene import (
    Last,
    Scene,
    Settled,
    Words,
    catalog,
    data_of,
    failure,
    hits,
)

MOST_RESULTS = 10
_UNITS = {"ko": ("초", "분", "번", "시간"), "en": ("seconds", "minutes", "times")}


def wish_of(scene: Scene, protocol_id: str) -> Wish:
    """Return a wish that the real search answers with this protocol among the first three."""
    wishes = scene.spoken(protocol_id).wishes
    fit = [each for each in wishes if protocol_id in hits(each.query, scene.locale)[:3]]
    return scene.rng.choice(fit or wishes)


def any_protocol(scene: Scene) -> str:
    """Return the id of some protocol."""
    return scene.rng.choice(tuple(catalog()))


def found_words(scene: Scene, target: str | None, query: str, *, most: int = 3) -> Last:
    """Return the reply to a search: titles in the order of the result, the target among them."""
    shown = scene.rng.randint(1, most)

    def last(settled: Settled, words: Words) -> str:
        found = data_of(settled).get("protocols", [])
        if not found:
            return words("found_none", q=query)
        chosen = list(found[:shown])
        if target is not None and target not in [each["id"] for each in chosen]:
            chosen[-1] = next((each for each in found if each["id"] == target), chosen[-1])
        if len(chosen) == 1:
            (only,) = chosen
            return words("found_one", title=only["title"], summary=only["summary"])
        return words("found", titles=scene.listing([each["title"] for each in chosen]))

    return last


def steps_words(scene: Scene, title_of: str) -> Last:
    """Return the reply to an opened protocol: all its steps. `title_of` is for a missing title."""

    def last(settled: Settled, words: Words) -> str:
        protocol = data_of(settled).get("protocol")
        if protocol is None:
            return not_there(settled, words, title_of)
        anchor = protocol["anchor"]
        steps = " ".join(protocol["steps"])
        more = words("steps_more", anchor=anchor, anchor_said=scene.anchor_words(anchor))
        return f"{words('steps', title=protocol['title'], steps=steps)} {more}".strip()

    return last


def not_there(settled: Settled, words: Words, wanted: str) -> str:
    """Return the reply to a protocol that there is not, with the nearest ids of the reason."""
    if failure(settled) != "not_found":
        return words("broken")
    reason = getattr(settled[-1].result, "reason", "")
    nearest = re.search(r"(?:가까운 id|Nearest ids): ([a-z0-9, -]+?)\.", reason)
    return words("unknown_protocol", id=wanted, nearest=nearest[1] if nearest else "-")


def search(scene: Scene) -> None:
    """A wish in words, answered with what is in the catalog."""
    target = any_protocol(scene)
    wish = wish_of(scene, target)
    calls = [call("search_catalog", query=wish.query)]
    scene.add(
        scene.user("search", wish=wish.text.rstrip(".")),
        scene.acts(calls, found_words(scene, target, wish.query)),
    )


def topic(scene: Scene) -> None:
    """A keyword to search for, sometimes with a number of results."""
    target = any_protocol(scene)
    query = wish_of(scene, target).query
    if scene.chance(0.3):
        limit = scene.rng.randint(1, 4)
        calls = [call("search_catalog", query=query, limit=limit)]
        user = scene.user("limited", q=query, n=limit)
        scene.add(user, scene.acts(calls, found_words(scene, None, query)))
        return
    calls = [call("search_catalog", query=query)]
    scene.add(scene.user("topic", q=query), scene.acts(calls, found_words(scene, target, query)))


def category(scene: Scene) -> None:
    """What is in a category."""
    chosen = scene.rng.choice(catalog().categories)
    calls = [call("search_catalog", category=chosen)]
    user = scene.user(f"category.{chosen}")
    scene.add(user, scene.acts(calls, found_words(scene, None, chosen, most=4)))


def absent(scene: Scene) -> None:
    """Something that the catalog has not: searched, not found, said so."""
    topics = [each for each in scene.phrases.lines["absent_topic"] if not hits(each, scene.locale)]
    query = scene.rng.choice(topics)
    calls = [call("search_catalog", query=query)]
    scene.add(scene.user("topic", q=query), scene.acts(calls, found_words(scene, None, query)))


def too_many(scene: Scene) -> None:
    """More results than a search gives: the most there can be, and why."""
    query = wish_of(scene, any_protocol(scene)).query
    wanted = scene.rng.choice((12, 15, 20, 25, 30, 40, 50, 100))
    calls = [call("search_catalog", query=query, limit=MOST_RESULTS)]
    is_slip = scene.chance(0.3)
    if is_slip:
        calls.insert(0, call("search_catalog", query=query, limit=wanted))

    def last(settled: Settled, words: Words) -> str:
        found = data_of(settled).get("protocols", [])
        titles = [each["title"] for each in found[:4]]
        if not titles:
            return words("found_none", q=query)
        return words("found_most", count=len(found), titles=scene.listing(titles))

    user = scene.user("too_many", q=query, n=wanted)
    scene.add(user, scene.acts(calls, last), slips=[0] if is_slip else [])


def two_wishes(scene: Scene) -> None:
    """Two wishes in one message: two searches, one answer."""
    first, second = scene.rng.sample(tuple(catalog()), 2)
    wish, wish2 = wish_of(scene, first), wish_of(scene, second)
    if wish.query == wish2.query:
        return
    calls = [call("search_catalog", query=each.query) for each in (wish, wish2)]

    def last(settled: Settled, words: Words) -> str:
        titles = [
            _title_among(data_of(settled, index).get("protocols", []), target)
            for index, target in ((-2, first), (-1, second))
        ]
        if "" in titles:
            return words("one_lacking", title="".join(titles))
        return words("found_two", title=titles[0], title2=titles[1])

    user = scene.user("two_wishes", wish=wish.text, wish2=wish2.text)
    scene.add(user, scene.acts(calls, last))


def _title_among(found: list[dict[str, str]], target: str) -> str:
    titles = {each["id"]: each["title"] for each in found}
    return titles.get(target) or next(iter(titles.values()), "")


def detail(scene: Scene) -> None:
    """One protocol in full, or one fact of it: searched by its name, then opened by its id."""
    target = any_protocol(scene)
    name = scene.name(target)
    calls = [call("search_catalog", query=name), call("query_protocol", protocol_id=target)]
    kind = scene.rng.choice(("detail", "detail", "detail", "number", "anchor", "source"))
    unit = _unit_in(scene, target) if kind == "number" else None
    if unit is not None:
        user = scene.user("detail_number", name=name, unit=unit)
        scene.add(user, scene.acts(calls, _fact(lambda text: _has(unit, text))))
    elif kind in {"anchor", "source"}:
        user = scene.user(f"detail_{kind}", name=name)
        scene.add(user, scene.acts(calls, _field(kind)))
    else:
        scene.add(scene.user("detail", name=name), scene.acts(calls, steps_words(scene, name)))


def detail_after_search(scene: Scene) -> None:
    """A search, then the details of what it found, without another search."""
    target = any_protocol(scene)
    wish = wish_of(scene, target)
    first = scene.user("search", wish=wish.text)
    calls = [call("search_catalog", query=wish.query)]
    is_first = hits(wish.query, scene.locale)[:1] == (target,)
    scene.add(first, scene.acts(calls, found_words(scene, target, wish.query, most=1)))
    opened = [call("query_protocol", protocol_id=target)]
    if is_first and scene.chance(0.6):
        second = scene.user("that_one")
    else:
        second = scene.user("the_title", title=scene.title(target))
    scene.add(second, scene.acts(opened, steps_words(scene, target)))


def by_id(scene: Scene) -> None:
    """An id in the user's words: a real one is opened, another is reported with its nearest."""
    fakes = scene.phrases.lines["fake_id"]
    target = any_protocol(scene) if scene.chance(0.5) else scene.rng.choice(fakes)
    calls = [call("query_protocol", protocol_id=target)]
    scene.add(scene.user("by_id", id=target), scene.acts(calls, steps_words(scene, target)))


def mended_id(scene: Scene) -> None:
    """An id that was guessed is not found; a search gives the right one."""
    target = any_protocol(scene)
    name = scene.name(target)
    guessed = f"{target}-{scene.rng.choice(('plan', 'habit', 'guide', 'daily'))}"
    calls: list[Reply] = [
        call("query_protocol", protocol_id=guessed),
        call("search_catalog", query=name),
        call("query_protocol", protocol_id=target),
    ]
    scene.add(
        scene.user("detail", name=name), scene.acts(calls, steps_words(scene, name)), slips=[0]
    )


def search_breaks(scene: Scene) -> None:
    """The search fails once: said so; when asked again, it is done again."""
    target = any_protocol(scene)
    wish = wish_of(scene, target)
    calls = [call("search_catalog", query=wish.query)]
    act = scene.acts(calls, found_words(scene, target, wish.query))
    scene.breaks("search_catalog")
    scene.add(scene.user("search", wish=wish.text), act)
    scene.add(scene.user("try_again"), act)


def _unit_in(scene: Scene, protocol_id: str) -> str | None:
    steps = catalog()[protocol_id].texts[scene.locale].steps
    units = [u for u in _UNITS[scene.locale] if sum(_has(u, step) for step in steps) == 1]
    return scene.rng.choice(units) if units else None


def _has(unit: str, text: str) -> bool:
    if unit.isascii():
        return re.search(rf"\b{unit}\b", text) is not None
    return re.search(rf"(?:\d|[한두세네섯곱덟홉열반]) ?{unit}", text) is not None


def _fact(is_wanted: Callable[[str], bool]) -> Last:
    def last(settled: Settled, words: Words) -> str:
        protocol = data_of(settled).get("protocol", {})
        found = [step for step in protocol.get("steps", []) if is_wanted(step)]
        return words("number", step=found[0]) if found else words("broken")

    return last


def _field(kind: str) -> Last:
    def last(settled: Settled, words: Words) -> str:
        protocol = data_of(settled).get("protocol")
        if protocol is None:
            return words("broken")
        return words(kind, **{kind: protocol[kind]})

    return last
