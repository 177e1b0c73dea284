"""Hostile answers of an MCP server, a few; many more by `python evals/fuzz/mcp_answers.py`."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "evals" / "fuzz" / "mcp_answers.py"


@pytest.mark.anyio
@pytest.mark.timeout(600)
@pytest.mark.promise("mcp.hostile")
async def test_hostile_answers_raise_nothing_hang_nothing_and_write_nothing() -> None:
    spec = importlib.util.spec_from_file_location("fuzz_mcp_answers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    came = await module.fuzz(400, 7)
    assert came.total() - came[module.NOT_OPENED] == 400
    assert {"ok", "tool_error", "handler_error", "bad_result", "cancelled"} <= came.keys()
