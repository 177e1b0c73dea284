"""What a run asked, as its manifest says, and how that differs from what another one asked. Pure.

A question is a content hash (scenario, model, all that reaches it, version of lhkit: see `plan`).
Hashes tell that two questions differ; the facts of the manifests tell why.
"""

import hashlib
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.harness.records.record import SampleId, SampleRecord, Verdict
from lhkit.vocab.generation import weights_label
from lhkit.vocab.json_values import canonical, compact

Manifest: TypeAlias = Mapping[str, Any]

_IDENTITY = ("model", "weights", "server", "dialect", "constraint", "stress")
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASHED = frozenset({"prompt", "tools", "rendering", "texts", "context", "scenario"})
_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that two runs were told differently.

    `what` is model, weights, server, dialect, constraint, stress, sampling, prompt, tools,
    tools_order, rendering (a dialect's own words), texts (refusals of the dispatcher), assistant
    (its limits), context, lhkit or scenario; `where` the locale, the scenario or the field.
    `before` and `after` are names, numbers or parts of hashes.
    """

    what: str
    where: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a run found in its folder, in samples; the four kinds add up to `asked`.

    `kept` are answered, `changed` were asked otherwise, `retried` failed because of the world, and
    `new` were never asked. `changes` says why the changed ones are other questions; it is empty
    where the manifest does not tell. `unsure` names the models whose kept answers may be those of
    other weights: nothing behind their address tells which it loaded.
    """

    asked: int
    kept: int = 0
    changed: int = 0
    retried: int = 0
    new: int = 0
    changes: tuple[Change, ...] = ()
    unsure: tuple[str, ...] = ()


def asked_of(manifest: Manifest) -> dict[SampleId, str]:
    """Return the content hash of every sample the newest sitting asked for, in its order.

    Empty where the manifest does not say: there is none, or an older version wrote it.
    """
    questions: Mapping[str, Sequence[str]] = manifest.get("questions") or {}
    repeats = int(manifest.get("repeats") or 1)
    return {
        SampleId(scenario=scenario, repeat=repeat): hashes[min(repeat, len(hashes) - 1)]
        for scenario, hashes in questions.items()
        for repeat in range(repeats)
    }


def answers(
    found: Iterable[SampleRecord], asked: Mapping[SampleId, str]
) -> tuple[SampleRecord, ...]:
    """Return the newest record of each question, a valid one before an invalid one.

    In the order of `asked`. Where that is empty, the newest question of each sample counts, and
    the order is by scenario and repeat.
    """
    records = tuple(found)
    wanted = asked or {
        record.sample_id: record.content_hash for record in sorted(records, key=_place)
    }
    newest = {record.sample_id: record.content_hash for record in records}
    hashes = wanted if asked else newest
    best: dict[SampleId, SampleRecord] = {}
    for record in records:
        if hashes.get(record.sample_id) != record.content_hash:
            continue
        if record.verdict is not Verdict.INVALID or _is_invalid(best.get(record.sample_id)):
            best[record.sample_id] = record
    return tuple(best[sample] for sample in wanted if sample in best)


def _place(record: SampleRecord) -> tuple[str, int]:
    return record.sample_id.scenario, record.sample_id.repeat


def _is_invalid(record: SampleRecord | None) -> bool:
    return record is None or record.verdict is Verdict.INVALID


def resumption(
    asked: Mapping[SampleId, str],
    found: Iterable[SampleRecord],
    before: Manifest,
    after: Manifest,
) -> Resumption:
    """Return what a folder already holds of what is asked now.

    Args:
        asked: the content hash of each sample.
        found: the records of the folder.
        before: the manifest of the folder, before it is replaced.
        after: the facts of the present run.
    """
    seen: dict[SampleId, dict[str, bool]] = {}
    for record in found:
        valid = seen.setdefault(record.sample_id, {})
        is_valid = record.verdict is not Verdict.INVALID
        valid[record.content_hash] = valid.get(record.content_hash, False) or is_valid
    kinds = {sample: _kind(asked[sample], seen.get(sample, {})) for sample in asked}
    is_other_lhkit = not {"kept", "retried"} & set(kinds.values())  # it would ask all of them anew
    changed = {sample.scenario for sample, kind in kinds.items() if kind == "changed"}
    return Resumption(
        asked=len(asked),
        **Counter(kinds.values()),
        changes=tuple(
            change
            for change in (changes(before, after) if changed else ())
            if (change.what != "scenario" or change.where in changed)
            and (change.what != "lhkit" or is_other_lhkit)
        ),
        unsure=unsure_models(after) if "kept" in kinds.values() else (),
    )


def unsure_models(manifest: Manifest) -> tuple[str, ...]:
    """Return the models, with their addresses, whose weights may be others by now, unnoticed."""
    models = (each for each in manifest.get("models", ()) if each.get("base_url"))
    return tuple(
        f"{each.get('model')} ({each['base_url']})"
        for each in models
        if not each.get("weights_sha256")
    )


def _kind(question: str, answered: Mapping[str, bool]) -> str:
    if question in answered:
        return "kept" if answered[question] else "retried"
    return "changed" if answered else "new"


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
        for field in sorted(then.keys() & now.keys()):
            yield from _change("assistant", str(then[field]), str(now[field]), field)
    yield from _contexts(before, after)
    versions = [each.get("versions", {}).get("lhkit", "") for each in (before, after)]
    yield from _change("lhkit", versions[0], versions[1])
    scenarios, others = (each.get("scenarios", {}) for each in (before, after))
    for scenario in others:
        yield from _change("scenario", scenarios.get(scenario, ""), others[scenario], scenario)


def _sent(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield what differs of who was asked, and of what was asked in all scenarios alike."""
    for what in _IDENTITY:
        yield from _change(what, _values(before, "models", what), _values(after, "models", what))
    for field in _SAMPLING:
        values = [_values(each, "sampling", field) for each in (before, after)]
        yield from _change("sampling", values[0], values[1], field)
    locales = _by_locale(before, after)
    for locale, (old, new) in locales.items():
        yield from _hashes("prompt", old, new, locale, key="instructions_sha256")
    for locale, (old, new) in locales.items():
        yield from _tools(old, new, locale)


def _tools(old: Manifest, new: Manifest, locale: str) -> Iterator[Change]:
    """Yield other tools, or the same in another order: of the tools, or of the words of a schema.

    Where both say the tools themselves, their hashes do not count: an older lhkit took others.
    """
    then, now = old.get("tools"), new.get("tools")
    if not then or not now:
        yield from _hashes("tools", old, new, locale)
    elif sorted(map(canonical, then)) != sorted(map(canonical, now)):
        yield from _change("tools", _sha256(canonical(then)), _sha256(canonical(now)), locale)
    elif compact(then) != compact(now):
        names = [", ".join(str(tool["name"]) for tool in tools) for tools in (then, now)]
        is_inside = names[0] == names[1]
        told = (
            [_sha256(compact(each))[:_HASH_CHARS] for each in (then, now)] if is_inside else names
        )
        yield from _change("tools_order", told[0], told[1], locale)


def _contexts(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield that scenarios which are the same have other lines beside the user's, as one change."""
    told = [
        (each.get("scenarios", {}), each["contexts"])
        for each in (before, after)
        if "contexts" in each
    ]
    if len(told) == 2:  # noqa: PLR2004 - both say it
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
