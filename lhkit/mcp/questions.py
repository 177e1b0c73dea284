"""Questions that a server asks while one of its tools runs."""

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import Any

from lhkit.confirm.form import DECLINED, FormAnswer, UnsupportedFormError, form_of
from lhkit.confirm.gate import ConfirmRequest, asked_in_the_midst
from lhkit.json_values import plain_json
from lhkit.locales import load_catalog

_log = getLogger(__name__)

_MOST_ASKED = 4_000


class Questions:
    """Who is asked what a server asks: the person of the call that runs now, else nobody."""

    def __init__(self) -> None:
        self._present: tuple[Any, asyncio.AbstractEventLoop, str] | None = None
        self.locale = "ko"
        self.name = ""

    async def during(self, tool: str, work: Any) -> Any:
        """Return what a call gives; what the server asks meanwhile is asked of its person."""
        self._present = (asked_in_the_midst(), asyncio.get_running_loop(), tool)
        try:
            return await work
        finally:
            self._present = None

    async def elicited(self, message: str, schema: Mapping[str, Any]) -> FormAnswer:
        """Return the answer of a person to a question of the server; a no where nobody is asked."""
        present, catalog = self._present, load_catalog(self.locale)
        if present is None or present[0] is None:
            return DECLINED
        try:
            form = form_of(schema, message, catalog)
        except UnsupportedFormError as error:
            _log.warning("%s: the form that it asked with is declined: %s", self.name, error)
            return DECLINED
        questions, loop, tool = present
        told = message if len(message) <= _MOST_ASKED else f"{message[:_MOST_ASKED]}…"
        request = ConfirmRequest(
            tool=tool,
            description=catalog.text("mcp.asks", server=self.name),
            args=plain_json(form.given),
            summary="\n".join(filter(None, [told, form.words])),
        )
        asked = asyncio.run_coroutine_threadsafe(questions.fill_in(request, form), loop)
        return await asyncio.wrap_future(asked)
