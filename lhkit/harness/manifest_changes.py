"""What the manifests of two runs say differently of what was asked. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.harness.manifest import Manifest, Prompt
from lhkit.json_values import canonical, compact
from lhkit.responses import weights_label

_IDENTITY = ("model", "weights", "server", "dtype", "dialect", "constraint", "stress")
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASHED = frozenset({"prompt", "tools", "rendering", "texts", "context", "scenario"})
_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that two runs were told differently.

    `what` is model, weights, server, dtype, dialect, constraint, stress, sampling, prompt, tools,
    tools_order, rendering (a dialect's own words), texts (refusals of the dispatcher), assistant
    (its limits), context, user (who clicks), lhkit or scenario; `where` the locale, the scenario or
    the field.
    `before` and `after` are names, numbers or parts of hashes.
    """

    what: str
    where: str = ""
    before: str = ""
    after: str = ""


def changes(
    before: Manifest | Mapping[str, Any], after: Manifest | Mapping[str, Any]
) -> tuple[Change, ...]:
    """Return what differs between what two manifests say, scenarios last; versions only of lhkit.

    Only what both say can differ: a scenario that one of them does not name is no change.
    """
    found = _differences(Manifest.of(before), Manifest.of(after))
    return tuple(each for each in found if each.before and each.after)


def _differences(before: Manifest, after: Manifest) -> Iterator[Change]:
    prompts = [
        (locale, before.locales[locale], after.locales[locale])
        for locale in sorted(before.locales.keys() & after.locales.keys())
    ]
    asked: list[Change] = []
    for what in _IDENTITY:
        asked += _change(what, _values(before.models, what), _values(after.models, what))
    for name in _SAMPLING:
        old, new = _values(before.sampling, name), _values(after.sampling, name)
        asked += _change("sampling", old, new, name)
    for locale, then, now in prompts:
        asked += _change("prompt", then.instructions_sha256, now.instructions_sha256, locale)
    for locale, then, now in prompts:
        asked += _tools(then, now, locale)
    yield from asked
    if all(change.what == "weights" for change in asked):  # else it follows from what was asked
        for locale, then, now in prompts:
            yield from _change("rendering", then.rendering_sha256, now.rendering_sha256, locale)
    for locale, then, now in prompts:
        yield from _change("texts", then.texts_sha256, now.texts_sha256, locale)
        limits = [each.assistant.model_dump(exclude_unset=True) for each in (then, now)]
        for name in sorted(limits[0].keys() & limits[1].keys()):
            yield from _change("assistant", str(limits[0][name]), str(limits[1][name]), name)
    if before.contexts is not None and after.contexts is not None:
        same = [
            name for name, sha256 in after.scenarios.items() if before.scenarios.get(name) == sha256
        ]
        lines = [
            _sha256(canonical([contexts.get(name, "") for name in same]))
            for contexts in (before.contexts, after.contexts)
        ]
        yield from _change("context", lines[0], lines[1])
    yield from _change("user", before.user, after.user)
    yield from _change("lhkit", before.versions.get("lhkit", ""), after.versions.get("lhkit", ""))
    for scenario, sha256 in after.scenarios.items():
        yield from _change("scenario", before.scenarios.get(scenario, ""), sha256, scenario)


def _tools(old: Prompt, new: Prompt, locale: str) -> Iterator[Change]:
    """Yield other tools, or the same ones or the words of a schema in another order."""
    then, now = (  # without what only tells how their success is claimed
        [{k: v for k, v in tool.items() if k != "claims"} for tool in prompt.tools]
        for prompt in (old, new)
    )
    if sorted(map(canonical, then)) != sorted(map(canonical, now)):
        yield from _change("tools", _sha256(canonical(then)), _sha256(canonical(now)), locale)
    elif compact(then) != compact(now):
        names = [", ".join(str(tool["name"]) for tool in tools) for tools in (then, now)]
        if names[0] == names[1]:
            names = [_sha256(compact(each))[:_HASH_CHARS] for each in (then, now)]
        yield from _change("tools_order", names[0], names[1], locale)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _change(what: str, before: str, after: str, where: str = "") -> Iterator[Change]:
    if before != after:
        cut = slice(_HASH_CHARS if what in _HASHED else None)
        yield Change(what=what, where=where, before=before[cut], after=after[cut])


def _values(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    """Return the values of a field of all models or samplings, normally one; `-` for nothing."""
    found: set[Any] = set()
    for row in rows:
        value = row.get(name)
        if name == "weights":  # the name of the model where a hash has no other
            sha256 = str(row.get("weights_sha256") or "")
            value = weights_label(str(value or (row.get("model") if sha256 else "") or ""), sha256)
        found.add("-" if value in {None, ""} else str(value))
    return ", ".join(sorted(found))
