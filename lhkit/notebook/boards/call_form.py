"""Reading and checking the form of a call on a board."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lhkit.base.locales import Catalog
from lhkit.confirm.form import Form, filled
from lhkit.notebook.boards.board import Press
from lhkit.notebook.boards.board_state import Correction
from lhkit.tools.validation import Accepted, ArgumentValidator


def read_form(form: Correction, press: Press, catalog: Catalog) -> tuple[Correction, Any]:
    """Return the form as it was filled in, with its errors, and the arguments."""
    names = {field.name: f"arg:{field.name}" for field in form.fields}
    typed = {
        name: None if key in press.nulls else press.fields.get(key, "")
        for name, key in names.items()
    }
    done = filled(Form(fields=form.fields), typed, catalog)
    say = press.fields.get("say", "")
    number = form.number + 1
    form = replace(form, number=number, typed=typed, say=say, error="", errors=done.errors)
    return form, done.values


def call_error(
    schemas: Mapping[str, Mapping[str, Any]], tool: str, args: Mapping[str, Any], catalog: Catalog
) -> str:
    """Return why a call is invalid; empty for a valid one."""
    schema = schemas.get(tool)
    if schema is None:
        return catalog.text("review.no_tool", tool=tool)
    verdict = ArgumentValidator(schema).check(dict(args))
    if isinstance(verdict, Accepted):
        names = ", ".join(verdict.extra)
        return catalog.text("review.unknown", names=names) if names else ""
    parts = (getattr(verdict, name, None) for name in ("field", "expected", "actual"))
    why = " · ".join(str(part) for part in parts if part)
    return catalog.text("review.refused", why=why)
