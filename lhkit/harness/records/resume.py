"""Resuming a run: which samples of a folder are reused and which are run, by content hash. Pure.

A content hash covers the scenario, the model, everything sent to it, the tools' code where it is
known, and the version of lhkit: see `fingerprint`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias, TypeVar

from lhkit.harness.records.manifest import Change, Manifest, manifest_changes
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.scenarios.sample_id import SampleId

_Entry = TypeVar("_Entry")

RecordKey: TypeAlias = tuple[SampleId, str]
"""A sample and its content hash."""
RecordStatus: TypeAlias = tuple[RecordKey, bool]
"""The key of a record, and whether its verdict is not `invalid`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Counts of reused, outdated, retried and new samples; they add up to `total`.

    Attributes:
        kept: samples reused from the folder.
        changed: samples with another content hash in the folder.
        retried: samples that ended with an infrastructure error.
        new: samples without a record.
        changes: the reasons for `changed`; empty if the manifests do not show them.
        unverified: models with reused samples whose server does not report its weights.
        is_code_unknown: whether samples are reused although the tools' code cannot be compared.
        kept_samples: the ids of the reused samples.
    """

    total: int
    kept: int = 0
    changed: int = 0
    retried: int = 0
    new: int = 0
    changes: tuple[Change, ...] = ()
    unverified: tuple[str, ...] = ()
    is_code_unknown: bool = field(default=False, compare=False)
    kept_samples: Collection[SampleId] = field(default=(), compare=False, repr=False)


class SampleHashes(Mapping[SampleId, str]):
    """The content hash of every sample, in order, computed on lookup to save memory.

    Args:
        hashes: for each scenario in each wording, one hash for each repeat or one for all.
        repeats: samples of each scenario.
    """

    def __init__(self, hashes: Mapping[str, Sequence[str]], repeats: int) -> None:
        self._hashes = hashes
        self._repeats = repeats
        self._numbers = {scenario: number for number, scenario in enumerate(hashes)}

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "SampleHashes":
        """Return the hashes of the newest invocation; empty if the manifest has none."""
        return cls(manifest.content_hashes, manifest.repeats)

    def __len__(self) -> int:
        return len(self._hashes) * self._repeats

    def __iter__(self) -> Iterator[SampleId]:
        for name in self._hashes:
            first = SampleId.from_name(name)
            for repeat in range(self._repeats):
                yield replace(first, repeat=repeat)

    def __getitem__(self, sample: SampleId) -> str:
        if not 0 <= sample.repeat < self._repeats:
            raise KeyError(sample)
        hashes = self._hashes[sample.name]
        return hashes[min(sample.repeat, len(hashes) - 1)]

    def index(self, sample: SampleId) -> int:
        """Return the position of a sample in the order."""
        return self._numbers[sample.name] * self._repeats + sample.repeat


def record_status(record: SampleRecord) -> RecordStatus:
    """Return the key of a record, and whether its verdict is not `invalid`."""
    key = (record.sample_id, record.content_hash)
    return key, record.score.verdict is not Verdict.INVALID


def select_records(
    records: Iterable[SampleRecord], hashes: Mapping[SampleId, str]
) -> tuple[SampleRecord, ...]:
    """Return the newest record of each sample, a valid one before an `invalid` one.

    Args:
        records: the records, oldest first.
        hashes: the content hash of each sample, in the order wanted. If empty, each sample's newest
            hash counts, and the order is by scenario and repeat.
    """
    return select_entries(((record_status(record), record) for record in records), hashes)


def select_entries(
    entries: Iterable[tuple[RecordStatus, _Entry]], hashes: Mapping[SampleId, str]
) -> tuple[_Entry, ...]:
    """Return the entry that `select_records` would select for each sample.

    Args:
        entries: the status of each record with a record or its place in a file, oldest first.
        hashes: as in `select_records`.
    """
    newest_hashes: dict[SampleId, str] = {}
    best: dict[RecordKey, tuple[bool, _Entry]] = {}
    for (key, is_valid), entry in entries:
        newest_hashes[key[0]] = key[1]
        if is_valid or not best.get(key, (False,))[0]:
            best[key] = (is_valid, entry)
    wanted = hashes or newest_hashes
    order = hashes or sorted(wanted, key=attrgetter("scenario", "wording", "repeat"))
    keys = ((sample, wanted[sample]) for sample in order)
    return tuple(best[key][1] for key in keys if key in best)


def reusable_samples(
    statuses: Iterable[RecordStatus], hashes: Mapping[SampleId, str]
) -> set[SampleId]:
    """Return the samples that have a valid record with their content hash."""
    return {key[0] for key, is_valid in statuses if is_valid and hashes.get(key[0]) == key[1]}


def check_resumption(
    hashes: Mapping[SampleId, str],
    statuses: Iterable[RecordStatus],
    before: Manifest,
    after: Manifest,
) -> Resumption:
    """Return counts of reused, outdated, retried and new samples.

    Args:
        hashes: the content hash of each sample of the present run.
        statuses: the statuses of the records in the folder.
        before: the manifest in the folder.
        after: the manifest of the present run.
    """
    kinds: dict[SampleId, str] = {}
    for (sample, content_hash), is_valid in statuses:
        if sample in hashes and kinds.get(sample) != "kept":
            is_same = hashes[sample] == content_hash
            if is_same or sample not in kinds:
                kinds[sample] = "changed" if not is_same else "kept" if is_valid else "retried"
    counts = Counter(kinds.values())
    counts["new"] = len(hashes) - len(kinds)
    is_other_version = not {"kept", "retried"} & set(kinds.values())  # it would change all hashes
    kept = {sample for sample, kind in kinds.items() if kind == "kept"}
    changed = {sample.scenario for sample, kind in kinds.items() if kind == "changed"}
    return Resumption(
        total=len(hashes),
        **counts,
        changes=tuple(
            change
            for change in (manifest_changes(before, after) if changed else ())
            if change.what != "device"  # no content hash covers it
            and (change.what != "scenario" or change.where in changed)
            and (change.what != "lhkit" or is_other_version)
        ),
        unverified=unverified_models(after) if kept else (),
        is_code_unknown=bool(kept) and not after.code_sha256,
        kept_samples=kept,
    )


def unverified_models(manifest: Manifest) -> tuple[str, ...]:
    """Return the models, with their addresses, whose server does not report its weights."""
    return tuple(
        f"{model.get('model')} ({model['base_url']})"
        for model in manifest.models
        if model.get("base_url") and not model.get("weights_sha256")
    )
