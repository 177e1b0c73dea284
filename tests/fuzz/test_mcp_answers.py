"""Hostile answers of an MCP server."""

import pytest

from tests.fuzz.mcp_answers import NOT_OPENED, fuzz


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_hostile_answers_raise_nothing_hang_nothing_and_write_nothing() -> None:
    counts = await fuzz(400, 7)
    assert counts.total() - counts[NOT_OPENED] == 400
    assert {"ok", "tool_error", "handler_error", "bad_result", "cancelled"} <= counts.keys()
