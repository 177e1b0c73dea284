"""The figures of `gpu.py` as JSON and as a page."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from figures import format_value

BUSY = 0.8
"""A process of one event loop that uses this share of a core is taken for the limit."""
CLOSE = 0.9
"""Share of the bare client's rate from which lhkit is not the limit."""
LEFT_OUT = "left out"
"""Begins the outcome of a step for which there was no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How a step ended."""

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One side at one concurrency: a result (`gpu_load.Load`) per process, and the server's use."""

    side: str
    at_once: int
    loads: Sequence[Mapping[str, Any]]
    server_cpu: Mapping[str, float] = field(default_factory=dict)
    card_percent: float | None = None

    @property
    def title(self) -> str:
        """The side, with the number of its processes if there are several."""
        return self.side if len(self.loads) == 1 else f"{self.side}, {len(self.loads)} processes"

    @property
    def seconds(self) -> float:
        """Time from the first start to the last end."""
        ended_s = max(load["ended_s"] for load in self.loads)
        return float(ended_s - min(load["began_s"] for load in self.loads))

    @property
    def cpu_share(self) -> float | None:
        """CPU time of the busiest process by its wall time; None if not measured."""
        shares = [
            load["cpu_s"] / (load["ended_s"] - load["began_s"])
            for load in self.loads
            if load["cpu_s"] is not None
        ]
        return max(shares, default=None)

    def total(self, name: str) -> int:
        """Sum a count over the processes."""
        return int(sum(load[name] for load in self.loads))

    def rate(self, name: str) -> float:
        """Return a count by second."""
        return self.total(name) / self.seconds

    def figures(self) -> dict[str, Any]:
        """Return everything, also what follows from it."""
        return {
            **asdict(self),
            "title": self.title,
            "seconds": self.seconds,
            "samples_per_s": self.rate("conversations"),
            "requests_per_s": self.rate("requests"),
            "output_tokens_per_s": self.rate("output_tokens"),
            "cpu_share": self.cpu_share,
        }


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that was measured so far."""

    command: str
    facts: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def row(self, side: str, at_once: int) -> Row | None:
        """Return the row of a side that runs in one process."""
        found = (r for r in self.rows if (r.title, r.at_once) == (side, at_once))
        return next(found, None)


def write(report: Report, folder: Path) -> None:
    """Write `gpu.json` and `gpu.md`."""
    figures = {**asdict(report), "rows": [row.figures() for row in report.rows]}
    text = json.dumps(figures, indent=1, ensure_ascii=False, default=str)
    (folder / "gpu.json").write_text(text + "\n", encoding="utf-8")
    (folder / "gpu.md").write_text("\n".join(page(report)) + "\n", encoding="utf-8")


def page(report: Report) -> Iterator[str]:
    """Yield the lines of the page."""
    facts = report.facts
    machine = facts.get("machine", {})
    yield "# lhkit on a graphics card" if "card" in facts else "# lhkit and its server"
    yield ""
    yield f"`{report.command}`"
    yield ""
    card = f"{facts['card']} · " if "card" in facts else ""
    yield (
        f"{card}{machine.get('cpu')}, {machine.get('cores')} cores, load "
        f"{machine.get('load')} before · Python {facts.get('python')} · "
        f"{facts.get('server', facts.get('vllm'))}"
    )
    yield ""
    if "serve" in facts:
        yield from block([facts["serve"]])
    if "start" in facts:
        yield from block(facts["start"])
    yield from scores(facts)
    yield from rates(report)
    yield "## Steps"
    yield ""
    if late := [step.name for step in report.steps if step.outcome.startswith(LEFT_OUT)]:
        yield f"Left out, for lack of time: {'; '.join(late)}."
        yield ""
    yield from table(
        ("step", "result", "seconds"),
        ((step.name, one_line(step.outcome), f"{step.seconds:.1f}") for step in report.steps),
    )


def scores(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scored run, and its pairs with another one."""
    if "dev" in facts:
        yield "## Scores"
        yield ""
        yield from block(facts["dev"].splitlines())
    if "compare" in facts:
        yield "## In pairs with the run on a CPU"
        yield ""
        found = facts["pairs"]
        yield (
            f"The same verdict in {found['same_verdict']} of {found['pairs']} conversations; in "
            f"{found['same_outputs']} all outputs are equal token by token."
        )
        yield ""
        yield from block(facts["compare"].splitlines())


def rates(report: Report) -> Iterator[str]:
    """Yield the tables of rates and latencies, and what limited them."""
    if not report.rows:
        return
    rows = sorted(report.rows, key=lambda row: row.at_once)
    yield "## Rates"
    yield ""
    yield from table(
        (
            "at once",
            "client",
            "conversations",
            "requests",
            "samples/s",
            "output tokens/s",
            "of bare · of vllm bench",
            "client's CPU",
            "server's CPU: API · engine",
            "card",
            "failed",
        ),
        (rate_cells(row, report) for row in rows),
    )
    yield (
        "`lhkit`: whole conversations by `replay`, with rules, scores and records on disk. `bare`: "
        "its requests again by aiohttp, conversation by conversation, with outputs of the same "
        "length, which are not read. `vllm bench`: the same list by `vllm bench serve`, which "
        "waits for no earlier request of a conversation. CPU: share of a core of the busiest "
        "process. Each begins with an empty prefix cache, if the server allows it."
    )
    yield ""
    yield "## Latency"
    yield ""
    yield from table(
        ("at once", "client", "TTFT p50 / p95 / p99", "user turn p50 / p95 / p99"),
        (
            (str(row.at_once), row.title, cut(row.loads[0]["ttft"]), cut(row.loads[0]["turn"]))
            for row in rows
            if len(row.loads) == 1
        ),
    )
    yield "## What limited lhkit"
    yield ""
    for at_once in sorted({row.at_once for row in rows}):
        yield f"- {at_once} at once: {limit(report, at_once)}"
    yield ""


def rate_cells(row: Row, report: Report) -> Iterator[str]:
    """Yield the cells of a row of the table of rates."""
    others = (report.row(side, row.at_once) for side in ("bare", "vllm bench"))
    yield str(row.at_once)
    yield row.title
    yield format_value(row.total("conversations"), "")
    yield format_value(row.total("requests"), "")
    yield format_value(row.rate("conversations"), "")
    yield format_value(row.rate("output_tokens"), "")
    yield " · ".join(percent(ratio(row, other)) for other in others)
    yield percent(row.cpu_share)
    yield " · ".join(percent(row.server_cpu.get(role)) for role in ("API", "engine"))
    yield "–" if row.card_percent is None else f"{row.card_percent:.0f} %"
    yield str(row.total("failed"))


def ratio(row: Row | None, other: Row | None) -> float | None:
    """Return a row's output tokens per second by those of another row."""
    if row is None or other is None or not other.total("output_tokens"):
        return None
    return row.rate("output_tokens") / other.rate("output_tokens")


def limit(report: Report, at_once: int) -> str:
    """Return what limited lhkit at a concurrency, judged by CPU shares and the bare client."""
    own, bare = report.row("lhkit", at_once), report.row("bare", at_once)
    share = ratio(own, bare)
    if own is None or bare is None or share is None:
        return "not known: lhkit and the bare client were not both measured"
    if at_once == 1:
        return alone(own, bare, share)
    cpu, bare_cpu, api = own.cpu_share or 0, bare.cpu_share or 0, bare.server_cpu.get("API", 0)
    why = f"{percent(share)} of the bare client's rate, CPU {percent(cpu)}"
    if share < CLOSE:
        if cpu >= BUSY:
            return f"**harness**: {why}"
        return f"**harness, but not its CPU**: {why}; its requests wait for something else"
    if bare_cpu >= BUSY:
        return f"**client**: {why}; the bare client uses {percent(bare_cpu)} of a core itself"
    if api >= BUSY:
        return f"**server**: {why}; its API process uses {percent(api)} of a core"
    return f"**server**: {why}"


def alone(own: Row, bare: Row, share: float) -> str:
    """Return what limited lhkit at one conversation at a time, judged by seconds lost.

    Nothing overlaps then: what the client does itself is added to the time of the server.
    """
    lost_ms, cpu_ms, bare_ms = (
        1000 * value
        for value in (
            own.seconds / own.total("conversations") - bare.seconds / bare.total("conversations"),
            *(
                sum(load["cpu_s"] for load in row.loads) / row.total("conversations")
                for row in (own, bare)
            ),
        )
    )
    side = "server" if share >= CLOSE else "harness"
    return (
        f"**{side}**: {percent(share)} of the bare client's rate; {lost_ms:.0f} ms a conversation "
        f"more than the bare client, with {cpu_ms:.0f} ms of CPU beside {bare_ms:.0f} ms"
    )


def table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a Markdown table and an empty line."""
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def block(lines: Sequence[str]) -> Iterator[str]:
    """Yield a block of console output and an empty line."""
    yield "```console"
    yield from (line.rstrip() for line in lines)
    yield "```"
    yield ""


def percent(share: float | None) -> str:
    """Return a share as text."""
    return "–" if share is None else f"{100 * share:.0f} %"


def cut(seconds: Mapping[str, float | None]) -> str:
    """Return percentiles in milliseconds."""
    values = (seconds.get(name) for name in ("p50", "p95", "p99"))
    shown = ["–" if value is None else f"{1000 * value:,.0f}" for value in values]
    return "–" if set(shown) == {"–"} else f"{' / '.join(shown)} ms"


def one_line(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")[-400:]


def without_progress(text: str) -> str:
    """Return console output without its progress bars."""
    bar = re.compile(r"\d%\|.*\|")
    return "\n".join(line for line in text.splitlines() if line.strip() and not bar.search(line))
