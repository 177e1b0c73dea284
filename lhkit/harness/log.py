"""The folder of a run: its manifest, its journal of records, what of it is still to be played."""

import hashlib
import json
import operator
import os
import platform
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias, TypeVar, overload

from filelock import FileLock, Timeout
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from lhkit.errors import RunError
from lhkit.files import open_regular, open_to_append, version_of, write_whole
from lhkit.harness.record import (
    MAX_SECONDS,
    SCHEMA,
    OtherSchemaError,
    SampleId,
    SampleRecord,
    Verdict,
    decode_line,
    encode_record,
    moment_of,
    read_json,
)
from lhkit.harness.tool_specs import ToolSpec
from lhkit.json_values import canonical, compact
from lhkit.redaction import masked
from lhkit.responses import Footprint, weights_label

# What may stand in a `manifest.json` that somebody else gave us. Pure.
#
# Unknown fields are left alone: a newer lhkit may have written them.


MAX_REPEATS = 10_000
"""A manifest that asks for more is no run of ours: every repeat becomes a row in memory."""

_Scalar: TypeAlias = str | int | float | bool | None


_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=-MAX_SECONDS, le=MAX_SECONDS)]


def _checked_moment(text: str) -> str:
    if moment_of(text) is None:
        raise ValueError("no date and time in ISO 8601, of a year from 1000 to 9000")
    return text


_Moment = Annotated[str, AfterValidator(_checked_moment)]


class _Assistant(TypedDict, total=False):
    max_result_bytes: Annotated[int, Field(ge=1, le=2**31)]
    truncation_hint: str


class _Told(TypedDict, total=False):
    instructions_sha256: str
    tools_sha256: str
    rendering_sha256: str
    texts_sha256: str
    assistant: _Assistant
    tools: list[ToolSpec]


class _Invocation(TypedDict, total=False):
    started_at: _Moment | None
    ended_at: _Moment | None
    concurrency: _Count
    kept: _Count
    played: _Count
    invalid: _Count
    finished: bool
    changes: list[dict[str, str]]
    remarks: list[str]
    warmed_up: _Count
    setup_s: _Seconds | None
    server_s: _Seconds | None
    wall_s: _Seconds
    model_s: _Seconds
    writing_s: _Seconds
    footprint: dict[str, Any] | None


@with_config(ConfigDict(strict=True))
class _Manifest(TypedDict, total=False):
    toolset: str
    user: str
    versions: dict[str, str]
    git_commit: str | None
    command: list[str]
    hardware: dict[str, _Scalar]
    models: list[dict[str, _Scalar]]
    sampling: list[dict[str, _Scalar]]
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)]
    locales: dict[str, _Told]
    scenarios: dict[str, str]
    contexts: dict[str, str]
    tools: dict[str, list[str]]
    questions: dict[str, Annotated[list[str], Field(min_length=1)]]
    invocations: list[_Invocation]
    rescored_from: str
    rescored_with: dict[str, str]


_ADAPTER = TypeAdapter(_Manifest)


def manifest_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return which field is not as lhkit writes it, and why; None if all are."""
    try:
        _ADAPTER.validate_python(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


# The files of a run folder: records, one line each, safe at any moment; and the manifest.
#
# One process at a time writes. A line is on the disk when `append` returns.


RECORDS = "records.jsonl"
MANIFEST = "manifest.json"
RESCORED_FROM = "rescored_from"
"""In a manifest: the records were computed from another run and can be computed again."""


_LOCK = "run.lock"


class Journal:
    """The records of one run folder, open for appending. Make one with `open_journal`."""

    def __init__(self, folder: Path, file: BinaryIO, found: tuple[SampleRecord, ...]) -> None:
        self.folder = folder
        self.found = found
        self._file = file
        self._fault: OSError | None = None

    def append(self, *records: SampleRecord | str) -> None:
        """Write records, a line each, and wait until they are on the disk.

        One that came as its line is written as it is.

        After a fault nothing more is taken: it would stand behind half a line, and be lost with it.

        Raises:
            RunError: the disk does not take it.
        """
        told = (each if isinstance(each, str) else encode_record(each) for each in records)
        lines = memoryview("".join(f"{masked(each)}\n" for each in told).encode())
        try:
            if self._fault is not None:
                raise self._fault
            while lines:  # a disk that is getting full takes a part
                lines = lines[self._file.write(lines) :]
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._fault = error
            raise _unwritable(self.folder, error) from error


@contextmanager
def open_journal(folder: Path, *, wait_s: float = 0.0, reads: bool = True) -> Iterator[Journal]:
    """Lock a run folder, read what is there, and open it for more.

    Args:
        folder: the run's.
        wait_s: for so long another process may have it.
        reads: False leaves the records that are there unread.

    Raises:
        RunError: another process uses the folder, it cannot be written, or a record is broken.
    """
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise RunError(
            f"{folder} is in use by another run: wait for its end, or give another name"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        lines = _whole_lines(folder)
        found = tuple(lines.records()) if reads else ()
        with _appending(folder, lines) as file:
            yield Journal(folder, file, found)
    finally:
        lock.release()


def _appending(folder: Path, lines: "_Lines") -> BinaryIO:
    """Open a file of records behind its last whole line.

    Unbuffered: what a full disk refuses must not be tried again when the file is closed.
    """
    size_bytes = lines.size_bytes
    try:
        file = open_to_append(lines.path)
        try:
            file.truncate(size_bytes)
        except OSError:
            file.close()
            raise
    except OSError as error:
        raise _unwritable(folder, error) from error
    return file


def read_records(folder: Path) -> tuple[SampleRecord, ...]:
    """Return the records of a run folder, oldest first; a half-written last one is left out.

    Raises:
        RunError: a line is no record; the message names it.
    """
    return tuple(_whole_lines(folder).records())


@dataclass(frozen=True, slots=True)
class _Lines:
    """The complete lines of a file of records, read when they are looked at."""

    path: Path

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self))

    def __iter__(self) -> Iterator[bytes]:
        if _is_there(self.path):
            with open_records(self.path) as file:
                yield from (line for line in file if line.endswith(b"\n"))

    def records(self) -> Iterator[SampleRecord]:
        for number, line in enumerate(self, start=1):
            yield record_of_line(line, f"{self.path}:{number}")


def _whole_lines(folder: Path) -> _Lines:
    _is_there(folder / RECORDS)
    return _Lines(folder / RECORDS)


def _is_there(path: Path) -> bool:
    """Return whether there is a file to read.

    Raises:
        RunError: there is something else, such as a pipe, which would be read for ever.
    """
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is no file: remove it or choose another folder")
    return path.exists()


def open_records(path: Path) -> BinaryIO:
    """Open a file of a run folder to read it.

    Raises:
        RunError: it cannot be read, or is no regular file, such as a pipe.
    """
    try:
        return open_regular(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}): remove it") from error


def record_of_line(line: bytes, where: str) -> SampleRecord:
    """Return the record of a line.

    Raises:
        RunError: it is none; the message says where it stands.
    """
    try:
        return decode_line(line)
    except OtherSchemaError as error:
        raise RunError(
            f"{where} was written by another version of lhkit ({error}): play it again under "
            "another name, or read it with that version"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{where} is no record of this version of lhkit ({error}): "
            "remove the line or give the run another name"
        ) from error


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a run folder; empty if there is none.

    Raises:
        RunError: the file is no JSON object, or a field is not as lhkit writes it.
    """
    path = folder / MANIFEST
    if not _is_there(path):
        return {}
    try:
        with open_records(path) as file:
            manifest = read_json(file.read())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON ({error}): remove it") from error
    if not isinstance(manifest, dict):
        raise RunError(f"{path} is no JSON object: remove it")
    if fault := manifest_fault(manifest):
        raise RunError(f"{path} is no manifest of lhkit ({fault}): mend or remove it")
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest in one step: a reader sees the old one or the new one.

    Raises:
        RunError: the disk does not take it.
    """
    text = masked(json.dumps(manifest, ensure_ascii=False, indent=2)) + "\n"
    try:
        write_whole(folder / MANIFEST, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_rescored(
    folder: Path, records: Iterable[SampleRecord], manifest: Mapping[str, Any]
) -> None:
    """Write the records that come from other runs, in place of earlier such ones.

    Raises:
        RunError: the folder holds records that were played, is in use, or cannot be written.
    """
    with open_journal(folder) as journal:
        if journal.found and RESCORED_FROM not in read_manifest(folder):
            raise RunError(f"{folder} holds a run that was played: give another folder with --into")
        write_manifest(folder, manifest)
        lines = (encode_record(record).encode() + b"\n" for record in records)
        try:
            write_whole(folder / RECORDS, lines)
        except OSError as error:
            raise _unwritable(folder, error) from error


def leave_only(
    folder: Path, is_kept: Callable[[SampleRecord], bool], *, wait_s: float = 0.0
) -> tuple[SampleRecord, ...]:
    """Leave only the newest record of each sample that is to be kept, and return those.

    The file is replaced in one step: nothing of the others stands in it any more.

    Raises:
        RunError: the folder is in use, cannot be written, or a record is broken.
    """
    with open_journal(folder, wait_s=wait_s) as journal:
        kept = tuple(record for record in answers(journal.found, {}) if is_kept(record))
        if len(kept) < len(journal.found):
            lines = (encode_record(record).encode() + b"\n" for record in kept)
            try:
                write_whole(folder / RECORDS, lines)
            except OSError as error:
                raise _unwritable(folder, error) from error
    return kept


def _unwritable(folder: Path, error: OSError) -> RunError:
    return RunError(f"{folder} cannot be written ({error}): choose another folder")


# What a run asked, as its manifest says, and how that differs from what another one asked. Pure.
#
# A question is a content hash (scenario, model, all that reaches it, version of lhkit: see
# `plan`). Hashes tell that two questions differ; the facts of the manifests tell why.


Manifest: TypeAlias = Mapping[str, Any]
_Key = TypeVar("_Key")
_Found = TypeVar("_Found")
Answered: TypeAlias = tuple[tuple[SampleId, str], bool]
"""Which question a record answers, by sample and content hash, and whether the answer is valid."""

_IDENTITY = ("model", "weights", "server", "dtype", "dialect", "constraint", "stress")
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASHED = frozenset({"prompt", "tools", "rendering", "texts", "context", "scenario"})
_HASH_CHARS = 12
_EARLIER_DTYPE = {"-", "bfloat16"}
"""A server of lhkit computed in nothing else before it told: the same question (see `plan`)."""


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


def asked_of(manifest: Manifest) -> Questions:
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
    return _chosen(
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


def _chosen(
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
    before: Manifest,
    after: Manifest,
) -> Resumption:
    """Return what a folder already holds of what is asked now.

    Args:
        asked: the content hash of each sample.
        found: what the records of the folder answer (`answered`).
        before: the manifest of the folder, before it is replaced.
        after: the facts of the present run.
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


def unsure_models(manifest: Manifest) -> tuple[str, ...]:
    """Return the models, with their addresses, whose weights may be others by now, unnoticed."""
    models = (each for each in manifest.get("models", ()) if each.get("base_url"))
    return tuple(
        f"{each.get('model')} ({each['base_url']})"
        for each in models
        if not each.get("weights_sha256")
    )


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
    users = [str(each.get("user", "script")) for each in (before, after)]
    yield from _change("user", users[0], users[1])
    versions = [each.get("versions", {}).get("lhkit", "") for each in (before, after)]
    yield from _change("lhkit", versions[0], versions[1])
    scenarios, others = (each.get("scenarios", {}) for each in (before, after))
    for scenario in others:
        yield from _change("scenario", scenarios.get(scenario, ""), others[scenario], scenario)


def _sent(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield what differs of who was asked, and of what was asked in all scenarios alike."""
    for what in _IDENTITY:
        told = [_values(each, "models", what) for each in (before, after)]
        if what != "dtype" or {*told} != _EARLIER_DTYPE:
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
    """Yield other tools, or the same in another order: of the tools, or of the words of a schema.

    Where both say the tools themselves, their hashes do not count: an older lhkit took others.
    """
    then, now = _asked(old), _asked(new)
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


def _asked(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools without what only tells how their success is claimed."""
    return [{k: v for k, v in tool.items() if k != "claims"} for tool in told.get("tools") or ()]


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


# The records of a run left on disk: read one at a time, when they are looked at.
#
# For runs that are too large to hold. A place in the file is all that is kept of a record.


class StoredRecords(Sequence[SampleRecord]):
    """Records by their places in a file. Make one with `stored_records`."""

    def __init__(self, path: Path, places: Iterable[int]) -> None:
        self._path = path
        self._places = array("Q", places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> SampleRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredRecords": ...
    def __getitem__(self, index: int | slice) -> "SampleRecord | StoredRecords":
        if isinstance(index, slice):
            return StoredRecords(self._path, self._places[index])
        return next(self._read([self._places[index]]))

    def __iter__(self) -> Iterator[SampleRecord]:
        return self._read(self._places)

    def _read(self, places: Iterable[int]) -> Iterator[SampleRecord]:
        with open_records(self._path) as file:
            for place in places:
                file.seek(place)
                yield record_of_line(file.readline(), f"{self._path} at byte {place}")


def stored_records(folder: Path, asked: Questions) -> StoredRecords:
    """Return the newest answers to the samples that were asked, a valid one before an invalid one.

    Args:
        folder: a finished run's.
        asked: the samples, in the order wanted.

    Raises:
        RunError: an answer is not there.
    """
    path = folder / RECORDS
    places, known = array("Q", bytes(8 * len(asked))), bytearray(len(asked))
    for (sample, question), is_valid, place in _answers(path):
        if asked.get(sample) != question:
            continue
        number = asked.place(sample)
        if is_valid or known[number] < _VALID:
            places[number], known[number] = place, _VALID if is_valid else _VALID - 1
    missing = known.find(0)
    if missing >= 0:
        raise RunError(
            f"{path} lost {list(asked)[missing]} while the run went on: leave the folder alone and "
            "give the same command again, which plays what is missing"
        )
    return StoredRecords(path, places)


_VALID = 2


def stored_answered(folder: Path) -> Iterator[Answered]:
    """Yield what `answered` does of the records of a folder, without holding one."""
    if (folder / RECORDS).exists():
        yield from ((question, is_valid) for question, is_valid, _ in _answers(folder / RECORDS))


def stored_answers(folder: Path, asked: Mapping[SampleId, str]) -> StoredRecords:
    """Return what `answers` returns of a run folder, left on disk.

    Raises:
        RunError: a line is no record; the message names it. What only a look at the whole record
            can tell is raised when it is looked at.
    """
    path = folder / RECORDS
    return StoredRecords(path, _chosen(_answers(path), asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """As much of a record as says which question it answers."""

    sample_id: SampleId
    content_hash: str
    judgement: _Verdict

    @property
    def answered(self) -> Answered:
        """As of `answered`."""
        key = (self.sample_id, self.content_hash)
        return key, self.judgement.verdict is not Verdict.INVALID


_ANSWER = TypeAdapter(_Answer)


def _answers(path: Path) -> Iterator[tuple[tuple[SampleId, str], bool, int]]:
    """Yield which question each line answers, whether it is a valid answer, and its place."""
    place = 0
    with open_records(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # half of it: a run that goes on, or was killed
                return
            try:
                key, is_valid = _ANSWER.validate_python(json.loads(line)).answered
            except (ValueError, RecursionError):  # says what is wrong, or reads it after all
                record = record_of_line(line, f"{path}:{number}")
                key, is_valid = next(answered([record]))
            yield key, is_valid, place
            place += len(line)


# What a run folder's `manifest.json` says: where the records come from. A value; no I/O.


_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What only the caller can know. `started_at` should have a time zone.

    `command` is the line that began the invocation, if one did. Before it, `setup_s` seconds went
    by until all was ready, and `server_s` more until a server had started for it; None if nobody
    took the time. `footprint` tells what the server has taken until now, as far as one can know.
    """

    started_at: datetime | None = None
    command: Sequence[str] = ()
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float | None = None
    server_s: float | None = None
    footprint: Callable[[], Footprint | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of `replay` on a folder; `ended_at` is None while it goes on, or was killed.

    `changes` are what is told otherwise than in the invocation before, where samples were asked
    anew.
    `remarks` are sentences on what nobody could know.
    `warmed_up` is how many prompt beginnings the server had read before the first sample. Of
    `wall_s` seconds, in `model_s` a request was open, and in `writing_s` more a record was written;
    `setup_s` and `server_s` were before (see `metrics.Spent`). `footprint` is what the server took,
    None where nobody could know any of it.
    """

    started_at: str | None = None
    ended_at: str | None = None
    concurrency: int = 1
    kept: int = 0
    played: int = 0
    invalid: int = 0
    finished: bool = False
    changes: Sequence[Change] = ()
    remarks: Sequence[str] = ()
    warmed_up: int = 0
    setup_s: float | None = None
    server_s: float | None = None
    wall_s: float = 0.0
    model_s: float = 0.0
    writing_s: float = 0.0
    footprint: Footprint | None = None


def manifest_of(
    facts: Mapping[str, Any], provenance: Provenance, invocations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest as plain JSON.

    Args:
        facts: of the plan: models, sampling, hashes of prompts, tools, scenarios and questions.
        provenance: what only the caller can know.
        invocations: oldest first, the present one last.
    """
    return {
        "schema": SCHEMA,
        "versions": versions(),
        "git_commit": provenance.git_commit,
        "command": list(provenance.command),
        "hardware": dict(provenance.hardware),
        **facts,
        "invocations": list(invocations),
    }


def earlier_invocations(manifest: Mapping[str, Any]) -> list[Any]:
    """Return the invocations that a folder's manifest tells of; empty if it tells none."""
    earlier = manifest.get("invocations", [])
    return earlier if isinstance(earlier, list) else []


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {
        "python": platform.python_version(),
        **{name: version_of(name) or "not installed" for name in _VERSIONS_OF},
    }
