"""The native markup of FunctionGemma and Gemma 4: its tokens, its values and its calls.

Calls are `call:NAME{key:value}` with sorted keys and strings between two equal delimiter tokens,
everything else as in JSON. Control tokens are escaped here. `native_prompt` renders prompts,
`declaration` tools, `marked` parses responses.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.base.json_values import JSON, compact, plain_json
from lhkit.models.dialects.base import LONE_SURROGATE, replace_lone_surrogates
from lhkit.models.dialects.values import quoted

_BARE_KEY = re.compile(r"[\w.\-@$/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """The tokens of one family, and what its template declares; pairs are (start, end).

    Attributes:
        turn: of a turn.
        system_role: the role of the system turn.
        declaration: of a tool's declaration.
        call: of a call.
        response: of a result.
        quote: before and after a string.
        control: matches the `<` of every control token.
        thinking: all spellings of the start, and the end.
        sentence: ends the system text if there are tools, unless the instructions contain it.
        describes_every_property: a property without a description has an empty one.
        skips_standard_names: properties that are called like a keyword (`type`) are left out.
        declares_nullable: `nullable` is rendered.
        declares_responses: the schema of a result (`response` of a tool) is rendered.
        has_tool_role: the template reads results from messages of the role `tool`, and writes the
            text of a message before its calls; otherwise `tool_responses` of the model's message.
    """

    turn: tuple[str, str]
    system_role: str
    declaration: tuple[str, str]
    call: tuple[str, str]
    response: tuple[str, str]
    quote: str
    control: re.Pattern[str]
    thinking: tuple[tuple[str, ...], str] = ((), "")
    sentence: str = ""
    describes_every_property: bool = False
    skips_standard_names: bool = False
    declares_nullable: bool = True
    declares_responses: bool = True
    has_tool_role: bool = False

    def system_text(self, instructions: str, *, has_tools: bool) -> str:
        """Return the system text, with the family's sentence if there are tools."""
        lines = [instructions.strip()] if instructions.strip() else []
        if has_tools and self.sentence and not _contains(instructions, self.sentence):
            lines.append(self.sentence)
        return self.escape_control_tokens("\n".join(lines))

    def escape_control_tokens(self, text: str) -> str:
        """Return `text` without control tokens: `<escape>` becomes `< escape>`."""
        return self.control.sub("< ", replace_lone_surrogates(text))

    def render_object(self, members: Mapping[str, Any]) -> str:
        r"""Return an object as text that parses back to an equal one, with sorted keys.

        A string that contains a control token, such as the delimiter, is written in JSON quotes
        with `\u003c`; a key that is not a plain word is written as a string. Both are our
        extension of the format.

        Raises:
            NotJsonError: a value is not JSON.
        """
        return self.value(plain_json(members))

    def value(self, plain: Any, *, quotes_keys: bool = False) -> str:
        """Return a plain JSON value as text; `quotes_keys`: keys are written as strings."""
        if isinstance(plain, str):
            return self.string(plain)
        if isinstance(plain, dict):
            write_key = self.string if quotes_keys else self.key
            members = (
                f"{write_key(key)}:{self.value(item, quotes_keys=quotes_keys)}"
                for key, item in sorted_items(plain)
            )
            return "{" + ",".join(members) + "}"
        if isinstance(plain, list):
            return "[" + ",".join(self.value(item, quotes_keys=quotes_keys) for item in plain) + "]"
        return compact(plain)

    def key(self, key: str) -> str:
        """Return a key as a plain word, or as a string if it is none."""
        return key if _BARE_KEY.fullmatch(key) else self.string(key)

    def string(self, text: str) -> str:
        """Return a string between delimiters, or in JSON quotes if it has a control token."""
        if self.control.search(text) or LONE_SURROGATE.search(text):
            return quoted(text, self.control)
        return f"{self.quote}{text}{self.quote}"


def _contains(text: str, sentence: str) -> bool:
    """Return whether `text` contains a sentence, in any case and with any white space."""
    return sentence.casefold() in " ".join(text.casefold().split())


def sorted_items(members: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the items in the order of Jinja's `dictsort`, which ignores the case of keys."""
    return sorted(members.items(), key=lambda item: item[0].lower())


def render_call(markup: Markup, name: str, args: Mapping[str, JSON]) -> str:
    """Return the text of a call.

    Raises:
        NotJsonError: the arguments are not JSON.
    """
    start, end = markup.call
    return f"{start}call:{markup.escape_control_tokens(name)}{markup.render_object(args)}{end}"
