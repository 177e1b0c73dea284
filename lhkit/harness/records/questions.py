"""What a run asked, as its manifest says, and how that differs from what another one asked. Pure.

A question is a content hash (scenario, tools, instructions, model, sampling, see `plan`). Hashes
tell that two questions differ; the facts of the manifests tell why.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.harness.records.record import SampleId, SampleRecord, Verdict
from lhkit.vocab.generation import weights_label

Manifest: TypeAlias = Mapping[str, Any]

_IDENTITY = ("model", "weights", "server", "dialect", "constraint", "stress")
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that two runs were told differently.

    `what` is model, weights, server, dialect, constraint, stress, sampling, prompt, tools, lhkit or
    scenario; `where` the locale, the scenario or the field. `before` and `after` are names, numbers
    or parts of hashes.
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
    changed = {sample.scenario for sample, kind in kinds.items() if kind == "changed"}
    return Resumption(
        asked=len(asked),
        **Counter(kinds.values()),
        changes=tuple(
            change
            for change in (changes(before, after) if changed else ())
            if change.what not in {"scenario", "lhkit"} or change.where in changed
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
    for what in _IDENTITY:
        yield from _change(what, _values(before, "models", what), _values(after, "models", what))
    for field in _SAMPLING:
        values = [_values(each, "sampling", field) for each in (before, after)]
        yield from _change("sampling", values[0], values[1], field)
    for what, key in (("prompt", "instructions_sha256"), ("tools", "tools_sha256")):
        old, new = _by_locale(before, key), _by_locale(after, key)
        for locale in sorted(old.keys() & new.keys()):
            yield from _change(what, old[locale], new[locale], locale)
    versions = [each.get("versions", {}).get("lhkit", "") for each in (before, after)]
    yield from _change("lhkit", versions[0], versions[1])
    old, new = (each.get("scenarios", {}) for each in (before, after))
    for scenario in new:
        yield from _change("scenario", old.get(scenario, ""), new[scenario], scenario)


def _change(what: str, before: str, after: str, where: str = "") -> Iterator[Change]:
    if before == after:
        return
    is_hash = what in {"prompt", "tools", "scenario"}
    cut = slice(_HASH_CHARS if is_hash else None)
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


def _by_locale(manifest: Manifest, key: str) -> dict[str, str]:
    locales: Mapping[str, Mapping[str, Any]] = manifest.get("locales", {})
    return {locale: told.get(key, "") for locale, told in locales.items()}
