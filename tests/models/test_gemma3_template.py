from typing import Any

import pytest

from lhkit.models.weights.weights import CHAT_TEMPLATE
from tests.rows import check_rows

BOS = "<bos>"

jinja2 = pytest.importorskip("jinja2", reason="comes with the embedded Gemma")


def render(*messages: tuple[str, Any], add_generation_prompt: bool = True) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(CHAT_TEMPLATE.read_text())
    return str(
        template.render(
            messages=[{"role": role, "content": content} for role, content in messages],
            bos_token=BOS,
            add_generation_prompt=add_generation_prompt,
        )
    )


CASES = {
    "one user turn": (
        [("user", " 안녕 ")],
        "<bos><start_of_turn>user\n안녕<end_of_turn>\n<start_of_turn>model\n",
    ),
    "system text opens the first user turn": (
        [("system", "s"), ("developer", "d"), ("user", "u")],
        "<bos><start_of_turn>user\ns\n\nd\n\nu<end_of_turn>\n<start_of_turn>model\n",
    ),
    "messages of one role share a turn": (
        [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")],
        (
            "<bos><start_of_turn>user\na\n\nb<end_of_turn>\n"
            "<start_of_turn>model\nc\n\nd<end_of_turn>\n"
            "<start_of_turn>user\ne<end_of_turn>\n<start_of_turn>model\n"
        ),
    ),
    "a tool message is user text": (
        [("user", "a"), ("assistant", "call"), ("tool", "result")],
        (
            "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\ncall<end_of_turn>\n"
            "<start_of_turn>user\nresult<end_of_turn>\n<start_of_turn>model\n"
        ),
    ),
    "parts are joined by lines, and no content is no text": (
        [("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), ("user", None)],
        "<bos><start_of_turn>user\na\nb<end_of_turn>\n<start_of_turn>model\n",
    ),
    "an empty conversation": ([], "<bos><start_of_turn>model\n"),
}


@pytest.mark.longer
@check_rows("case", CASES)
def test_gemma3_template_renders_conversations(case: str) -> None:
    messages, expected = CASES[case]
    assert render(*messages) == expected


def test_gemma3_template_closes_the_last_turn_without_generation_prompt() -> None:
    assert render(("user", "a"), add_generation_prompt=False).endswith("a<end_of_turn>\n")


def test_gemma3_template_escapes_markup_in_messages() -> None:
    assert "{{ bos_token }} & <b>" in render(("user", "{{ bos_token }} & <b>"))
