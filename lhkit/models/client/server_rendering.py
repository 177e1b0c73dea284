"""Compare the prompts of lhkit with what a server renders by its own chat template."""

from lhkit.models.base import ModelRequest
from lhkit.models.client.call_probe import PROBE_MESSAGES, PROBE_TOOLS
from lhkit.models.client.chat_template import is_native, native_markup
from lhkit.models.client.client import HttpModel
from lhkit.models.client.request import chat_messages, chat_tools
from lhkit.models.dialects.prompt_diff import Place, prompt_differences
from lhkit.models.dialects.template import turn_messages


async def served_prompt(model: HttpModel, request: ModelRequest, prompt: str) -> str | None:
    """Return what a server renders of the request with lhkit's `prompt`; None if it cannot tell.

    Raises:
        ModelError: the server does not answer.
    """
    if not is_native(model.identity.dialect):
        return await model.prompt_of_server(turn_messages(prompt), ())
    markup = native_markup(model.identity.dialect)
    system = markup.system_text(request.instructions, has_tools=bool(request.tools))
    messages = chat_messages(request.messages, system)
    return await model.prompt_of_server(messages, chat_tools(request.tools))


async def probe_rendering(model: HttpModel) -> tuple[Place, ...] | None:
    """Return where a first request with a tool is rendered differently by the server.

    Returns:
        None if the server does not show how it renders a prompt.

    Raises:
        UsageError: the server renders the prompts of the dialect, or the template is invalid.
        ModelError: the server does not answer.
    """
    request = ModelRequest(
        messages=PROBE_MESSAGES[:1], tools=PROBE_TOOLS, instructions="Answer briefly."
    )
    prompt = await model.rendered_prompt(request)
    other = await served_prompt(model, request, prompt)
    return None if other is None else prompt_differences(prompt, other)
