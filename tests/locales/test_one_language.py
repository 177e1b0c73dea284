"""What a person reads is in one language: all messages of the code have a Korean text.

Messages are English in the code. The first tests compare the code with the table of translations,
so that a new English sentence is found before anybody reads it; the others look at the output.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lhkit
from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.parser import build_parser
from lhkit.lifehelper.locales import life_helper_catalog
from tests.cli.test_help import EXAMPLES, never
from tests.rows import check_rows

PACKAGE = Path(lhkit.__file__).parent
TABLES = tomllib.loads(
    files("lhkit.base.locales.messages").joinpath("ko.toml").read_text(encoding="utf-8")
)
KOREAN = {english: text for table in TABLES.values() for english, text in table.items()}
NOT_OF_OURS = ("typer", "libraries", "composed")
"""Tables with texts that the code of lhkit does not contain as they stand."""

OTHER_TEXTS = (Path(__file__).parent / "other_texts.txt").read_text(encoding="utf-8").splitlines()
"""English texts of the code that no person reads, or not as lhkit's: see the file."""
OTHER_FILES = {line.removeprefix("file ") for line in OTHER_TEXTS if line.startswith("file ")}

PROSE = re.compile(r"[A-Za-z][a-z'’-]+[,:;]? [a-z][a-z'’-]*")
NAMED = re.compile(r"\{[a-z_]+(?::[a-z]+)?\}")
LOGGERS = {"_log", "log", "logger"}
NOT_READ = {"AssertionError", "AttributeError", "KeyError", "NotImplementedError", "TypeError"}
"""Exceptions for developers."""


def template(node: ast.AST) -> str | None:
    """Return a text of the code with `{}` for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return NAMED.sub("{}", node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return NAMED.sub("{}", "".join(map(str, parts)))
    return None


def is_unread(node: ast.AST) -> bool:
    """Return whether no person reads the texts in a part of the code."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.keyword):
        return node.arg in {"description", "examples", "epilog"}
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id in NOT_READ or function.id == "command"
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id in LOGGERS or function.value.id == "re"
    return False


def texts(node: ast.AST) -> Iterator[str]:
    if is_unread(node):
        return
    text = template(node)
    if text is not None and PROSE.search(text):
        yield text
    parts = node.values if isinstance(node, ast.JoinedStr) else ast.iter_child_nodes(node)
    for part in parts:
        if not (isinstance(node, ast.JoinedStr) and isinstance(part, ast.Constant)):
            yield from texts(part)


@cache
def texts_of_code() -> dict[str, str]:
    """Return the prose in the code, with its file."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not any(name.startswith(other) for other in OTHER_FILES):
            found |= dict.fromkeys(texts(ast.parse(path.read_text(encoding="utf-8"))), name)
    return found


def line_of(text: str) -> str:
    """Return a text as it stands in `other_texts.txt`: in one line, the beginning of a long one."""
    return " ".join(text.split())[:100].strip()


@pytest.mark.longer
def test_messages_of_the_code_have_a_korean_text() -> None:
    known = {NAMED.sub("{}", english) for english in KOREAN}
    missing = {text: name for text, name in texts_of_code().items() if text not in known}
    unread = {line for line in OTHER_TEXTS if line and not line.startswith(("#", "file "))}
    unknown = [f"{missing[text]}: {text}" for text in missing if line_of(text) not in unread]
    assert unknown == [], "say them in Korean in lhkit/base/locales/messages/ko.toml"
    assert unread - {*map(line_of, missing)} == set(), "other_texts.txt lists what is gone"


@pytest.mark.longer
def test_korean_texts_belong_to_messages_of_the_code() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    words = re.sub(r'"\s*\n\s*f?"', "", source)
    gone = [
        english
        for name, table in TABLES.items()
        for english in table
        if name not in NOT_OF_OURS
        and NAMED.sub("{}", english) not in texts_of_code()
        and not all(part in words for part in re.split(r"\{\}|\n", english))
    ]
    assert gone == []


@check_rows("name", TABLES)
def test_korean_texts_have_the_values_of_the_message(name: str) -> None:
    for english, text in TABLES[name].items():
        if english == "[default: {}]":  # typer fills it in
            continue
        count = english.count("{}")
        used = {int(number) for number in re.findall(r"\{(\d+)\*?\}", text)}
        assert used <= {*range(count)}, english
        assert "{}" not in text, english
        assert re.search("[가-힣]", re.sub(r"\{\d\*?\}", "가", text)), english


PARSERS = {locale: build_parser(never, locale) for locale in ("en", "ko")}
USAGE = {
    "eval --nope": "그런 옵션은 없습니다: --nope",
    "nope": "'nope' 명령은 없습니다.",
    "compare": "'RUN_A' 인자가 없습니다.",
    "eval --limit": "'--limit' 옵션에는 값이 있어야 합니다.",
    "eval --limit x": "'--limit' 값이 올바르지 않습니다: 정수가 아닙니다",
    "eval --repeats 0": "'--repeats' 값이 올바르지 않습니다: 1 이상이어야 합니다",
    "eval --max-p95-turn 3": "'--max-p95-turn' 값이 올바르지 않습니다: '3'은(는) 시간이 아닙니다.",
    "eval --json=yes": "그런 옵션은 없습니다: --json",
    "eval --strict=yes": "그런 옵션은 없습니다: --strict",
    "lint --json=yes": "'--json' 옵션은 값을 받지 않습니다.",
    "lint --toolset=": "--toolset이(가) 비어 있습니다.",
}


@pytest.mark.longer
@check_rows(("line", "korean"), USAGE.items())
def test_usage_errors_are_in_one_language(line: str, korean: str) -> None:
    shown = CliRunner().invoke(PARSERS["ko"], line.split(), env={"COLUMNS": "200"})
    assert shown.exit_code == 2
    assert korean in shown.output
    *_, message = (row for row in shown.output.splitlines() if row.startswith("│"))
    assert english_in(message) == []
    english = CliRunner().invoke(PARSERS["en"], line.split(), env={"COLUMNS": "200"})
    assert not re.search("[가-힣]", english.output)


MESSAGES = [
    (
        UsageError("no locale 'fr': choose one of en, ko"),
        "언어 'fr'은(는) 없습니다. 다음 가운데 하나를 고르세요: en, ko",
    ),
    (
        MissingPackageError.of_extra("altair", "eval"),
        "altair이(가) 설치되어 있지 않습니다. `pip install 'lhkit[eval]'`로 설치하세요.",
    ),
    (
        MissingPackageError.of_extra("altair", "eval", otherwise="leave --ray out"),
        "altair이(가) 설치되어 있지 않습니다. "
        "`pip install 'lhkit[eval]'`로 설치하거나, leave --ray out.",
    ),
    (
        "turn 0: find was expected and not called",
        "0번 턴: find을(를) 불러야 하는데 부르지 않았습니다",
    ),
    (
        "turn 12: the reply does not match /a: (b|c)/",
        "12번 턴: 답이 /a: (b|c)/에 맞지 않습니다",
    ),
    (
        "all replies: the reply says 'not found'",
        "모든 답: 답에 있으면 안 되는 말이 있습니다: 'not found'",
    ),
    (
        "shop.yaml:3: must be one of a, b or a list: did you mean a?",
        "shop.yaml:3: 다음이어야 합니다: 다음 가운데 하나: a, b 또는 목록. a을(를) 찾으셨나요?",
    ),
    (
        "toolset shop.py:toolset: importing it failed at shop.py:3: SyntaxError: invalid syntax",
        "toolset shop.py:toolset: 임포트 실패(shop.py:3): SyntaxError: invalid syntax",
    ),
    (
        "toolset shop.py:Shop: calling Shop without arguments failed at shop.py:3: TypeError: a",
        "toolset shop.py:Shop: 인자 없이 Shop 부르기 실패(shop.py:3): TypeError: a",
    ),
    (
        "session: context() of the assistant failed at shop.py:3: KeyError: 1",
        "session: 어시스턴트의 context() 실패(shop.py:3): KeyError: 1",
    ),
    ("must be a text or a whole number", "다음이어야 합니다: 글 또는 정수"),
    (
        "c: the reply does not match /(a+)+$/: write a reply under gold.say",
        "c: 답이 /(a+)+$/에 맞지 않습니다: gold.say에 답을 쓰세요",
    ),
    (
        "s.toml: scenarios: must be one of dev, test, all or a list\ns.toml: user: unknown field",
        "s.toml: scenarios: 다음 가운데 하나여야 합니다: dev, test, all 또는 목록\n"
        "s.toml: user: 모르는 필드입니다",
    ),
    (
        "a.yaml:3: x.reply: is not a valid regular expression: unterminated",
        "a.yaml:3: x.reply: 올바른 정규식이 아닙니다: unterminated",
    ),
    ("{'a: b': 1} is too long", "{'a: b': 1}이(가) 너무 깁니다"),
    (
        "s.toml: name: unknown field: did you mean sample?\n"
        "s.toml: a: unknown field: did you mean b?",
        "s.toml: name: 모르는 필드입니다. sample을(를) 찾으셨나요?\n"
        "s.toml: a: 모르는 필드입니다. b을(를) 찾으셨나요?",
    ),
    # what a person wrote stays, even if it looks like a message of lhkit
    ("the reply lacks {}", "답에 {}이(가) 없습니다"),
    ("the reply lacks 'unknown field'", "답에 'unknown field'이(가) 없습니다"),
    ("tea or coffee: ready", "tea or coffee: ready"),
    ("Bitte warten: kein Platz. Ende", "Bitte warten: kein Platz. Ende"),
    ("카페인을 줄이자: no such thing\nzwei", "카페인을 줄이자: no such thing\nzwei"),
    ("", ""),
]


@check_rows(("message", "korean"), MESSAGES)
def test_translate_keeps_values_and_unknown_texts(message: object, korean: str) -> None:
    assert load_catalog("ko").translate(message) == korean
    assert load_catalog("en").translate(message) == str(message)


SIMPLE = [
    (english, text)
    for name, table in TABLES.items()
    for english, text in table.items()
    if name not in {"typer", "help", "composed"}
    and "\n" not in english
    and "}{" not in english  # two values side by side cannot be told apart
    and not english.startswith("{}: {}")  # nor a place before a value
]


@pytest.mark.longer
def test_messages_are_whole_after_a_place() -> None:
    """No other message takes the place, or a part of the message, for its value."""
    translate, place, wrong = load_catalog("ko").translate, "a.yaml:3: x.turns[0]: ", {}
    for english, text in SIMPLE:
        message, korean = english, text
        for number in range(english.count("{}")):
            value = f"'v{number}'"
            message = message.replace("{}", value, 1)
            korean = re.sub(rf"\{{{number}\*?\}}", value, korean)
        if (shown := translate(place + message)) != place + korean:
            wrong[message] = shown
    assert wrong == {}


@pytest.mark.longer
def test_translate_is_quick_on_long_messages() -> None:
    long = "a: b. c; " * 5_000
    assert load_catalog("ko").translate(long) == long


def english_in(text: str) -> list[str]:
    """Return runs of three English words, without quotations, names and options."""
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|<[^>]*>|\[[^\]]*\]|https?:\S+", "", text)
    return re.findall(r"\b[A-Za-z]?[a-z]+(?: [a-z]+){2,}\b", text)


def shown_help(command: str, locale: str) -> str:
    words = [*command.split(), "--help"]
    shown = CliRunner().invoke(PARSERS[locale], words, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    return "\n".join(line for line in lines if not re.match(r" (\$|사용법|Usage)", line))


@pytest.mark.longer
@check_rows("command", EXAMPLES)
def test_help_is_in_one_language(command: str) -> None:
    korean = shown_help(command, "ko")
    assert english_in(korean) == []
    assert "이 도움말을 보여 줍니다." in korean
    assert not re.search("[가-힣]", shown_help(command, "en"))


REPLACED = {
    "방언": "호출 형식",
    "표기법": "호출 형식",
    "기준 호출": "정답 기록",
    "정답 호출": "정답 기록",
    "거짓 완료 보고": "거짓 성공 보고",
    "도우미": "어시스턴트",
    "각본": "정해진 대본",
    "둘째÷첫째": "두 번째 ÷ 첫 번째",
    "끝 상태": "최종 상태",
    "묻지 않고 실행": "확인 없이 실행",
}
"""One Korean term for one thing: words that another one stands for."""


def korean_texts() -> Iterator[tuple[str, str]]:
    yield from (("messages", text) for text in KOREAN.values())
    yield from load_catalog("ko").texts.items()
    yield from life_helper_catalog("ko").texts.items()
    for page in (PACKAGE.parent / "docs").glob("*.ko.md"):
        yield page.name, re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)


def test_korean_texts_use_one_term_for_one_thing() -> None:
    used = [(where, word) for where, text in korean_texts() for word in REPLACED if word in text]
    assert used == []


def test_korean_texts_of_lhkit_are_in_one_style() -> None:
    style = re.compile(
        r"[가-힣](?:해요|에요|예요|어요|아요|워요|져요|와요|돼요|둬요)(?=[ .?!(:]|$)"
    )
    texts = {**load_catalog("ko").texts, **dict(enumerate(KOREAN.values()))}
    assert [text for text in texts.values() if style.search(text)] == []


def test_common_texts_know_no_domain() -> None:
    domain = re.compile("습관|카페인|habit|caffeine|tracker", re.IGNORECASE)
    for locale in ("ko", "en"):
        texts = load_catalog(locale).texts
        assert [key for key, text in texts.items() if domain.search(text)] == []
