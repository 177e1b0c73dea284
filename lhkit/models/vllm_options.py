"""Which options the installed vLLM knows, so that a line for another version still starts.

vLLM ends at once on an option that it does not know, and its options change with every version. Its
help is read once and kept in lhkit's cache by version. Sources: `vllm serve --help=all` of 0.32;
`--help` alone prints everything before there was `--help=all`.
"""

import asyncio
import hashlib
import json
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lhkit.files import write_whole

ESSENTIAL = frozenset({"--model", "--host", "--port"})
"""Passed whatever the help says: without them there is no server to find."""
_SURE = frozenset({"--host", "--port", "--max-model-len", "--dtype"})
"""Options of every version: a text without them is no list of all options, as of a help that only
names groups, or took `all` for a word to search for."""

_HEADER = re.compile(r"^\s{1,8}(-{1,2}[A-Za-z\[].*)$", re.MULTILINE)
_NAME = re.compile(r"(?:^|,\s*)(--?(?:\[no-\])?[A-Za-z][\w-]*)")
_FAILS = "no help: the command fails"
"""Kept as well: the CPU build's `vllm` imports for long and then fails, each time."""
_HELP_LIMIT_S = 600.0
"""Against a hang only: importing vLLM takes half a minute on a slow disk."""


def options_in(help_text: str) -> frozenset[str] | None:
    """Return the long options that a help lists; None if it is no list of all.

    An option that the text of another one mentions does not count. Underscores count as hyphens,
    as in vLLM's own parser. `--x, --no-x` and `--[no-]x` are two options.
    """
    found = set[str]()
    for header in _HEADER.findall(help_text):
        invocation = re.split(r"\s{2,}", header, maxsplit=1)[0]
        for name in _NAME.findall(invocation):
            plain = name.replace("_", "-")
            found |= {plain.replace("[no-]", ""), plain.replace("[no-]", "no-")}
    return frozenset(found) if found >= _SURE else None


def fitted(
    words: Sequence[str], known: frozenset[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a line that a vLLM understands, and the options that were left out.

    An option goes with its values. Only a whole name counts: vLLM would take a shorter one for
    whichever longer option begins so. With `known` None nothing is left out.
    """
    kept: list[str] = []
    left_out: list[str] = []
    is_kept = True
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            is_kept = known is None or name in known or name in ESSENTIAL
            if not is_kept:
                left_out.append(name)
        if is_kept:
            kept.append(word)
    return tuple(kept), tuple(dict.fromkeys(left_out))


async def known_options(command: Sequence[str], cache_dir: Path) -> frozenset[str] | None:
    """Return the options that the vLLM behind `command` knows; None if it cannot be asked.

    Args:
        command: what starts it, up to its first option: `vllm serve` or `python -m …`.
        cache_dir: lhkit's cache.
    """
    program = await asyncio.to_thread(shutil.which, command[0])
    if program is None:
        return None
    key = hashlib.sha256(json.dumps([program, *command[1:], _version(program)]).encode())
    path = cache_dir / "vllm-options" / f"{key.hexdigest()[:16]}.txt"
    with suppress(OSError, UnicodeDecodeError):
        kept = path.read_text(encoding="utf-8")
        if (known := options_in(kept)) or kept == _FAILS:
            return known
    for question in ("--help=all", "--help"):
        text = await printed_by((program, *command[1:], question))
        if (known := options_in(text)) or (text == _FAILS and question == "--help"):
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, text.encode())
            return known
    return None


def _version(program: str) -> Sequence[object]:
    """Return what changes when another vLLM is installed, without the seconds of its import."""
    root = Path(program).parent.parent
    names = sorted(each.name for each in root.glob("lib*/python3*/*-packages/vllm*.dist-info"))
    if names:
        return names
    stat = Path(program).stat()
    return [stat.st_mtime_ns, stat.st_size]


async def printed_by(command: Sequence[str]) -> str:
    """Return what a command writes to standard output, "" if something else ended it."""
    variables = ("COLUMNS=500", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1")
    try:
        process = await asyncio.create_subprocess_exec(
            "env", *variables, *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError:
        return ""
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), _HELP_LIMIT_S)
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if (process.returncode or 0) > 0:
        return _FAILS
    return printed.decode(errors="replace") if process.returncode == 0 else ""
