"""What a server's log tells a person who waits: the stage of the start, and why it failed.

Reads the end of the file only, and never raises: a log that is not there yet tells nothing.
"""

import re
from pathlib import Path

_TAIL_BYTES = 128 * 1024
_READ_CHARACTERS = 1000
_LINE_CHARACTERS = 300

_STAGES = (
    ("Starting vLLM server on", "opening the port"),
    ("init engine (", "starting the API"),
    ("Dynamo bytecode transform", "compiling"),
    ("Compiling", "compiling"),
    ("KV cache size", "warming up"),
    ("Loading weights took", "setting up the KV cache"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Resolved architecture", "starting the engine process"),
    ("non-default args", "reading the model's config"),
)
_FIRST_STAGE = "loading libraries"

_PREFIX = re.compile(r"^\([\w.-]+ pid=\d+\)\s*|^[A-Z]+ \d\d-\d\d [\d:]+ \[[^]]*\]\s*")
_CAUSE = re.compile(r"(Error|Exception|Exit): \S|^Value error, |: error: ")
_HEARSAY = re.compile(  # says only that something else failed, earlier in the log
    r"See (root cause|stack trace)|EngineDeadError|resource_tracker|validation errors? for"
)


def last_stage(log_path: Path) -> str:
    """Return the last stage of the start that the log tells of."""
    for line in reversed(_tail(log_path)):
        for sign, stage in _STAGES:
            if sign in line:
                return stage
    return _FIRST_STAGE


def telling_line(log_path: Path) -> str:
    """Return the line that best says why the server ended: its last error, else its last line."""
    lines = [bare for line in _tail(log_path) if (bare := _bare(line[:_READ_CHARACTERS]))]
    causes = [line for line in lines if _CAUSE.search(line) and not _HEARSAY.search(line)]
    return (causes or lines or ["it said nothing"])[-1][:_LINE_CHARACTERS]


def _bare(line: str) -> str:
    """Return the line without the process and time that vLLM puts before it."""
    shorter = _PREFIX.sub("", line.strip())
    return shorter if shorter == line else _bare(shorter)


def _tail(log_path: Path) -> list[str]:
    try:
        with log_path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
