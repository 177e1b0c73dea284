"""The form of a corrected call: fields made from the schema, and back to arguments."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lhkit.confirm.form import (
    FieldKind,
    FormField,
    UnsupportedFormError,
    field_of,
    typed_as,
)
from lhkit.harness.reviews import Held
from lhkit.notebook.review_state import CorrectionForm, ReviewState

MENDING = frozenset({Held.SHOULD_BE, Held.CALL_MISSING})
ARG_FIELD = "arg:"
SAY_FIELD = "say"
TOOL_FIELD = "tool"


def new_form(
    state: ReviewState, held: Held, tool: str | None = None, *, number: int
) -> CorrectionForm:
    """Return a form for the place that is looked at, with the arguments that were given there."""
    label, call = state.labels.get(state.current), state.call
    say = label.say if label is not None else ""
    if held is Held.NOT_FINE:
        return CorrectionForm(number=number, held=held, tool="", values={}, say=say)
    made: tuple[str, Any] = ("", None) if call is None else (call.tool, call.raw_args)
    if label is not None and label.held is held:
        made = (label.tool, label.args)
    name = tool or made[0]
    if name not in state.schemas:
        name = next(iter(state.schemas), "")
    given = made[1] if name == made[0] and isinstance(made[1], Mapping) else {}
    fields = argument_fields(state.schemas.get(name, {}))
    values = {each.name: typed_as(each, given[each.name]) for each in fields if each.name in given}
    return CorrectionForm(number=number, held=held, tool=name, values=values, say=say)


def typed_in(fields: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the arguments' fields of a form, by name."""
    start = f"{number}:{ARG_FIELD}"
    return {key.removeprefix(start): text for key, text in fields.items() if key.startswith(start)}


def tool_in(fields: Mapping[str, str], number: int) -> str:
    """Return the tool that is chosen in a form."""
    return fields.get(f"{number}:{TOOL_FIELD}", "")


def words_in(fields: Mapping[str, str], number: int) -> str:
    """Return the better words that were written in a form."""
    return fields.get(f"{number}:{SAY_FIELD}", "").strip()


def argument_fields(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields for a call's arguments, by their names."""
    properties, needed = schema.get("properties"), schema.get("required")
    return tuple(
        _field(str(name), part, is_needed=isinstance(needed, list | tuple) and name in needed)
        for name, part in (properties if isinstance(properties, Mapping) else {}).items()
    )


def _field(name: str, part: Any, *, is_needed: bool) -> FormField:
    """Return the field for an argument; JSON text where no simple field can hold it."""
    try:
        return replace(field_of(name, part, is_needed=is_needed), title="")
    except UnsupportedFormError:
        about = part.get("description", "") if isinstance(part, Mapping) else ""
        return FormField(name=name, kind=FieldKind.JSON, about=str(about), is_needed=is_needed)
