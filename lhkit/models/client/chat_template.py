"""A model's own chat template: read it, and render it with limits of time, memory and size.

A template comes with a model and is a program that anybody may have written. It runs in Jinja's
sandbox in a process of its own (`template_worker`), because only a process can be ended.
"""

import hashlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.base.files import installed_version, read_text_file
from lhkit.conversation.messages import Message
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import ToolSpec
from lhkit.models.dialects.marked import MarkedDialect
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.template import template_variables
from lhkit.models.families import Family, family_of, template_family

MAX_SECONDS = 10.0
MAX_CHARS = 4 << 20
"""Largest rendered prompt; a context of a million tokens is about as large."""
MAX_TEMPLATE_CHARS = 1 << 20
"""Largest template; those of models have some 20,000 characters."""

_WORKER = Path(__file__).with_name("template_worker.py")
_FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"
_LINE_CHARS = 12 * MAX_CHARS + 100  # a character is escaped as 12 at most
_OLD_FILE = "chat_template.json"
_TOOL_USE = "tool_use"


class _Worker:
    """A process that renders templates, started when it is first used. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Mapping[str, Any], max_seconds: float) -> Mapping[str, Any]:
        """Return the answer to a request; the process ends if it takes too long."""
        with self._lock:
            process = self._started()
            is_late = threading.Event()

            def end() -> None:
                is_late.set()
                process.kill()

            timer = threading.Timer(max_seconds, end)
            timer.daemon = True
            timer.start()
            line = ""
            sent, received = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
            try:
                sent.write(json.dumps(request) + "\n")
                sent.flush()
                line = received.readline(_LINE_CHARS)
            except OSError:  # it has ended
                pass
            finally:
                timer.cancel()
                if not line.endswith("\n"):
                    self._end()
            if line.endswith("\n"):
                answer: Mapping[str, Any] = json.loads(line)
                return answer
            if is_late.is_set():
                return {"error": f"it takes more than {max_seconds:g} s"}
            return {"error": "it needs too much memory"}

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            weakref.finalize(self, _end_process, self._process)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            _end_process(self._process)
        self._process = None


def _end_process(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not written yet has no reader
                stream.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A chat template that renders prompts of a native dialect.

    Attributes:
        text: the template.
        source: where it was read: a path or an address.
        now: the time for templates that ask for it, the same in all prompts.
        max_seconds: limit for rendering one prompt.
    """

    text: str
    source: str
    now: datetime
    max_seconds: float = MAX_SECONDS
    _worker: _Worker = field(default_factory=_Worker, repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """The hash of the text, and of the day for a template that asks for it."""
        day = f"{self.now:%Y-%m-%d}" if "strftime_now" in self.text else ""
        return hashlib.sha256(f"{self.text}{day}".encode()).hexdigest()

    @property
    def family(self) -> Family | None:
        """The family whose native tool format the template has; None for any other."""
        return template_family(self.text)

    def encode(
        self,
        dialect: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        instructions: str = "",
    ) -> str:
        """Return the whole prompt, as `Dialect.encode` does.

        Raises:
            UsageError: the dialect is none that a template renders, or as `render`.
        """
        markup = native_markup(dialect)
        variables = template_variables(markup, messages, tools, instructions)
        return self.render({**variables, "add_generation_prompt": True})

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text of the template for variables such as `messages` and `tools`.

        Raises:
            UsageError: the template is invalid, refuses the variables, or exceeds a limit.
        """
        day = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        request = {
            "template": self.text,
            "variables": {"bos_token": "<bos>", "eos_token": "<eos>", **variables},
            "now": day.isoformat(),
            "max_chars": MAX_CHARS,
        }
        answer = self._worker.ask(request, self.max_seconds)
        if error := answer.get("error"):
            raise UsageError(
                f"The chat template {self.source} is invalid: {str(error).rstrip('.')}. Correct "
                "it, or leave --chat-template out to use lhkit's own rendering."
            )
        return str(answer["text"])


def is_native(dialect: str) -> bool:
    """Return whether a dialect is a family's own format, which its chat template renders."""
    return isinstance(DIALECTS.get(dialect), MarkedDialect)


def native_markup(dialect: str) -> Markup:
    """Return the tokens of a native dialect.

    Raises:
        UsageError: the dialect is none that a template renders.
    """
    known = DIALECTS.get(dialect)
    if not isinstance(known, MarkedDialect):
        raise UsageError(
            f"The dialect {dialect} is not rendered by a chat template: json and pythonic are "
            "lhkit's own formats, and with openai the server renders the prompt. Leave "
            "--chat-template out, or give --dialect functiongemma or gemma4."
        )
    return known.markup


def require_template(path: Path, dialect: str | None) -> None:
    """Check a template before a server is started for it.

    Raises:
        UsageError: it cannot be read, or the dialect is none that a template renders.
        MissingPackageError: Jinja is not installed.
    """
    require_jinja()
    find_chat_template(path)
    if dialect is not None:
        native_markup(dialect)


def require_jinja() -> None:
    """Require the package that renders templates.

    Raises:
        MissingPackageError: it is not installed.
    """
    if installed_version("jinja2") is None:
        raise MissingPackageError.of_extra("Jinja2", "eval", otherwise="leave --chat-template out")


def read_chat_template(path: Path, now: datetime) -> ChatTemplate:
    """Return the template of a file, or of the folder of a model.

    Args:
        path: a template, a `tokenizer_config.json`, or a folder with one of them.
        now: the time for templates that ask for it.

    Raises:
        UsageError: there is none, or it cannot be read.
        MissingPackageError: Jinja is not installed.
    """
    require_jinja()
    text = find_chat_template(path)
    if text is None:
        raise UsageError(
            f"{path} has no chat template. Give a file, or a folder with {_FILE} or a {_CONFIG} "
            "that contains one."
        )
    return ChatTemplate(text=text, source=str(path), now=now)


def find_chat_template(path: Path) -> str | None:
    """Return the text of the template of a file or folder; None if there is none.

    Raises:
        UsageError: a file cannot be read, or is too large.
    """
    if path.is_dir():
        names = (_FILE, _OLD_FILE, _CONFIG)
        texts = (_read(path / name) for name in names if (path / name).is_file())
        return next(filter(None, texts), None)
    if not path.exists():
        raise UsageError(f"{path} does not exist: give a chat template or the folder of a model")
    return _read(path)


def folder_template(folder: Path) -> str:
    """Return the template in the folder of a model; empty if there is none to be read."""
    try:
        return (find_chat_template(folder) if folder.is_dir() else None) or ""
    except (UsageError, OSError):
        return ""


def folder_family(folder: Path) -> Family | None:
    """Return the family of the model in a folder, by its template or configuration."""
    if family := template_family(folder_template(folder)):
        return family
    try:
        config = json.loads(read_text_file(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return None
    kind = config.get("model_type") if isinstance(config, dict) else None
    return family_of(kind) if isinstance(kind, str) else None


def _read(path: Path) -> str | None:
    try:
        text = read_text_file(path)
        found = _in_config(json.loads(text)) if path.suffix == ".json" else text
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The chat template {path} cannot be read ({error}).") from error
    if found is not None and len(found) > MAX_TEMPLATE_CHARS:
        raise UsageError(
            f"The chat template {path} is invalid: it has more than {MAX_TEMPLATE_CHARS:,} "
            "characters."
        )
    return found


def _in_config(config: Any) -> str | None:
    """Return the template in a tokenizer's configuration; of several the one for tools."""
    value = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(value, list):
        named = {
            entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)
        }
        value = named.get(_TOOL_USE) or named.get("default")
    return value if isinstance(value, str) else None
