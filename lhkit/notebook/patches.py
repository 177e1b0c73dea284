"""What has to be sent so that a screen that shows one view shows the next. Pure."""

from typing import Any, TypeAlias

from lhkit.notebook.render import Fragment, View

Patch: TypeAlias = list[Any]
"""`["set", index, html]` (also one past the end), `["append", index, text]`, `["cut", length]`."""


def patches(old: View | None, new: View) -> list[Patch]:
    """Return the changes from `old` to `new`, smallest where an answer streams."""
    before = old.fragments if old else ()
    changes: list[Patch] = []
    if len(new.fragments) < len(before):
        changes.append(["cut", len(new.fragments)])
    for index, fragment in enumerate(new.fragments):
        earlier = before[index] if index < len(before) else None
        if earlier is fragment:
            continue
        more = _growth(earlier, fragment)
        changes.append(["set", index, fragment.html] if more is None else ["append", index, more])
    return changes


def _growth(before: Fragment | None, after: Fragment) -> str | None:
    """Return the text that was added to an answer that streams; None if that is not all."""
    if before is None or before.stream is None or after.stream is None:
        return None
    is_longer = after.stream.startswith(before.stream)
    return after.stream[len(before.stream) :] if is_longer else None
