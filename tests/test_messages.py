import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.conversation.tool_results import (
    MIN_RESULT_BYTES,
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    encode_tool_result,
    serialisable,
)
from tests.rows import check_rows

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=400)  # lone surrogates too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=5)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=30,
)
RESULTS = (
    st.builds(ToolOk, st.dictionaries(ANY_TEXT, VALUES, max_size=5))
    | st.builds(ToolErr, ANY_TEXT, ANY_TEXT)
    | st.builds(ToolErr, ANY_TEXT, st.text('가나다\\"\n', min_size=900, max_size=3000))
    | st.builds(ToolOk, st.fixed_dictionaries({"x": st.text("습관\u0001", min_size=900)}))
    | st.just(ToolCancelled())
)


@pytest.mark.longer
@example(result=ToolErr("not_found", "\ud800" * 500), max_bytes=300)
@example(result=ToolOk({"lone": "\udfff 습관"}), max_bytes=300)
@given(result=RESULTS, max_bytes=st.integers(MIN_RESULT_BYTES, 4096))
def test_encode_tool_result_is_valid_json_within_the_limit(
    result: ToolResult, max_bytes: int
) -> None:
    encoded = encode_tool_result(result, max_bytes)
    assert len(encoded.encode("utf-8")) <= max_bytes
    assert json.loads(encoded)["status"] in {"ok", "error", "cancelled"}


def test_encode_tool_result_replaces_large_data_by_the_hint() -> None:
    data = {"items": ["습관" * 10] * 100}
    size = len(
        json.dumps(
            {"status": "ok", "data": data}, ensure_ascii=False, separators=(",", ":")
        ).encode()
    )
    decoded = json.loads(encode_tool_result(ToolOk(data)))
    assert decoded["data"]["_truncated"] is True
    assert str(size) in decoded["data"]["_hint"]
    assert "single item" in decoded["data"]["_hint"]
    assert "_" not in decoded["data"]["_hint"]  # the name of no tool: which there are is unknown


def test_encode_tool_result_shortens_a_large_reason() -> None:
    encoded = encode_tool_result(ToolErr("not_found", "가" * 5000), 300)
    decoded = json.loads(encoded)
    assert decoded["code"] == "not_found"
    assert set(decoded["reason"]) == {"가"}
    assert 298 <= len(encoded.encode()) <= 300


@check_rows(
    "value",
    [float("nan"), {1, 2}, object(), b"x", {1: "int key"}, 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_encode_tool_result_of_data_that_is_not_json(value: Any) -> None:
    assert serialisable(ToolOk({"value": value})).__class__ is ToolErr
    assert json.loads(encode_tool_result(ToolOk({"value": value})))["code"] == "handler_error"


def test_encode_tool_result_of_a_cyclic_value() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert json.loads(encode_tool_result(ToolOk(loop)))["code"] == "handler_error"


def test_encode_tool_result_refuses_a_small_limit() -> None:
    with pytest.raises(ValueError, match="at least"):
        encode_tool_result(ToolCancelled(), 10)
