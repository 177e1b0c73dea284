"""The page that a soak writes: what was done, what was checked, what was found."""

from collections.abc import Mapping
from datetime import datetime

from log import Log


def page(log: Log, facts: Mapping[str, object], now: datetime) -> str:
    """Return the page as Markdown."""
    lines = [
        "# Soak: what was killed, and what was left whole",
        "",
        "A real `lhkit serve`, `lhkit eval` and `lhkit chat` (one or two on one database), all on",
        "127.0.0.1, with random SIGKILLs of each, interrupts, and a full disk under the run folder",
        "(`RLIMIT_FSIZE`). After every end of a process the laws below are checked.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        f"- written on {now:%Y-%m-%d %H:%M}",
        "",
        "| done | times |",
        "| --- | ---: |",
        *(f"| {what} | {count:,} |" for what, count in sorted(log.done.items())),
        "",
        "| checked | times | found |",
        "| --- | ---: | ---: |",
        *(_row(law, times, log) for law, times in sorted(log.checked.items())),
        "",
        "| memory of its own, at most | MiB |",
        "| --- | ---: |",
        *(f"| {whose} | {mib:,.0f} |" for whose, mib in sorted(log.peaks_mib.items())),
        "",
        "## Findings",
        "",
    ]
    found = [f"- after {each.at_s:.0f} s, {each.where}: {each.what}" for each in log.findings]
    return "\n".join([*lines, *(found or ["None."])]) + "\n"


def _row(law: str, times: int, log: Log) -> str:
    found = sum(each.what.startswith(f"{law}: ") for each in log.findings)
    return f"| {law} | {times:,} | {found} |"
