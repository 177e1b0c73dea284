"""The embedded Gemma by a real llama.cpp that lhkit starts: what is its own.

What each runtime has to do is in `test_runtime_contract`.
"""

from importlib.metadata import version
from pathlib import Path

import pytest
import xllamacpp

from lhkit import app
from lhkit.base.errors import ModelError
from lhkit.base.files import file_sha256
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity, Sampling, TextDelta
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.prompts import instructions
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.serving.llama_cpp_server import ensure_gguf, gguf_sha256
from lhkit.settings import Settings
from lhkit.toolset import opened

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.timeout(600),
]

BOS_ID = 2
SPACED = "  두  칸   띄고\t\t탭\n\n\n줄바꿈 뷁 ㅋㅋㅋ 日本語"
MIXED = f"{SPACED} What habits do I have? 😀👩‍👩‍👧 café. 안녕! 카페인 줄이는 습관 찾아줘"
"""What tokenizers and their settings read differently, in one text."""


def request_of(text: str, max_tokens: int = 40, *, is_bare: bool = False) -> ModelRequest:
    """Return a request of life-helper; a bare one has no tools, which are most of a prompt."""
    return ModelRequest(
        messages=(UserMessage(text=text),),
        tools=() if is_bare else life_helper.registry_of("ko").definitions,
        instructions="비서" if is_bare else instructions("ko"),
        sampling=Sampling(max_tokens=max_tokens),
    )


async def answered(model: ChatModel, request: ModelRequest) -> tuple[list[str], Finished]:
    events = [each async for each in model.stream(request)]
    last = events[-1]
    assert isinstance(last, Finished)
    return [each.text for each in events if isinstance(each, TextDelta)], last


def _build() -> str:
    """Return the build as the wheel's version and its library tell it."""
    digest = file_sha256(Path(xllamacpp.xllamacpp.__file__))
    return f"xllamacpp-{version('xllamacpp')}-{digest[:12]}"


async def test_llama_cpp_identity_and_lifetime(light: Settings) -> None:
    async with app.open_model(app.ModelChoice(), light) as model:
        identity: ModelIdentity = model.identity
        assert identity.server == f"llama.cpp {_build()}"
        assert (identity.model, identity.weights) == ("gemma", "gemma-Q4_K_M.gguf")
        assert identity.dtype == "Q4_K - Medium"
        file = await ensure_gguf(light.cache_dir)
        assert identity.weights_sha256 == gguf_sha256(file)  # travels as an alias
        address = identity.base_url
    with pytest.raises(ModelError):
        await connect(address)


@pytest.mark.nightly
async def test_llama_cpp_reports_logprobs_of_calls(light_gemma: ChatModel) -> None:
    said = "물 마시기 찾아줘"
    with opened(LIFE_HELPER, {"now": "2026-06-15T09:00:00+09:00"}, "ko") as session:
        assistant = session.assistant
        request = ModelRequest(
            messages=(UserMessage(text=said, context=assistant.context(said)),),
            tools=session.registry.definitions,
            instructions=assistant.instructions,
            sampling=assistant.sampling,
            logprobs=True,
        )
    _, last = await answered(light_gemma, request)
    (call,) = last.calls
    assert call.min_logprob is not None
    assert call.mean_logprob is not None
    assert -10 < call.min_logprob <= call.mean_logprob <= 0
    assert last.notes == ()
