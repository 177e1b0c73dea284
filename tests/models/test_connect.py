"""`lhkit.connect`: the keywords of a served model, and messages that speak of them."""

import traceback

import pytest

import lhkit
from lhkit.base.spelling import in_pytest, in_python, in_suite
from lhkit.models.client.transport import Clock, Endpoint
from tests.models.fake_vllm import FakeVllm
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


async def test_connect_takes_the_settings_of_a_model_as_keywords() -> None:
    async with FakeVllm() as server:
        model = await lhkit.connect(server.base_url)
        await model.aclose()
        name = model.identity.model
        model = await lhkit.connect(server.base_url, model=name, dialect="pythonic", api_key="key")
        await model.aclose()
        assert (model.identity.model, model.identity.dialect) == (name, "pythonic")
        again = Endpoint(base_url=server.base_url, dialect="json", api_key="key")
        model = await lhkit.connect(again, dialect="openai")
        await model.aclose()
        assert model.identity.dialect == "openai"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "other"}, "give one of these with model="),
        ({"dialect": "jsn"}, "Invalid dialect 'jsn'"),
        ({"constraint": "auto", "dialect": "openai"}, "Invalid constraint 'auto'"),
    ],
)
async def test_connect_speaks_of_its_keywords(given: dict[str, str], message: str) -> None:
    async with FakeVllm() as server:
        with pytest.raises(lhkit.LhkitError) as caught:
            await lhkit.connect(server.base_url, **given)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "--" not in str(caught.value)


async def test_connect_speaks_of_its_keywords_where_nothing_answers() -> None:
    with pytest.raises(lhkit.ModelError, match="base_url=") as caught:
        await lhkit.connect("http://127.0.0.1:9", clock=Clock(sleep=_no_sleep))
    assert "--" not in str(caught.value)


async def test_connect_shows_no_frames_of_a_library_where_nothing_answers() -> None:
    with pytest.raises(lhkit.ModelError) as caught:
        await lhkit.connect("http://127.0.0.1:9", clock=Clock(sleep=_no_sleep))
    shown = "".join(traceback.format_exception(caught.value))
    assert "aiohttp" not in shown
    assert shown.count("Traceback") == 1
    assert shown.count("  File ") == 2, "the caller's and lhkit's own"


async def _no_sleep(_: float) -> None:
    pass


@check_rows(
    ("text", "python", "pytest_text"),
    [
        ("give --dialect openai", 'give dialect="openai"', "give --lhkit-dialect openai"),
        ("leave --dialect out", "leave dialect= out", "leave --lhkit-dialect out"),
        ("give --constrain off", 'give constraint="off"', "give --lhkit-constrain off"),
        ("correct --base-url.", "correct base_url=.", "correct --lhkit-base-url."),
        ("with --model", "with model=", "with --lhkit-model"),
        ("correct LHKIT_API_KEY", "correct api_key=", "correct LHKIT_API_KEY"),
        ("a larger --max-model-len", "a larger --max-model-len", "a larger --max-model-len"),
        ("give --lhkit-model", "give --lhkit-model", "give --lhkit-model"),
        ("--served-model-name x", "--served-model-name x", "--served-model-name x"),
    ],
)
async def test_spelling_names_settings_where_they_are_typed(
    text: str, python: str, pytest_text: str
) -> None:
    assert in_python(text) == python
    assert in_pytest(text) == pytest_text


@check_rows(
    ("text", "suite"),
    [
        ("Choose one with --dialect: json.", "Choose one with `dialect`: json."),
        ("--dialect로 호출 형식을 고르세요: json", "`dialect`로 호출 형식을 고르세요: json"),
        ("--dialect openai를 주세요", '`dialect = "openai"`를 주세요'),
        (
            "Give --constrain off, or correct --base-url.",
            'Give `constraint = "off"`, or correct `base_url`.',
        ),
        (
            "--dialects, --models-dir and a--model stay",
            "--dialects, --models-dir and a--model stay",
        ),
    ],
)
def test_message_names_the_keys_of_a_suite(text: str, suite: str) -> None:
    assert in_suite(text) == suite
