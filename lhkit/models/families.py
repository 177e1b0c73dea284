"""The Gemma families: their name patterns, dialects and options of vLLM.

Server parsers are used only on request (for `--dialect openai`); otherwise lhkit renders prompts
and parses calls itself. Sources: vLLM 0.32's options; Gemma model cards (names, modalities).

The dialect of a served model is that of its family unless one is given (`served.connect`).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.conversation.responses import ModelIdentity

_TEMPLATE = Path(__file__).parent / "templates" / "gemma3_pythonic.jinja"
GEMMA_TURN = "<start_of_turn>"
"""What the chat templates of Gemma up to version 3 have."""

UNFIT = "dialect.unfit"
"""The text that a model's family does not know the dialect."""

_OPENAI = "openai"
_PROMPTED = frozenset({"json", "pythonic"})
"""The dialects that describe their format in the prompt."""
_SEPARATOR = "[-_. ]?"
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
        template_mark: text of its native format, which only its chat template has.
    """

    name: str
    pattern: str
    dialect: str
    serve_args: tuple[str, ...] = ()
    server_dialect: str = "pythonic"
    parser_args: tuple[str, ...] = _PYTHONIC
    template_mark: str = ""

    def fits(self, dialect: str) -> bool:
        """Return whether its models know a dialect, or can be prompted in it.

        Models without a tool format of their own can be prompted in any of lhkit's. `openai` fits
        always, because the server then renders the prompt.
        """
        return dialect in {self.dialect, _OPENAI} or {self.dialect, dialect} <= _PROMPTED


FAMILIES = (
    Family(
        name="FunctionGemma",
        pattern=rf"function{_SEPARATOR}gemma",
        dialect="functiongemma",
        template_mark="<start_function_declaration>",
        server_dialect="functiongemma",
        parser_args=(*_PARSED, "functiongemma"),
    ),
    Family(
        name="Gemma 4",
        pattern=rf"gemma{_SEPARATOR}4(?![\db])",  # not MedGemma 4B
        dialect="gemma4",
        template_mark="<|tool>",
        serve_args=("--language-model-only",),
        server_dialect="gemma4",
        parser_args=(*_PARSED, "gemma4", "--reasoning-parser", "gemma4"),
    ),
    Family(
        name="Gemma 3n",
        pattern=rf"gemma{_SEPARATOR}3n",
        dialect="json",
        serve_args=("--limit-mm-per-prompt", '{"image":0,"audio":0}'),
    ),
    Family(
        name="Gemma 3 (text only)",
        pattern=rf"gemma{_SEPARATOR}3[-_.: ](270m|1b)|^gemma$|gemma-base",
        dialect="json",
    ),
    Family(
        name="Gemma 3",
        pattern=rf"gemma{_SEPARATOR}3(?![\db])",  # not PaliGemma 3B, EmbeddingGemma 300M
        dialect="json",
        serve_args=("--language-model-only",),
    ),
)
"""The first row whose pattern matches a model's name applies."""


def family_of(model: str) -> Family | None:
    """Return the family of a model by its name; None for any other model.

    In a path or `org/model`, the last part counts first: a folder such as `gemma-4-tests` may
    contain other models.
    """
    lowered = model.casefold()
    for name in (lowered.rstrip("/").rpartition("/")[2], lowered):
        for family in FAMILIES:
            if re.search(family.pattern, name):
                return family
    return None


def template_family(template: str) -> Family | None:
    """Return the family whose native tool format a chat template has; None for any other."""
    for family in FAMILIES:
        if family.template_mark and family.template_mark in template:
            return family
    return None


def identity_family(identity: ModelIdentity) -> Family | None:
    """Return the family of a served model: of its weights, whose name is no alias, or its name."""
    return family_of(identity.weights) or family_of(identity.model)


def unfit_values(identity: ModelIdentity) -> dict[str, str]:
    """Return the values of the text `UNFIT`; none if the model's family knows its dialect.

    None also for an unknown family, and for a model without a dialect, such as a scripted one.
    """
    family = identity_family(identity) if identity.dialect else None
    if family is None or family.fits(identity.dialect):
        return {}
    return {
        "model": identity.model,
        "family": family.name,
        "dialect": identity.dialect,
        "fitting": family.dialect,
    }


def default_dialect(model: str | None, *, is_embedded: bool) -> str | None:
    """Return the dialect of a model by its name; None if only its server may know it.

    Args:
        model: its name; None for the only model of a server, or for the default embedded model.
        is_embedded: the model is one of lhkit's own, unless its name is that of another family.
    """
    family = family_of(model or "")
    if family is not None:
        return family.dialect
    return "json" if is_embedded and "/" not in (model or "") else None


CALL_FORMATS = {
    "functiongemma": re.compile(r"<start_function_call>"),
    "gemma4": re.compile(r"<\|tool_call>"),
    "pythonic": re.compile(r"```tool_(?:code|call)"),
    "json": re.compile(r'\A\s*(?:```(?:json)?\s*)?\{\s*"name"\s*:'),
    "<tool_call>": re.compile(r"<tool_call>"),
    "[TOOL_CALLS]": re.compile(r"\[TOOL_CALLS\]"),
}
"""How calls begin in a reply, by dialect or, for other families, by their first token."""


def call_formats(text: str) -> tuple[str, ...]:
    """Return the formats of which a reply seems to contain a call."""
    return tuple(name for name, pattern in CALL_FORMATS.items() if pattern.search(text))


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
