"""What a person would type: one or two lines under the help of each command.

A test asks for a line of each command and reads every line with the command's own parser, so that
a renamed option is noticed.
"""

from collections.abc import Mapping
from types import MappingProxyType

import typer

from lhkit.cli.typer_commands import named_commands

EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": (
            "lhkit eval --model gold",
            "lhkit chat --base-url http://127.0.0.1:8000",
            "lhkit eval --help",
        ),
        "eval": (
            "lhkit eval --limit 8",
            "lhkit eval mine.yaml --toolset mine.py:own --model gold",
            "lhkit eval --base-url http://127.0.0.1:8000 --fail-under 85",
            "lhkit eval --ray local --replicas 2",
        ),
        "chat": (
            "lhkit chat --locale en",
            "lhkit chat --toolset mine.py:own --record runs/chats",
            "lhkit chat --base-url http://127.0.0.1:8000 --model org/model",
        ),
        "chats": ("lhkit chats list", "lhkit chats forget --all"),
        "chats list": ("lhkit chats list runs/chats",),
        "chats show": ("lhkit chats show chat-20260615-120000",),
        "chats forget": (
            "lhkit chats forget chat-20260615-120000",
            "lhkit chats forget --all --in runs/chats",
        ),
        "serve": (
            "lhkit serve",
            "lhkit serve google/gemma-3-4b-it --dry-run",
            "lhkit serve --weights tuned/model",
            "lhkit serve --lora tuned",
        ),
        "mcp": ("lhkit mcp serve --toolset mine.py:own",),
        "mcp serve": (
            "lhkit mcp serve --toolset mine.py:own",
            "lhkit mcp serve --allow-writes --locale en",
        ),
        "doctor": (
            "lhkit doctor",
            "lhkit doctor --base-url http://127.0.0.1:8000 --dialect openai",
        ),
        "prompt": (
            "lhkit prompt --toolset mine.py:own",
            "lhkit prompt mine.yaml --scenario eggs-left --toolset mine.py:own --json",
        ),
        "matrix": ("lhkit matrix evals/smoke.toml",),
        "compare": ("lhkit compare runs/before runs/after --locale en",),
        "rescore": ("lhkit rescore runs/gemma-json --into runs/gemma-today",),
        "report": (
            "lhkit report runs/gemma-json",
            "lhkit report runs/gemma-json --junit junit.xml --markdown -",
        ),
        "export": (
            "lhkit export runs/gemma-json --inspect gemma.eval",
            "lhkit export runs/gemma-json --openai-messages chats.jsonl --parquet tables",
            "lhkit export runs/chats --otel http://127.0.0.1:4318",
            "lhkit export --sft train.jsonl --scenarios mine --held-out datasets/ac",
        ),
        "lint": (
            "lhkit lint datasets/ac/dev",
            "lhkit lint mine.yaml --toolset mine.py:own --json",
        ),
        "mutate": (
            "lhkit mutate datasets/ac/dev --fail-under 97",
            "lhkit mutate mine.yaml --toolset mine.py:own",
        ),
        "accept": (
            "lhkit accept runs/gemma-json SCENARIO#2 --turn 0 --call 0 --arg limit",
            "lhkit accept runs/gemma-json SCENARIO --phrase noted --dry-run",
        ),
        "import": ("lhkit import openai-messages chats.jsonl --into mine",),
        "import openai-messages": (
            "lhkit import openai-messages chats.jsonl --tools tools.json --into mine",
            "lhkit import openai-messages chats.json --handlers mine.py:own --into mine",
        ),
        "import bfcl": ("lhkit import bfcl .venv/lib/python3.11/site-packages --into bfcl",),
        "import tau": ("lhkit import tau ~/tau-bench --into tau",),
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


def _epilog(name: str) -> str:
    return "\n".join(f"$ {line}" for line in EXAMPLES.get(name, ()))
