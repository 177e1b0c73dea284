"""Talk about the catalog that goes further: other wishes, questions, the one that was meant."""

from lhkit.models.scripted import Reply, call
from lhkit.tuning.life_helper.catalog_talk import (
    MOST_NAMED,
    any_protocol,
    field_words,
    found_words,
    is_first,
    search_for,
    steps_words,
    two_protocols,
    wish_of,
)
from lhkit.tuning.life_helper.phrases import Wish
from lhkit.tuning.life_helper.scene import (
    Scene,
    Settled,
    Words,
    catalog,
    hits,
    titles_of,
)

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
