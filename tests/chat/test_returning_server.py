"""A chat whose server went away and came back at the same address."""

from contextlib import closing

import pytest

from lhkit import app
from lhkit.conversation.messages import ModelMessage
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.settings import load_settings
from tests.models.fake_vllm import FakeVllm, completion, streams

pytestmark = pytest.mark.anyio


@pytest.mark.longer
async def test_retry_succeeds_after_the_server_restarts() -> None:
    session_of_user = LIFE_HELPER.open_kept(None, now=load_settings().now, locale="ko")
    with closing(session_of_user) as session:
        async with FakeVllm() as server:
            model = await connect(Endpoint(base_url=server.base_url))
        chat = app.open_chat(model, session, None, "ko")
        await chat.user_turn("안녕")
        assert "다시 시도하세요" in (chat.state.error or "")
        async with FakeVllm(streams(completion(["반가워요"])), port=server.port):
            await chat.retry()
        await model.aclose()
        assert chat.state.error is None
        assert isinstance(chat.state.messages[-1], ModelMessage)
        assert chat.state.messages[-1].text == "반가워요"
