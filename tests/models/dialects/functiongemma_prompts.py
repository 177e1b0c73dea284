"""FunctionGemma's prompts of the cases in `test_chat_templates`, written by its rules.

The checkpoint's `chat_template.jinja` is gated. Each text was derived by hand, with names and
values of our own, from one of two sources:

- PRINTED: prompts that Google's notebooks print (gemma-cookbook at e119e3d: the full calling
  sequence, and the fine-tuning for Mobile Actions). They show the developer turn with the sentence
  at its end, sorted properties, a description for each of them, no `properties` without arguments,
  `enum`, sorted arguments, several calls in a row, sorted plain results, and a reply in the open
  turn.
- PORT: BFCL's port of the template, which shows nested objects, `items`, the skipped names, and
  that no other keyword is rendered.

The third value is our own extension (docs/dialects.md).
"""

PRINTED, PORT, EXTENSION = "printed", "port", "closes the turn, unlike the template"

_SENTENCE = "You are a model that can do function calling with the following functions"
_ASKED = "<start_of_turn>user\n[now: 09:00]\n어디 있어?<end_of_turn>\n"
_MODEL = "<start_of_turn>model\n"
_RESULT = (
    "<start_function_response>response:look{b:{y:[],z:true},Items:[<escape>a<escape>,1.5],n:1}"
    "<end_function_response>"
)
_FOUND = _RESULT.replace("response:look", "response:find")
_AT = "description:<escape>Where.<escape>"
_STRING = "type:<escape>STRING<escape>"


def _call(body: str) -> str:
    return f"<start_function_call>call:{body}<end_function_call>"


def _declared(properties: str = "") -> str:
    inner = f"properties:{{{properties}}}," if properties else ""
    return (
        f"<bos><start_of_turn>developer\n{_SENTENCE}<start_function_declaration>declaration:look{{"
        f"description:<escape>Looks.<escape>,parameters:{{{inner}type:<escape>OBJECT<escape>}}}}"
        f"<end_function_declaration><end_of_turn>\n{_ASKED}{_MODEL}"
    )


def _said(body: str) -> str:
    return f"<bos>{_ASKED}{_MODEL}{body}"


PROMPTS: dict[str, tuple[str, str]] = {
    "system text": (
        f"<bos><start_of_turn>developer\nBe brief.<end_of_turn>\n{_ASKED}{_MODEL}",
        PRINTED,
    ),
    "tools, no system text": (_declared(f"at:{{{_AT},{_STRING}}}"), PRINTED),
    "a tool without arguments": (_declared(), PRINTED),
    "limits, pattern, default": (_declared(f"at:{{{_AT},{_STRING}}}"), PORT),
    "enum": (
        _declared(f"at:{{{_AT},enum:[<escape>a<escape>,<escape>b<escape>],{_STRING}}}"),
        PRINTED,
    ),
    "nested object": (
        _declared(
            f"at:{{{_AT},properties:{{x:{{{_AT},{_STRING}}}}},required:[<escape>x<escape>],"
            "type:<escape>OBJECT<escape>}"
        ),
        PORT,
    ),
    "array": (_declared(f"at:{{{_AT},items:{{{_STRING}}},type:<escape>ARRAY<escape>}}"), PORT),
    "an array without a description": (
        _declared(
            f"at:{{description:<escape><escape>,items:{{{_STRING}}},type:<escape>ARRAY<escape>}}"
        ),
        PORT,
    ),
    "a parameter called `type`": (
        _declared().replace(",parameters:{", ",parameters:{properties:{},"),
        PORT,
    ),
    "call": (_said(_call("look{a:<escape>x<escape>,b:1}") + _RESULT), PRINTED),
    "two calls": (_said(_call("look{a:1}") + _call("find{}") + _RESULT + _FOUND), PRINTED),
    "calls in two messages": (
        _said(
            f"{_call('look{a:1}')}{_RESULT}{_call('find{q:<escape>x<escape>}')}{_FOUND}"
            f"네<end_of_turn>\n{_ASKED}{_MODEL}"
        ),
        PRINTED,
    ),
    "result and reply": (
        _said(f"{_call('look{}')}{_RESULT}x<end_of_turn>\n{_ASKED}{_MODEL}"),
        PRINTED,
    ),
    "error": (
        _said(
            _call("look{}") + "<start_function_response>response:look{"
            "error:<escape>code: why<escape>}<end_function_response>"
        ),
        PRINTED,
    ),
    "cancelled call": (
        _said(
            _call("look{}") + "<start_function_response>response:look{"
            "cancelled:<escape>user did not confirm<escape>}<end_function_response>"
        ),
        PRINTED,
    ),
    "null": (_said(_call("look{a:null}") + _RESULT), PORT),
    "a text before a call": (_said("So." + _call("look{}") + _RESULT), PORT),
    "a user message after a result": (
        _said(f"{_call('look{}')}{_RESULT}<end_of_turn>\n{_ASKED}{_MODEL}"),
        EXTENSION,
    ),
}
"""Prompt and source by case."""
