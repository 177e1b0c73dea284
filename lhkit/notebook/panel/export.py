"""Export a conversation as Markdown, as JSON, or as lines for a terminal."""

import json
import re
from typing import Any, assert_never

from lhkit.base.json_values import compact, plain_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.text import printable
from lhkit.chat.truth import claim_text, truth_lines
from lhkit.confirm.summary import pretty
from lhkit.conversation.messages import ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import result_to_dict
from lhkit.notebook.panel.markdown import is_active
from lhkit.notebook.panel.state import (
    BrokenItem,
    CardItem,
    ErrorItem,
    Item,
    OptInRequested,
    PanelState,
    TruthItem,
)


def to_markdown(state: PanelState, catalog: Catalog) -> str:
    """Return the conversation as Markdown.

    Data is fenced, and so are messages with HTML or images: the viewer may render them.
    """
    parts = [f"# {catalog.text('notebook.export_title')}"]
    parts += [part for item in state.items if (part := _markdown(item, catalog))]
    return "\n\n".join(parts) + "\n"


def _markdown(item: Item, catalog: Catalog) -> str:
    match item:
        case UserMessage(text=text):
            body = _quoted(_fenced(text) if is_active(text) else text)
            return f"**{catalog.text('notebook.role_user')}**\n\n{body}"
        case ModelMessage(text=text) | BrokenItem(text=text):
            body = _fenced(text) if is_active(text) else text
            return f"**{catalog.text('notebook.role_assistant')}**\n\n{body}"
        case ToolCallMessage(outcome=outcome):
            result = _fenced(_json_text(result_to_dict(outcome.result))) if outcome else ""
            name = _code(item.name or "?")
            return f"{name}\n\n{_fenced(_json_text(item.effective_args))}\n\n{result}".rstrip()
        case CardItem(request=request):
            parts = [_question(item, catalog, mark="**"), _fenced("\n".join(request.texts))]
            if item.reason:
                parts.append(
                    _quoted(_fenced(item.reason) if is_active(item.reason) else item.reason)
                )
            return "\n\n".join(parts)
        case SystemMessage(text=text):
            return f"*{text}*"
        case ErrorItem(text=text, detail=detail):
            return f"*{text}*\n\n{_fenced(detail)}" if detail else f"*{text}*"
        case TruthItem():
            return "  \n".join(map(_code, _truth(item, catalog)))
        case OptInRequested():
            return ""
        case _:
            assert_never(item)


def _question(item: CardItem, catalog: Catalog, mark: str = "") -> str:
    title = catalog.text("confirm.title" if item.form is None else "form.title")
    outcome = catalog.text(f"notebook.outcome_{item.outcome}") if item.outcome else "…"
    edited = f" · {catalog.text('confirm.edited')}" if item.proposed is not None else ""
    return f"{mark}{title}{mark} {outcome}{edited}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _code(text: str) -> str:
    return f"`{' '.join(printable(text).replace('`', ' ').split())}`"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _json_text(value: Any) -> str:
    return pretty(value) if isinstance(value, dict) else str(plain_or_repr(value))


def to_lines(state: PanelState, catalog: Catalog) -> list[str]:
    """Return the conversation in short, safe for a terminal."""
    lines = [line for item in state.items if (line := _line(item, catalog))]
    return [printable(line).replace("\n", "\n    ") for line in lines]


def _line(item: Item, catalog: Catalog) -> str:
    match item:
        case UserMessage(text=text):
            return f"{catalog.text('notebook.role_user')}: {text}"
        case ModelMessage(text=text) | BrokenItem(text=text):
            return f"{catalog.text('notebook.role_assistant')}: {text.rstrip()}"
        case ToolCallMessage(outcome=outcome):
            status = result_to_dict(outcome.result)["status"] if outcome else "…"
            status += f", {catalog.text('policy.ran')}" if item.is_unasked else ""
            return f"{item.name or '?'} {compact(plain_or_repr(item.effective_args))} → {status}"
        case CardItem(reason=reason):
            return f"{_question(item, catalog)}\n{reason}".rstrip()
        case SystemMessage(text=text):
            return text
        case ErrorItem(text=text, detail=detail):
            return f"{text}\n{detail}".rstrip()
        case TruthItem():
            return "\n".join(_truth(item, catalog))
        case OptInRequested():
            return ""
        case _:
            assert_never(item)


def _truth(item: TruthItem, catalog: Catalog) -> list[str]:
    """Return the lines of truth, and the mark of a reply that contradicts them."""
    lines = [line.text for line in truth_lines(item.calls, catalog)]
    return lines if item.claim is None else [*lines, claim_text(item.claim, catalog)]


def to_json(state: PanelState, catalog: Catalog) -> str:
    """Return the conversation as JSON text: the model and the items."""
    identity = state.identity
    document = {
        "model": identity.model if identity else "",
        "dialect": identity.dialect if identity else "",
        "messages": [entry for item in state.items if (entry := _entry(item, catalog))],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _entry(item: Item, catalog: Catalog) -> dict[str, Any]:
    match item:
        case UserMessage(text=text):
            return {"role": "user", "text": text}
        case ModelMessage(text=text, stopped=is_stopped):
            ending = "stopped" if is_stopped else "complete"
            return {"role": "assistant", "text": text, "ending": ending}
        case BrokenItem(text=text):
            return {"role": "assistant", "text": text, "ending": "broken"}
        case ToolCallMessage(outcome=outcome):
            return {
                "role": "tool",
                "tool": item.name,
                "arguments": plain_or_repr(item.effective_args),
                **({"proposed": plain_or_repr(item.args)} if item.is_edited else {}),
                "result": plain_or_repr(result_to_dict(outcome.result)) if outcome else None,
                "gate": str(outcome.gate) if outcome and outcome.gate else None,
                "raw": item.raw,
            }
        case CardItem(request=request, outcome=outcome):
            edit = {} if item.proposed is None else {"proposed": plain_or_repr(item.proposed)}
            words = {"user_message": item.reason} if item.reason else {}
            return {
                "role": "confirm",
                "tool": request.tool,
                "summary": request.summary,
                "details": request.details,
                "allowed": outcome is not None and outcome.is_allowed,
                "reason": str(outcome) if outcome else None,
                **({"arguments": plain_or_repr(request.args)} if edit else {}),
                **edit,
                **words,
            }
        case SystemMessage(text=text):
            return {"role": "system", "text": text}
        case ErrorItem(text=text, detail=detail):
            return {"role": "error", "text": text, "detail": detail}
        case TruthItem(calls=calls, claim=claim):
            lines = truth_lines(calls, catalog)
            return {
                "role": "truth",
                "text": "\n".join(_truth(item, catalog)),
                "calls": [str(line.kind) for line in lines],
                "false_claim": None if claim is None else claim.words,
            }
        case OptInRequested():
            return {}
        case _:
            assert_never(item)
