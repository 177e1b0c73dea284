"""What the manifests of two runs say differently of what was asked. Pure."""

import hashlib
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.json_values import canonical, compact
from lhkit.responses import weights_label

Manifest: TypeAlias = Mapping[str, Any]

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


def changes(before: Manifest, after: Manifest) -> tuple[Change, ...]:
    """Return what differs between what two manifests say, scenarios last; versions only of lhkit.

    Only what both say can differ: a scenario that one of them does not name is no change.
    """
    return tuple(change for change in _differences(before, after) if change.before and change.after)


def _differences(before: Manifest, after: Manifest) -> Iterator[Change]:
    yield from (asked := list(_sent(before, after)))
    locales = [(locale, *told) for locale, told in _by_locale(before, after).items()]
    if all(change.what == "weights" for change in asked):  # else it follows from what was told
        for locale, old, new in locales:
            yield from _hashes("rendering", old, new, locale)
    for locale, old, new in locales:
        yield from _hashes("texts", old, new, locale)
        then, now = old.get("assistant", {}), new.get("assistant", {})
        for name in sorted(then.keys() & now.keys()):
            yield from _change("assistant", str(then[name]), str(now[name]), name)
    yield from _contexts(before, after)
    yield from _change("user", before.get("user", ""), after.get("user", ""))
    versions = [each.get("versions", {}).get("lhkit", "") for each in (before, after)]
    yield from _change("lhkit", versions[0], versions[1])
    scenarios, others = (each.get("scenarios", {}) for each in (before, after))
    for scenario in others:
        yield from _change("scenario", scenarios.get(scenario, ""), others[scenario], scenario)


def _sent(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield what differs of who was asked, and of what was asked in all scenarios alike."""
    for what in _IDENTITY:
        told = [_values(each, "models", what) for each in (before, after)]
        yield from _change(what, told[0], told[1])
    for name in _SAMPLING:
        values = [_values(each, "sampling", name) for each in (before, after)]
        yield from _change("sampling", values[0], values[1], name)
    locales = _by_locale(before, after)
    for locale, (old, new) in locales.items():
        yield from _hashes("prompt", old, new, locale, key="instructions_sha256")
    for locale, (old, new) in locales.items():
        yield from _tools(old, new, locale)


def _tools(old: Manifest, new: Manifest, locale: str) -> Iterator[Change]:
    """Yield other tools, or the same ones or the words of a schema in another order."""
    then, now = _asked(old), _asked(new)
    if sorted(map(canonical, then)) != sorted(map(canonical, now)):
        yield from _change("tools", _sha256(canonical(then)), _sha256(canonical(now)), locale)
    elif compact(then) != compact(now):
        names = [", ".join(str(tool["name"]) for tool in tools) for tools in (then, now)]
        is_inside = names[0] == names[1]
        told = (
            [_sha256(compact(each))[:_HASH_CHARS] for each in (then, now)] if is_inside else names
        )
        yield from _change("tools_order", told[0], told[1], locale)


def _asked(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools without what only tells how their success is claimed."""
    return [{k: v for k, v in tool.items() if k != "claims"} for tool in told.get("tools", ())]


def _contexts(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield that scenarios which are the same have other lines beside the user's, as one change."""
    told = [
        (each.get("scenarios", {}), each["contexts"])
        for each in (before, after)
        if "contexts" in each
    ]
    if len(told) == 2:
        (scenarios, then), (others, now) = told
        same = [name for name in others if scenarios.get(name) == others[name]]
        yield from _change(
            "context",
            *(_sha256(canonical([lines.get(name, "") for name in same])) for lines in (then, now)),
        )


def _hashes(
    what: str, old: Manifest, new: Manifest, locale: str, *, key: str = ""
) -> Iterator[Change]:
    name = key or f"{what}_sha256"
    yield from _change(what, old.get(name, ""), new.get(name, ""), locale)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _change(what: str, before: str, after: str, where: str = "") -> Iterator[Change]:
    if before == after:
        return
    cut = slice(_HASH_CHARS if what in _HASHED else None)
    yield Change(what=what, where=where, before=before[cut], after=after[cut])


def _values(manifest: Manifest, key: str, field: str) -> str:
    """Return the values of a field of all models or samplings, normally one; `-` for nothing."""
    value = _weights if field == "weights" else operator.methodcaller("get", field)
    found = {value(each) for each in manifest.get(key, ())}
    return ", ".join(sorted("-" if value in {None, ""} else str(value) for value in found))


def _weights(told: Mapping[str, Any]) -> str:
    """Return weights for people; the name of the model where a hash has no other."""
    sha256 = str(told.get("weights_sha256") or "")
    name = told.get("weights") or (told.get("model") if sha256 else "")
    return weights_label(str(name or ""), sha256)


def _by_locale(before: Manifest, after: Manifest) -> dict[str, tuple[Manifest, Manifest]]:
    """Return what both manifests say of a language, by locale."""
    old, new = (each.get("locales", {}) for each in (before, after))
    return {locale: (old[locale], new[locale]) for locale in sorted(old.keys() & new.keys())}
