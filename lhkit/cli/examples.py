"""What a person would type: one or two lines under the help of each command.

A test asks for a line of each command and reads every line with the command's own parser, so that
a renamed option is noticed.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import typer
from typer.models import CommandInfo

EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": (
            "lhkit eval --model gold",
            "lhkit chat --base-url http://127.0.0.1:8000",
            "lhkit eval --help",
        ),
        "eval": (
            "lhkit eval --limit 8",
            "lhkit eval mine.yaml --environment mine.py:own --model gold",
            "lhkit eval --base-url http://127.0.0.1:8000 --fail-under 85",
        ),
        "chat": (
            "lhkit chat --locale en",
            "lhkit chat --base-url http://127.0.0.1:8000 --model org/model",
        ),
        "serve": (
            "lhkit serve",
            "lhkit serve google/gemma-3-4b-it --dry-run",
            "lhkit serve --weights tuned/model",
        ),
        "doctor": (
            "lhkit doctor",
            "lhkit doctor --base-url http://127.0.0.1:8000 --dialect openai",
        ),
        "audit": ("lhkit audit runs/gemma-json",),
        "matrix": ("lhkit matrix evals/smoke.toml",),
        "compare": ("lhkit compare runs/before runs/after --locale en",),
        "rescore": ("lhkit rescore runs/gemma-json --into runs/gemma-today",),
        "report": (
            "lhkit report runs/gemma-json",
            "lhkit report runs/gemma-json --junit junit.xml --markdown -",
        ),
        "lint": (
            "lhkit lint datasets/ac/dev",
            "lhkit lint mine.yaml --environment mine.py:own --json",
        ),
        "mutate": (
            "lhkit mutate datasets/ac/dev --fail-under 97",
            "lhkit mutate mine.yaml --environment mine.py:own",
        ),
        "accept": (
            "lhkit accept runs/gemma-json SCENARIO#2 --turn 0 --call 0 --arg limit",
            "lhkit accept runs/gemma-json SCENARIO --phrase noted --dry-run",
        ),
        "data-check": ("lhkit data-check --warnings",),
        "tune": (
            "lhkit tune data --out data/train.jsonl",
            "lhkit tune train data/train.jsonl --into tuned",
            "lhkit tune merge tuned/adapter --into tuned/model",
        ),
        "tune init": ("lhkit tune init --environment mine.py:own --out own.yaml",),
        "tune data": (
            "lhkit tune data --out data/train.jsonl --count 6000 --seed 1",
            "lhkit tune data --environment mine.py:own --phrases own.yaml --out own.jsonl",
        ),
        "tune train": (
            "lhkit tune train data/train.jsonl --into tuned --steps 300",
            "lhkit tune train more.jsonl --from tuned/adapter --into tuned-2 --steps 100",
        ),
        "tune merge": ("lhkit tune merge tuned/adapter --into tuned/model",),
        "tune life-helper": ("lhkit tune life-helper --into runs/tune",),
    }
)
"""Examples by command; "" is `lhkit` itself."""


def show_examples(cli: typer.Typer) -> None:
    """Put the examples under the help of `cli`, its groups and all of their commands."""
    cli.info.epilog = _epilog("")
    for name, command in named_commands(cli):
        command.epilog = _epilog(name)
    for group in cli.registered_groups:
        group.epilog = _epilog(str(group.name))


def named_commands(cli: typer.Typer, prefix: str = "") -> Iterator[tuple[str, CommandInfo]]:
    """Yield every command with its full name, such as `tune data`."""
    for command in cli.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        yield f"{prefix}{name}", command
    for group in cli.registered_groups:
        if group.typer_instance is not None:
            yield from named_commands(group.typer_instance, f"{prefix}{group.name} ")


def _epilog(name: str) -> str:
    return "\n".join(f"$ {line}" for line in EXAMPLES.get(name, ()))
