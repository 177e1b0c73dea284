"""Talk about which habits there are, and about what the list says of one of them."""

from dataclasses import replace
from datetime import date

from lhkit.models.scripted import call
from lhkit.tuning.expert import Act
from lhkit.tuning.life_helper.catalog_talk import any_protocol
from lhkit.tuning.life_helper.scene import Scene, Settled, Words, anchor_in, rows_of, titles_of
from lhkit.tuning.life_helper.spoken_dates import plain_day
from lhkit.tuning.life_helper.worlds import ANCHORS, Habit

_REPLIES = {"active": "habits", "archived": "habits_archived", "all": "habits_all"}


def list_them(scene: Scene) -> None:
    """The habits of a status; sometimes those of another status next."""
    status = scene.rng.choice(("active", "active", "active", "archived", "all"))
    scene.is_listed = scene.is_listed or status != "archived"
    scene.add(scene.user(f"list_{status}"), listing(scene, status))
    if scene.chance(0.25):
        other = "active" if status == "archived" else "archived"
        scene.is_listed = True
        scene.add(scene.user(f"then_{other}"), listing(scene, other))
    if scene.chance(0.12):
        scene.add(scene.user("thanks"), scene.says("thanks"))


def challenged(scene: Scene) -> None:
    """A habit is said to be in the list that is not: the list was read, so nothing is called."""
    scene.is_listed = True
    scene.add(scene.user("list_active"), listing(scene, "active"))
    missing = any_protocol(scene)
    while missing in {habit.id for habit in scene.world.habits}:
        missing = any_protocol(scene)
    name = scene.name(missing)
    count = len(scene.world.of_status("active"))
    for _ in range(scene.rng.choice((1, 1, 2))):
        scene.add(
            scene.user("list_challenged", name=name),
            scene.says("not_in_list", name=name, count=count),
        )


def sentence_of(scene: Scene) -> None:
    """What the user wrote for a habit: it stands in the list."""
    habit = scene.habit()

    def last(settled: Settled, words: Words) -> str:
        rows = {row["id"]: row for row in rows_of(settled, "habits")}
        row = rows.get(habit.id, {})
        if "framed_text" not in row:
            return words("broken")
        started = plain_day(habit.created_on, scene.locale)
        return words("sentence_is", say=row["framed_text"], anchor=anchor_in(row), created=started)

    scene.is_listed = True
    user = scene.user("list_sentence", name=scene.name(habit.id))
    scene.add(user, scene.acts([call("list_habits")], last))


def anchored(scene: Scene) -> None:
    """Which habits are done at a moment? Sometimes two of them are."""
    first, second = scene.two_habits()
    if not scene.lines and scene.chance(0.4):
        _share_anchor(scene, first, second)
    anchor = first.anchor[1]

    def last(settled: Settled, words: Words) -> str:
        rows = rows_of(settled, "habits")
        titles = [row["title"] for row in rows if anchor_in(row) == anchor]
        said = scene.anchor_words(anchor)
        return words("habits_anchored", anchor=said, titles=scene.listing(titles))

    scene.is_listed = True
    user = scene.user("list_anchored", anchor=_spoken(scene, first))
    scene.add(user, scene.acts([call("list_habits")], last))


def first_or_last(scene: Scene) -> None:
    """The habit that was begun last or first, and when."""
    which, pick = scene.rng.choice((("newest", max), ("newest", max), ("oldest", min)))

    def last(settled: Settled, words: Words) -> str:
        row = pick(rows_of(settled, "habits"), key=lambda each: str(each["created_on"]))
        begun = plain_day(date.fromisoformat(row["created_on"]), scene.locale)
        return words(f"habit_{which}", title=row["title"], created=begun)

    scene.is_listed = True
    scene.add(scene.user(f"list_{which}"), scene.acts([call("list_habits")], last))


def listing(scene: Scene, status: str, *, key: str = "") -> Act:
    """Return the act that lists the habits of a status, in the words of that status or of `key`."""
    args = {} if status == "active" else {"status": status}
    empty = "archived_none" if status == "archived" else "habits_none"

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "habits")
        if not titles:
            return words(empty)
        return words(key or _REPLIES[status], count=len(titles), titles=scene.listing(titles))

    return scene.acts([call("list_habits", **args)], last)


def _spoken(scene: Scene, habit: Habit) -> str:
    """Return the anchor as the user says it."""
    name, value = habit.anchor
    if scene.locale == "ko":
        return scene.anchor_words(value)
    lines, before = ANCHORS[name]
    return before + value if before + value in scene.phrases.lines[lines] else value


def _share_anchor(scene: Scene, first: Habit, second: Habit) -> None:
    habits = [
        replace(habit, anchor=first.anchor) if habit.id == second.id else habit
        for habit in scene.world.habits
    ]
    scene.world = replace(scene.world, habits=tuple(habits))
