"""Talk about the catalog: protocols by a wish, opened, asked about, or not there."""

import re
from collections.abc import Mapping, Sequence

from evals.lessons.phrases import Wish
from evals.lessons.scene import (
    Last,
    Scene,
    Settled,
    Words,
    catalog,
    data_of,
    failure,
    hits,
    rows_of,
    titles_of,
)
from lhkit.models.scripted import Reply, call

# -------------------------------------------------------------------------------- wishes, protocols

MOST_NAMED = 3
"""So many titles of a search are named: those that a wish is sure to be among."""

_MOST_RESULTS = 10  # of one search
_UNITS = {"ko": ("초", "분", "번", "시간"), "en": ("seconds", "minutes", "times")}


def wish_of(scene: Scene, protocol_id: str) -> Wish:
    """Return a wish that the real search answers with this protocol among the first three."""
    wishes = scene.spoken(protocol_id).wishes
    fit = [each for each in wishes if protocol_id in hits(each.query, scene.locale)[:3]]
    return scene.rng.choice(fit or wishes)


def is_first(scene: Scene, wish: Wish, protocol_id: str) -> bool:
    """Return True if the real search answers a wish with this protocol first."""
    return hits(wish.query, scene.locale)[:1] == (protocol_id,)


def any_protocol(scene: Scene) -> str:
    """Return the id of some protocol."""
    return scene.rng.choice(tuple(catalog()))


def two_protocols(scene: Scene) -> tuple[str, str]:
    """Return the ids of two protocols."""
    first, second = scene.rng.sample(tuple(catalog()), 2)
    return first, second


def search_for(scene: Scene, target: str, wish: Wish, key: str = "search") -> None:
    """Add a line with a wish, and the search that answers it."""
    calls = [call("search_catalog", query=wish.query)]
    user = scene.user(key, wish=wish.text, q=wish.query)
    scene.add(user, scene.acts(calls, found_words(scene, target, wish.query)))


def found_words(scene: Scene, target: str | None, query: str, *, most: int = MOST_NAMED) -> Last:
    """Return the reply to a search: its first titles in order, the target among them."""

    def last(settled: Settled, words: Words) -> str:
        found = rows_of(settled, "protocols")
        if not found:
            return words("found_none", q=query)
        chosen = list(found[:most])
        if target is not None and target not in [each["id"] for each in chosen]:
            chosen[-1] = next((each for each in found if each["id"] == target), chosen[-1])
        if len(chosen) == 1:
            (only,) = chosen
            return words("found_one", title=only["title"], summary=only["summary"])
        return words("found", titles=scene.listing([each["title"] for each in chosen]))

    return last


def steps_words(title_of: str) -> Last:
    """Return the reply to an opened protocol: all its steps. `title_of` is for a missing title."""

    def last(settled: Settled, words: Words) -> str:
        protocol = data_of(settled).get("protocol")
        if protocol is None:
            return not_there(settled, words, title_of)
        return words("steps", title=protocol["title"], steps=" ".join(protocol["steps"]))

    return last


def field_words(kind: str) -> Last:
    """Return the reply to an opened protocol: one field of it, by the key of its words."""

    def last(settled: Settled, words: Words) -> str:
        protocol = data_of(settled).get("protocol")
        if protocol is None:
            return words("broken")
        return words(kind, **{kind: protocol[kind]})

    return last


def not_there(settled: Settled, words: Words, wanted: str, *, key: str = "unknown_protocol") -> str:
    """Return the reply to an id that there is not, with the nearest ids of the reason."""
    if failure(settled) != "not_found":
        return words("broken")
    reason = getattr(settled[-1].result, "reason", "")
    nearest = re.search(r"(?:가까운 id|Nearest ids): ([a-z0-9, -]+?)\.", reason)
    return words(key, id=wanted, nearest=nearest[1] if nearest else "-")


def search(scene: Scene) -> None:
    """A wish in words, answered with what is in the catalog."""
    target = any_protocol(scene)
    search_for(scene, target, wish_of(scene, target))


def topic(scene: Scene) -> None:
    """A keyword to search for, sometimes with a number of results."""
    target = any_protocol(scene)
    is_named = scene.chance(0.3)
    query = scene.name(target) if is_named else wish_of(scene, target).query
    if scene.chance(0.45):
        limit = scene.rng.choice((1, 2, 3, 3, 4, 5))
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
    scene.add(user, scene.acts(calls, found_words(scene, None, chosen)))


def absent(scene: Scene) -> None:
    """Something that the catalog has not: searched, not found, said so, whoever insists."""
    topics = [each for each in scene.phrases.lines["absent_topic"] if not hits(each, scene.locale)]
    query = scene.rng.choice(topics)
    calls = [call("search_catalog", query=query)]
    key = "topic" if scene.chance(0.5) else "absent_story"
    scene.add(scene.user(key, q=query), scene.acts(calls, found_words(scene, None, query)))
    if scene.chance(0.4):
        scene.add(scene.user("insist"), scene.says("still_none", q=query))


def too_many(scene: Scene) -> None:
    """More results than a search gives: the most there can be, and why."""
    query = wish_of(scene, any_protocol(scene)).query
    wanted = scene.rng.choice((12, 15, 20, 25, 30, 40, 50, 100))
    calls = [call("search_catalog", query=query, limit=_MOST_RESULTS)]
    is_slip = scene.chance(0.3)
    if is_slip:
        calls.insert(0, call("search_catalog", query=query, limit=wanted))

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "protocols")
        if not titles:
            return words("found_none", q=query)
        named = scene.listing(titles[:MOST_NAMED])
        return words("found_most", count=len(titles), titles=named)

    user = scene.user("too_many", q=query, n=wanted)
    scene.add(user, scene.acts(calls, last), slips=[0] if is_slip else [])


def two_wishes(scene: Scene) -> None:
    """Two wishes or topics in one message: two searches, one answer."""
    first, second = two_protocols(scene)
    wish, wish2 = wish_of(scene, first), wish_of(scene, second)
    if wish.query == wish2.query:
        return
    calls = [call("search_catalog", query=each.query) for each in (wish, wish2)]
    if scene.chance(0.5):
        user = scene.user("two_topics", q=wish.query, q2=wish2.query)
    else:
        user = scene.user("two_wishes", wish=wish.text, wish2=wish2.text)
    scene.add(user, scene.acts(calls, two_found_words(first, second)))


def two_found_words(first: str | None = None, second: str | None = None) -> Last:
    """Return the reply to two searches: a title of each, that of the protocol meant if known."""

    def last(settled: Settled, words: Words) -> str:
        titles = [
            _title_among(rows_of(settled, "protocols", index), target)
            for index, target in ((-2, first), (-1, second))
        ]
        if "" in titles:
            return words("one_lacking", title="".join(titles))
        return words("found_two", title=titles[0], title2=titles[1])

    return last


def _title_among(found: Sequence[Mapping[str, str]], target: str | None) -> str:
    titles = {each["id"]: each["title"] for each in found}
    return titles.get(target or "") or next(iter(titles.values()), "")


def detail(scene: Scene) -> None:
    """One protocol in full, or one fact of it: searched by its name, then opened by its id."""
    target = any_protocol(scene)
    name = scene.name(target)
    calls = [call("search_catalog", query=name), call("query_protocol", protocol_id=target)]
    kind = scene.rng.choice(("detail", "detail", "number", "anchor", "source"))
    unit = _unit_in(scene, target) if kind == "number" else None
    if kind in {"anchor", "source"}:
        user = scene.user(f"detail_{kind}", name=name)
        scene.add(user, scene.acts(calls, field_words(kind)))
        return
    user = scene.user("detail_number" if unit else "detail", name=name, unit=unit)
    scene.add(user, scene.acts(calls, steps_words(name)))


def detail_after_search(scene: Scene) -> None:
    """A search, then the details of what it found, without another search."""
    target = any_protocol(scene)
    wish = wish_of(scene, target)
    search_for(scene, target, wish)
    opened = [call("query_protocol", protocol_id=target)]
    if is_first(scene, wish, target) and scene.chance(0.6):
        user = scene.user("that_one")
    else:
        user = scene.user("the_title", title=scene.title(target))
    scene.add(user, scene.acts(opened, steps_words(target)))


def by_id(scene: Scene) -> None:
    """An id in the user's words: a real one is opened, another is reported with its nearest."""
    fakes = scene.phrases.lines["fake_id"]
    target = any_protocol(scene) if scene.chance(0.5) else scene.rng.choice(fakes)
    calls = [call("query_protocol", protocol_id=target)]
    scene.add(scene.user("by_id", id=target), scene.acts(calls, steps_words(target)))


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
    scene.add(scene.user("detail", name=name), scene.acts(calls, steps_words(name)), slips=[0])


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


# -------------------------------------------------- other wishes, questions, the one that was meant

_ENOUGH = 2


def _first_found(scene: Scene) -> tuple[str, Wish]:
    """Return a protocol and a wish that the real search answers with it first."""
    while True:
        target = any_protocol(scene)
        wish = wish_of(scene, target)
        if is_first(scene, wish, target):
            return target, wish


def open_asked(
    scene: Scene, target: str, key: str, *, calls: list[Reply], name: str = "", wish: str = ""
) -> None:
    """Add a line that asks what a protocol says, and open it after `calls`."""
    kind = scene.rng.choices(("steps", "anchor", "source"), (80, 13, 7))[0]
    if kind == "steps":
        asked, words = scene.rng.choice(scene.spoken(target).asked), steps_words(target)
    else:
        asked = scene.phrases.line(f"asked_{kind}", scene.rng)
        words = field_words(kind)
    user = scene.user(key, name=name, wish=wish, id=target, asked=asked)
    opening = [*calls, call("query_protocol", protocol_id=target)]
    scene.add(user.replace("?. ", "? "), scene.acts(opening, words))


def prefaced(scene: Scene) -> None:
    """A wish among other words: only the wish is searched for, and nothing else is done."""
    target = any_protocol(scene)
    wish = wish_of(scene, target)
    before = scene.phrases.line("preface", scene.rng) if scene.chance(0.7) else ""
    key = scene.rng.choice(("search", "search", "topic"))
    asking = scene.user(key, wish=wish.text, q=wish.query)
    after = scene.phrases.line("only_look", scene.rng) if not before or scene.chance(0.3) else ""
    stop = "" if asking[-1] in ".?!~…" or not after else "."
    user = f"{before} {asking}{stop} {after}".strip()
    calls = [call("search_catalog", query=wish.query)]
    scene.add(user, scene.acts(calls, found_words(scene, target, wish.query)))


def changed_wish(scene: Scene) -> None:
    """A search, then another topic in its place: searched anew."""
    first, second = two_protocols(scene)
    query, query2 = (wish_of(scene, each).query for each in (first, second))
    if query == query2:
        return
    for target, topic, user in (
        (first, query, scene.user("topic", q=query)),
        (second, query2, scene.user("instead", q=query, q2=query2)),
    ):
        calls = [call("search_catalog", query=topic)]
        scene.add(user, scene.acts(calls, found_words(scene, target, topic)))


def another_wish(scene: Scene) -> None:
    """A search, then one more for another wish."""
    first, second = two_protocols(scene)
    search_for(scene, first, wish_of(scene, first))
    search_for(scene, second, wish_of(scene, second), "another")


def category_limited(scene: Scene) -> None:
    """A category and how many of it."""
    chosen = scene.rng.choice(catalog().categories)
    limit = scene.rng.choice((1, 2, 2, 3, 3, 4, 5))
    name = scene.rng.choice(scene.phrases.lines["category_name"][chosen])
    calls = [call("search_catalog", category=chosen, limit=limit)]
    user = scene.user("category_limited", c=name, n=limit)
    scene.add(user, scene.acts(calls, found_words(scene, None, name)))


def asked(scene: Scene) -> None:
    """A question that a protocol's steps answer: searched, opened, read; perhaps a second one."""
    first, second = two_protocols(scene)
    if scene.chance(0.4):
        target, wish = _first_found(scene)
        calls = [call("search_catalog", query=wish.query)]
        open_asked(scene, target, "wish_asked", calls=calls, wish=wish.text)
    else:
        _search_and_open(scene, first, "open_asked")
    if scene.chance(0.25):
        _search_and_open(scene, second, "next_asked")


def asked_by_id(scene: Scene) -> None:
    """A question on a protocol whose id the user gives: opened at once."""
    open_asked(scene, any_protocol(scene), "id_asked", calls=[])


def asked_after_search(scene: Scene) -> None:
    """A search, then a question on what it found first: opened without another search."""
    target, wish = _first_found(scene)
    search_for(scene, target, wish)
    open_asked(scene, target, "that_asked", calls=[])


def other_one(scene: Scene) -> None:
    """The wrong protocol was opened: the one that was meant is searched and opened."""
    first, second = two_protocols(scene)
    _search_and_open(scene, first, "open_asked")
    _search_and_open(scene, second, "other_one")


def which_protocol(scene: Scene) -> None:
    """Several could be meant: looked up, asked back, then opened without another search."""
    found = {each: hits(each, scene.locale) for each in scene.phrases.lines["vague_topic"]}
    topic = scene.rng.choice([each for each in found if len(found[each]) >= _ENOUGH])
    calls = [call("search_catalog", query=topic)]
    scene.add(scene.user("open_vague", q=topic), scene.acts(calls, _which))
    target = scene.rng.choice(found[topic][:MOST_NAMED])
    open_asked(scene, target, "pick_one", calls=[], name=scene.name(target))


def list_and_search(scene: Scene) -> None:
    """The habits and a search in one message: both calls, one answer."""
    target = any_protocol(scene)
    query = wish_of(scene, target).query
    calls = [call("list_habits"), call("search_catalog", query=query)]

    def last(settled: Settled, words: Words) -> str:
        habits = titles_of(settled, "habits", -2)
        found = titles_of(settled, "protocols")[:MOST_NAMED]
        if not found:
            return words("found_none", q=query)
        key = "listed_found" if habits else "listed_found_none"
        listed = scene.listing(habits) if habits else ""
        return words(key, habits=listed, titles=scene.listing(found))

    scene.is_listed = True
    scene.add(scene.user("list_and_search", q=query), scene.acts(calls, last))


def follow_up(scene: Scene) -> None:
    """After a protocol was opened: what it says is known, so that nothing is called."""
    target = any_protocol(scene)
    _search_and_open(scene, target, "open_asked")
    kind = scene.rng.choice(("anchor", "source", "again", "later"))
    if kind == "later":
        scene.add(scene.user("read_later"), scene.says("not_now"))
        return
    texts = catalog()[target].texts[scene.locale]
    if kind == "again":
        user = scene.user("opened_again", asked=scene.rng.choice(scene.spoken(target).asked))
        act = scene.says("steps", title=texts.title, steps=" ".join(texts.steps))
        scene.add(user, act)
        return
    known = {"anchor": texts.anchor, "source": catalog()[target].source}
    scene.add(scene.user(f"opened_{kind}"), scene.says(kind, **{kind: known[kind]}))


def _search_and_open(scene: Scene, target: str, key: str) -> None:
    name = scene.name(target)
    open_asked(scene, target, key, calls=[call("search_catalog", query=name)], name=name)


def _which(settled: Settled, words: Words) -> str:
    titles = titles_of(settled, "protocols")[:MOST_NAMED]
    if len(titles) < _ENOUGH:
        return words("vague")
    quoted = ", ".join(f"'{title}'" for title in titles)
    return words("which_protocol", titles=quoted)


# ---------------------------------------------------------------------------- wishes told at length


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
