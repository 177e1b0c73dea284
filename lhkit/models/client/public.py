"""`lhkit.connect`: a served model in Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError
from lhkit.base.spelling import in_python, spelled
from lhkit.models.client import served
from lhkit.models.client.client import HttpModel
from lhkit.models.client.transport import Clock, Endpoint
from lhkit.models.decoding import Constraint


async def connect(
    endpoint: Endpoint | str,
    *,
    model: str | None = None,
    dialect: str | None = None,
    api_key: str | None = None,
    chat_template: Path | str | None = None,
    constraint: Constraint | None = None,
    clock: Clock | None = None,
) -> HttpModel:
    """Identify a server and return a model that uses it.

    Without a dialect it is that of the model's family, by name or chat template. For any other
    model the server is asked for a call: if it parses one, the dialect is `openai`. A dialect that
    the family does not know is used, and a warning is logged.

    Args:
        endpoint: the address of the server, or all of this as an `Endpoint`, whose values the
            keywords replace.
        model: the name under which it is served; None takes the only one.
        dialect: the format of tool calls: json, pythonic, functiongemma, gemma4, or openai, where
            the server parses them.
        api_key: sent as a bearer token.
        chat_template: file or folder of the model's chat template.
        constraint: how decoding is constrained: off, auto or required.
        clock: clock, sleep and random numbers; by default the real ones.

    Example:
        ```
        model = await lhkit.connect("http://127.0.0.1:11434", model="qwen3:8b", dialect="openai")
        ```

    Raises:
        UsageError: the dialect, the address or the constraint is invalid, or no dialect is given
            for an unknown model whose server does not parse calls.
        UnknownModelError: the server does not serve that model.
        ModelError: the server does not answer, or refuses.
    """
    given: dict[str, Any] = {
        "model": model,
        "dialect": dialect,
        "api_key": api_key,
        "chat_template": None if chat_template is None else Path(chat_template),
        "constraint": constraint,
    }
    endpoint = Endpoint(base_url=endpoint) if isinstance(endpoint, str) else endpoint
    changes = {name: value for name, value in given.items() if value is not None}
    try:
        with spelled(in_python):
            connected = await served.connect(replace(endpoint, **changes), clock=clock)
    except LhkitError as error:
        # a notebook would show 200 lines of the HTTP library, and the message last
        raise error.with_traceback(None) from None
    connected.spelling = in_python
    return connected
