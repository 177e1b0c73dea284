"""What of a run is done and what is still to be played, by content hash. Pure.

A question is a content hash of scenario, model, all that reaches it and the version of lhkit: see
`fingerprint`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from lhkit.harness.manifest import Change, Manifest, changes
from lhkit.harness.record import SampleId, SampleRecord, Verdict

_Key = TypeVar("_Key")
_Found = TypeVar("_Found")
Answered: TypeAlias = tuple[tuple[SampleId, str], bool]
"""Which question a record answers, by sample and content hash, and whether the answer is valid."""


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


class Questions(Mapping[SampleId, str]):
    """The content hash of every sample, in order: looked up, so that samples take no memory.

    Args:
        hashes: of each scenario, one for each repeat, or one where all ask the same.
        repeats: samples of each scenario.
    """

    def __init__(self, hashes: Mapping[str, Sequence[str]], repeats: int) -> None:
        self._hashes = hashes
        self._repeats = repeats
        self._numbers = {scenario: number for number, scenario in enumerate(hashes)}

    def __len__(self) -> int:
        return len(self._hashes) * self._repeats

    def __iter__(self) -> Iterator[SampleId]:
        for scenario in self._hashes:
            for repeat in range(self._repeats):
                yield SampleId(scenario=scenario, repeat=repeat)

    def __getitem__(self, sample: SampleId) -> str:
        if not 0 <= sample.repeat < self._repeats:
            raise KeyError(sample)
        hashes = self._hashes[sample.scenario]
        return hashes[min(sample.repeat, len(hashes) - 1)]

    def place(self, sample: SampleId) -> int:
        """Return which one in the order a sample is."""
        return self._numbers[sample.scenario] * self._repeats + sample.repeat


def asked_of(manifest: Mapping[str, Any]) -> Questions:
    """Return the content hash of every sample the newest invocation asked for, in its order.

    Empty where the manifest does not say, or there is none.
    """
    questions: Mapping[str, Sequence[str]] = manifest.get("questions") or {}
    return Questions(questions, int(manifest.get("repeats") or 1))


def answers(
    found: Iterable[SampleRecord], asked: Mapping[SampleId, str]
) -> tuple[SampleRecord, ...]:
    """Return the newest record of each question, a valid one before an invalid one.

    In the order of `asked`. Where that is empty, the newest question of each sample counts, and
    the order is by scenario and repeat.
    """
    return chosen(
        (
            (
                (record.sample_id, record.content_hash),
                record.judgement.verdict is not Verdict.INVALID,
                record,
            )
            for record in found
        ),
        asked,
    )


def chosen(
    told: Iterable[tuple[tuple[SampleId, str], bool, _Found]], asked: Mapping[SampleId, str]
) -> tuple[_Found, ...]:
    """Return of each sample what `answers` returns: a record, or its place in a file.

    Args:
        told: sample and question, whether the answer is valid, and the answer, oldest first.
        asked: as of `answers`.
    """
    each = tuple(told)
    hashes = asked or dict(question for question, _, _ in each)
    order = asked or sorted(hashes, key=lambda sample: (sample.scenario, sample.repeat))
    best = newest(each)
    questions = ((sample, hashes[sample]) for sample in order)
    return tuple(best[question] for question in questions if question in best)


def newest(told: Iterable[tuple[_Key, bool, _Found]]) -> dict[_Key, _Found]:
    """Return the newest of each key, a valid one before an invalid one.

    Args:
        told: key, whether it is valid, and what it is, oldest first.
    """
    best: dict[_Key, tuple[bool, _Found]] = {}
    for key, is_valid, answer in told:
        if is_valid or not best.get(key, (False,))[0]:
            best[key] = (is_valid, answer)
    return {key: answer for key, (_, answer) in best.items()}


def answered(found: Iterable[SampleRecord]) -> Iterator[Answered]:
    """Yield which question each record answers, and whether it is a valid answer."""
    for record in found:
        is_valid = record.judgement.verdict is not Verdict.INVALID
        yield (record.sample_id, record.content_hash), is_valid


def resumption(
    asked: Mapping[SampleId, str],
    found: Iterable[Answered],
    before: Manifest | Mapping[str, Any],
    after: Manifest | Mapping[str, Any],
) -> Resumption:
    """Return what a folder already holds of what is asked now.

    Args:
        asked: the content hash of each sample.
        found: what the records of the folder answer (`answered`).
        before: the manifest of the folder, before it is replaced.
        after: the manifest of the present run.
    """
    kinds: dict[SampleId, str] = {}
    for (sample, question), is_valid in found:
        if sample in asked and kinds.get(sample) != "kept":
            is_asked = asked[sample] == question
            if is_asked or sample not in kinds:
                kinds[sample] = "changed" if not is_asked else "kept" if is_valid else "retried"
    counts = Counter(kinds.values())
    counts["new"] = len(asked) - len(kinds)
    is_other_lhkit = not {"kept", "retried"} & set(kinds.values())  # it would ask all of them anew
    changed = {sample.scenario for sample, kind in kinds.items() if kind == "changed"}
    return Resumption(
        asked=len(asked),
        **counts,
        changes=tuple(
            change
            for change in (changes(before, after) if changed else ())
            if (change.what != "scenario" or change.where in changed)
            and (change.what != "lhkit" or is_other_lhkit)
        ),
        unsure=unsure_models(after) if "kept" in kinds.values() else (),
    )


def unsure_models(manifest: Manifest | Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models, with their addresses, whose weights may have changed unnoticed."""
    return tuple(
        f"{each.get('model')} ({each['base_url']})"
        for each in Manifest.of(manifest).models
        if each.get("base_url") and not each.get("weights_sha256")
    )
