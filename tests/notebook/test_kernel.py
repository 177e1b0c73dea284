"""A real kernel without a front end that clicks: an answer within three seconds, never a hang."""

from collections.abc import Iterator

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # zmq sockets closed by the collector
]

GATE = """
import time
from lhkit import ConfirmRequest
from lhkit.notebook import ButtonConfirmGate, demo_panel
gate = ButtonConfirmGate()
request = ConfirmRequest(tool="write", description="d", args={}, summary="s")
"""
ASK = """
begun = time.monotonic()
answer = await gate.confirm(request)
took = time.monotonic() - begun
print(bool(answer), gate.outcomes[-1], took < 60)
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=300)
        run(client, GATE)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: BlockingKernelClient, code: str, *, typed: str | None = None) -> str:
    """Run a cell and return its output; `typed` answers `input()`."""
    printed: list[str] = []

    def take(message: dict) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(
        code,
        allow_stdin=typed is not None,
        stdin_hook=lambda _message: client.input(typed or ""),
        output_hook=take,
        timeout=300,
    )
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


def test_kernel_cell_without_front_end_rejects(kernel: BlockingKernelClient) -> None:
    assert run(kernel, ASK) == "False nobody True\n"


def test_kernel_cell_with_stdin_asks_by_text(kernel: BlockingKernelClient) -> None:
    assert run(kernel, ASK, typed="y").startswith("True typed_yes")


def test_kernel_turn_without_front_end_writes_nothing(kernel: BlockingKernelClient) -> None:
    code = """
panel = demo_panel(pace_s=0)
begun = time.monotonic()
await panel.send("카페인 줄이는 습관을 추가해줘")
print(panel.state.items[-2].text, time.monotonic() - begun < 4)
"""
    assert run(kernel, code) == "알겠어요. 아무것도 하지 않았고, 바뀐 것도 없어요. True\n"


def test_kernel_interrupt_ends_a_question(
    kernel: BlockingKernelClient,
) -> None:
    code = """
import asyncio, os, signal
asyncio.get_running_loop().call_later(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
begun = time.monotonic()
try:
    await gate.confirm(request)
except BaseException as error:
    print(type(error).__name__, gate.outcomes[-1], time.monotonic() - begun < 1.5)
"""
    assert run(kernel, code) == "CancelledError interrupted True\n"
