"""Import data sets of calls: what fine-tuners of small models train on and measure with.

Each row is played with the tools that it lists. Without recorded results one response is scored,
and nothing runs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import UsageError
from lhkit.imports.chat_files import ChatFile, RecordedChat, read_chat_file
from lhkit.imports.importers import Imported, Loss, Remark
from lhkit.imports.openai_messages import Source, convert_chats, slug_of
from lhkit.imports.row_shapes import FORMATS, OTHER_NAMES

_MAX_VALUES = 20
"""A key of the rows with more values does not become a tag, unless they are repeated."""


async def import_calls(
    files: Annotated[
        list[Path],
        typer.Argument(help="JSON, JSON Lines or Parquet files, or the folder of a data set."),
    ],
    *,
    split: Annotated[
        str | None, typer.Option(help="Import the rows of this split only, such as eval.")
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the option
        str | None,
        typer.Option(
            metavar="|".join(FORMATS), help="The format of the rows; recognised by default."
        ),
    ] = None,
) -> Imported:
    """Import rows of tool calls, one scenario each: mobile-actions, xLAM, ToolACE and others.

    Args:
        files: the files, or folders of data sets.
        split: the split of the rows; all by default.
        format: the shape of the rows (`row_shapes.SHAPES`).

    Raises:
        UsageError: a file or the split is missing or invalid, or there is no such format.
        MissingPackageError: Parquet files need pyarrow.
    """
    shape = None if format is None else OTHER_NAMES.get(format, format)
    if shape is not None and shape not in FORMATS:
        raise UsageError(f"Unknown format {format!r}: give one of {', '.join(FORMATS)}.")
    read = {file: read_chat_file(file, shape) for file in dict.fromkeys(files)}
    chats = [chat for source in read.values() for chat in source.chats]
    remarks = [_formats(chats)]
    if split is not None:
        remarks.append(_require_split(chats, split))
    kept = [chat for chat in chats if _is_of(chat, split)]
    dropped = _row_names(kept)
    losses = [
        *(Loss(code="comment", where=place) for file in read.values() for place in file.comments),
        *(Loss(code="metadata", where=name) for name in dropped),
    ]
    return await convert_chats(
        list(_sources(read, split, frozenset(dropped))),
        command="calls",
        is_data_set=True,
        losses=losses,
        remarks=remarks,
    )


def _is_of(chat: RecordedChat, split: str | None) -> bool:
    """Return whether a row is of a split; one that cannot be read may be."""
    return split is None or bool(chat.error) or chat.split == split


def _formats(chats: Sequence[RecordedChat]) -> Remark:
    """Return how many rows were read in each format."""
    counts = Counter(chat.shape or "?" for chat in chats if not chat.error)
    return Remark(
        code="formats", values={"formats": ", ".join(f"{k} {n:,}" for k, n in counts.items())}
    )


def _require_split(chats: Sequence[RecordedChat], split: str) -> Remark:
    """Return how many rows are of a split.

    Raises:
        UsageError: there are none.
    """
    counts = Counter(chat.split for chat in chats if not chat.error)
    if split not in counts:
        known = ", ".join(f"{name} ({n:,})" for name, n in counts.items() if name)
        advice = f"give one of {known}" if known else "the rows name none, so leave --split out"
        raise UsageError(f"No row is of the split {split!r}: {advice}.")
    values = {"split": split, "count": counts[split], "total": counts.total()}
    return Remark(code="split", values=values)


def _row_names(chats: Sequence[RecordedChat]) -> list[str]:
    """Return the keys whose values mostly name a single row, which are no use as tags."""
    values: dict[str, Counter[str]] = {}
    for chat in chats:
        for key, value in chat.metadata.items():
            values.setdefault(key, Counter())[value] += 1
    return [
        key
        for key, counts in values.items()
        if len(counts) > _MAX_VALUES and len(counts) > counts.total() / 2
    ]


def _sources(
    read: Mapping[Path, ChatFile], split: str | None, dropped: frozenset[str]
) -> Iterator[Source]:
    """Yield the rows of each file, under a name that no other file has."""
    taken: Counter[str] = Counter()
    for file, source in read.items():
        name = slug_of(file)
        taken[name] += 1
        rows = {
            number: replace(
                chat, metadata={k: v for k, v in chat.metadata.items() if k not in dropped}
            )
            for number, chat in enumerate(source.chats, start=1)
            if _is_of(chat, split)
        }
        yield Source(name=name if taken[name] == 1 else f"{name}_{taken[name]}", chats=rows)
