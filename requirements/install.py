"""Install a lock file with pip, in a few lines instead of hundreds; what goes wrong is shown whole.

`python requirements/install.py requirements/lock.txt [more words for pip …]`. On a terminal one
line says what is fetched now, and for how long already; elsewhere, as in the log of a CI job, there
is a line for each quarter of the packages and for each big download.
"""
# ruff: noqa: T201, TID251 - a script that prints and has a loop of its own, no package

import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path

_BIG_MB = 50
_PACKAGE = re.compile(r"(Collecting|Processing|Requirement already satisfied:) ")
_DOWNLOAD = re.compile(r"\s*Downloading ([^\s/]+?)-\d\S* \((\d+)\S* ([MG])B\)")
_CLEAR = "\r\033[K"


class Progress:
    """What pip is at, read from its own lines."""

    def __init__(self, count: int) -> None:
        """Begin with none of `count` packages."""
        self._count, self._begun = count, 0
        self._at, self._since_s = "", time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def read(self, line: str) -> None:
        """Take the next line of pip's."""
        if _PACKAGE.match(line):
            self._begun += 1
            self._go_on("", is_news=self._begun % max(1, self._count // 4) == 0)
        elif found := _DOWNLOAD.match(line):
            megabytes = int(found[2]) * (1000 if found[3] == "G" else 1)
            self._go_on(f": {found[1]}, {megabytes} MB", is_news=megabytes >= _BIG_MB)
        elif line.startswith("Installing collected packages"):
            self._go_on(" are here, unpacking them", is_news=True)

    def draw(self) -> None:
        """On a terminal, write the one line anew."""
        if self._is_terminal and self._at:
            seconds = int(time.monotonic() - self._since_s)
            waited = f" ({seconds} s)" if seconds else ""
            print(f"{_CLEAR}{self._at}{waited}", end="", flush=True)

    def end(self) -> None:
        """Leave no half a line behind."""
        if self._is_terminal:
            print(_CLEAR, end="", flush=True)

    def _go_on(self, what: str, *, is_news: bool) -> None:
        self._at = f"      {self._begun} of {self._count} packages{what}"
        self._since_s = time.monotonic()
        if is_news and not self._is_terminal:
            print(self._at, flush=True)
        self.draw()


async def install(lock: str, count: int, words: list[str]) -> int:
    """Install the `count` packages that the file pins; return pip's exit code."""
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "-r", lock]
    progress = Progress(count)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as faults:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *pip, *words, stdout=asyncio.subprocess.PIPE, stderr=faults
        )
        assert child.stdout is not None  # noqa: S101 - it was asked for
        line = b"begun"
        while line:
            try:
                line = await asyncio.wait_for(child.stdout.readline(), timeout=1)
            except TimeoutError:  # a long download says nothing until its end
                progress.draw()
            else:
                progress.read(line.decode(errors="replace"))
        progress.end()
        code = await child.wait()
        if code:
            faults.seek(0)
            sys.stderr.write(faults.read())
        return code


def main() -> int:
    """Install what the first word names; return pip's exit code."""
    lock, *words = sys.argv[1:]
    pins = re.findall(r"^[\w.-]+==", Path(lock).read_text(encoding="utf-8"), re.MULTILINE)
    try:
        return asyncio.run(install(lock, len(pins), words))
    except KeyboardInterrupt:  # pip heard it, too
        return 130


if __name__ == "__main__":
    sys.exit(main())
