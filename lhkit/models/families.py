"""The Gemma families: their name patterns, dialects and options of vLLM.

Server parsers are used only on request (for `--dialect openai`); otherwise lhkit renders prompts
and parses calls itself. Sources: vLLM 0.32's options; Gemma model cards (names, modalities).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lhkit.base.errors import UsageError

_TEMPLATE = Path(__file__).parent / "templates" / "gemma3_pythonic.jinja"
_PARSED = ("--enable-auto-tool-choice", "--tool-call-parser")
_PYTHONIC = (*_PARSED, "pythonic", "--chat-template", str(_TEMPLATE))
"""vLLM's own pythonic template leaves out the commas of calls in the history; ours does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One Gemma family.

    Args:
        name: for people.
        pattern: regular expression for the names of its models.
        dialect: its default dialect.
        serve_args: options of vLLM that its models need.
        server_dialect: the dialect that the model writes if the server parses calls.
        parser_args: options of vLLM for parsing calls.
    """

    name: str
    pattern: str
    dialect: str
    serve_args: tuple[str, ...] = ()
    server_dialect: str = "pythonic"
    parser_args: tuple[str, ...] = _PYTHONIC


FAMILIES = (
    Family(
        name="FunctionGemma",
        pattern=r"function-?gemma",
        dialect="functiongemma",
        server_dialect="functiongemma",
        parser_args=(*_PARSED, "functiongemma"),
    ),
    Family(
        name="Gemma 4",
        pattern=r"gemma-?4",
        dialect="gemma4",
        serve_args=("--language-model-only",),
        server_dialect="gemma4",
        parser_args=(*_PARSED, "gemma4", "--reasoning-parser", "gemma4"),
    ),
    Family(
        name="Gemma 3n",
        pattern=r"gemma-?3n",
        dialect="json",
        serve_args=("--limit-mm-per-prompt", '{"image":0,"audio":0}'),
    ),
    Family(
        name="Gemma 3 (text only)", pattern=r"gemma-?3-(270m|1b)|^gemma$|gemma-base", dialect="json"
    ),
    Family(
        name="Gemma 3",
        pattern=r"gemma-?3",
        dialect="json",
        serve_args=("--language-model-only",),
    ),
)
"""The first row whose pattern matches a model's name applies."""


def family_of(model: str) -> Family | None:
    """Return the family of a model by its name; None for any other model."""
    lowered = model.casefold()
    return next((row for row in FAMILIES if re.search(row.pattern, lowered)), None)


def parser_args(model: str) -> tuple[str, ...]:
    """Return vLLM's options for parsing the calls of `model` on the server.

    Raises:
        UsageError: the name is not that of a Gemma family, so its format is unknown.
    """
    family = family_of(model)
    if family is None:
        raise UsageError(
            f"The Gemma family of {model} is unknown: leave --server-parser out and give vLLM its "
            "--tool-call-parser yourself."
        )
    return family.parser_args
