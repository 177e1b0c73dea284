"""Descriptions of tools and arguments from docstrings."""

# ruff: noqa: ARG001 - the functions are registered and not called
import sys
from enum import Enum
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from lhkit.base.errors import RegistrationError
from lhkit.tools.docstrings import read_docstring
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

TO, TEXT = "Whom to write to: a name.", "내용 그대로."

STYLES = {
    "google": f"""Send a message.

        More of it.

        Args:
            to: Whom to write to:
                a name.
            text (str, optional): {TEXT}
            deps: The notes.
            *rest: More.

        Returns:
            What was sent.
        """,
    "google without a blank line": f"""Send
        a message.
        Arguments:
          to: {TO}
          text: {TEXT}
        """,
    "google after another section": f"""Send a message.

        Returns:
            text: not this one.

        args:
            to: {TO}
            text: {TEXT}
        """,
    "google for keywords": f"""Send a message.

        Args:
            to: {TO}

        Keyword Args:
            text: {TEXT}
        """,
    "numpy": f"""Send a message.

        Parameters
        ----------
        to : str
            {TO}
        text : str, optional
            {TEXT}

        Returns
        -------
        dict
            What was sent.
        """,
    "sphinx": f"""Send a message.

        :param to: Whom to write to:
            a name.
        :param str text: {TEXT}
        :type to: str
        :returns: What was sent.
        """,
    "sphinx without a blank line": f"""Send a message.
        :param to: {TO}
        :param text: {TEXT}
        """,
}


def schema(function: Any, **options: Any) -> tuple[str, dict[str, Any]]:
    registry = ToolRegistry()
    registry.tool(name="send", **options)(function)
    return registry["send"].description, dict(registry["send"].parameters["properties"])


@check_rows("doc", STYLES.values(), ids=list(STYLES))
def test_docstring_describes_the_parameters(doc: str) -> None:
    def send(to: str, text: str = "", deps: Any = None) -> dict[str, Any]:
        return {}

    send.__doc__ = doc
    description, properties = schema(send)
    assert description == "Send a message."
    assert {name: part.get("description") for name, part in properties.items()} == {
        "to": TO,
        "text": TEXT,
    }
    assert schema(send, description="Own.")[0] == "Own."


@check_rows(
    ("doc", "description"),
    [
        ("Send a\n   message.\n\nMore.", "Send a message."),
        ("Send: args: are not here.", "Send: args: are not here."),
        ("Send.\n\nNote:\n    Args: is no heading.", "Send."),
        ("Send.\nParameters: none.", "Send. Parameters: none."),
        ("보냅니다.\n\nArgs:\n없음", "보냅니다."),
        ("Send it (Args:).\n\nArgs:\n    nothing of that form", "Send it (Args:)."),
        ("Use ``:param``.", "Use ``:param``."),
        ("Ends with Args:", "Ends with Args:"),
    ],
)
def test_docstring_without_parameters_is_its_first_paragraph(doc: str, description: str) -> None:
    texts = read_docstring(doc)
    assert (texts.description, texts.parameters) == (description, {})


class Size(Enum):
    S = "s"


class Person(BaseModel):
    """A person."""

    name: str


def test_explicit_description_wins() -> None:
    def order(
        a: Annotated[str, "explicit"],
        b: Annotated[int, Field(ge=1, description="explicit")],
        f: Annotated[int | None, "explicit"],
        g: Annotated[str, "explicit"] | None,
        h: Annotated[str, Field(max_length=9)],
        i: Size,
        j: Person,
        c: int = Field(2, description="explicit"),
        d: int = 3,
        e: list[str] | None = None,
    ) -> dict[str, Any]:
        """Order.

        Args:
            a: doc
            b: doc
            c: doc
            d: doc
            e: doc
            f: doc
            g: doc
            h: doc
            i: doc
            j: doc
        """
        return {}

    _, properties = schema(order)
    explicit = {"a", "b", "c", "f"}
    assert {name: part.get("description") for name, part in properties.items()} == {
        **{name: "explicit" if name in explicit else "doc" for name in "abcdefhij"},
        "g": None,
    }
    assert properties["h"]["maxLength"] == 9
    assert properties["i"]["$ref"]
    assert [one.get("description") for one in properties["g"]["anyOf"]] == ["explicit", None]


def test_docstring_of_parameters_alone_is_no_description() -> None:
    def send(to: str) -> dict[str, Any]:
        """
        Args:
            to: whom
        """
        return {}

    with pytest.raises(RegistrationError, match="needs a docstring or description="):
        schema(send)
    assert schema(send, description="Send.")[1]["to"]["description"] == "whom"


def test_docstring_of_a_method_and_of_a_partial_is_read() -> None:
    class Shop:
        def sell(self, item: str, count: int) -> dict[str, Any]:
            """Sell.

            Args:
                self: not this
                item: what
                count: how many
            """
            return {}

    for function in (Shop().sell, partial(Shop().sell, count=1)):
        _, properties = schema(function)
        assert properties["item"]["description"] == "what"
        assert properties.get("count", {"description": "how many"})["description"] == "how many"


def test_docstring_parser_is_imported_only_if_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "griffe", None)
    assert read_docstring("Send.\n\nReturns:\n    what").description == "Send."
    with pytest.raises(ImportError):
        read_docstring(STYLES["sphinx"])


def test_docstring_of_an_unknown_parameter_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def send(to: str, deps: Any) -> dict[str, Any]:
        """Send.

        Args:
            too: whom
            deps: the notes
            **more: anything
        """
        return {}

    schema(send)
    assert [record.getMessage() for record in caplog.records] == [
        "tool 'send': the docstring describes 'too', which is no argument of it"
    ]
