"""Write scenario files: matchers for exact values, state changes, YAML."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from lhkit.base.errors import UsageError
from lhkit.base.json_values import plain_json
from lhkit.base.locales import written_locale
from lhkit.harness.records.record import RowKeys, State
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.harness.scenarios.matchers import MATCHER_KEYS
from lhkit.harness.scoring.state import state_changes


def literal(value: Any) -> Any:
    """Return a matcher for exactly `value`; an object that looks like a matcher is wrapped."""
    is_ambiguous = isinstance(value, dict) and any(key in MATCHER_KEYS for key in value)
    return {"equals": value} if is_ambiguous else value


def value_of(matcher: Any) -> Any:
    """Return the value of a matcher that `literal` has returned."""
    is_wrapped = isinstance(matcher, dict) and matcher.keys() == {"equals"}
    return matcher["equals"] if is_wrapped else matcher


def literals(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return matchers for exactly the values of a row or of arguments."""
    return {name: literal(value) for name, value in fields.items()}


def expected_changes(before: State, after: State, row_keys: RowKeys) -> dict[str, Any]:
    """Return `final` (new or changed rows) and `gone` (deleted rows) by table, if not empty.

    Deleted rows are given by their key, or whole in a table without a key.
    """
    final: dict[str, Any] = {}
    gone: dict[str, Any] = {}
    for table, change in state_changes(before, after, row_keys=row_keys).items():
        new = sorted((*change.added, *(j for _, j in change.changed)))
        if new:
            final[table] = [literals(after[table][j]) for j in new]
        removed = [before[table][i] for i in change.removed]
        if removed:
            gone[table] = [
                literals({name: row[name] for name in change.key or row if name in row})
                for row in removed
            ]
    return {name: rows for name, rows in (("final", final), ("gone", gone)) if rows}


def detect_locale(lines: Sequence[str], locale: str) -> str:
    """Return `ko` or `en` by the script of the messages; any other locale is returned as it is."""
    if locale not in {"ko", "en"}:
        return locale
    return written_locale(lines)


def yaml_text(scenarios: Sequence[Mapping[str, Any]]) -> str:
    """Return a scenario file that loads as exactly these scenarios.

    Raises:
        UsageError: a text cannot be written, such as half a surrogate pair.
    """
    plain = plain_json(list(scenarios))
    try:
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the conversation is invalid: half a surrogate pair ({error.object[error.start]!a}) "
            "cannot be written to a file. Leave that character out"
        ) from error
    for is_quoted in (False, True):
        text = _dump(plain, is_quoted=is_quoted)
        document = read_yaml(text)
        if not document.issues and document.value == plain:
            return text
    raise UsageError("the conversation is invalid: it cannot be written as YAML. Shorten it")


def _dump(scenarios: Any, *, is_quoted: bool) -> str:
    """Return YAML without folded texts; with `is_quoted`, other than plain texts are escaped."""
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = sys.maxsize  # folding changes a text with spaces or tabs at the fold
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(_quote(scenarios) if is_quoted else scenarios, stream)
    lines = stream.getvalue().removesuffix("\n").split("\n")
    return "\n".join(line.removeprefix("  ") for line in lines) + "\n"


def _quote(value: Any) -> Any:
    """Return JSON whose texts are in double quotes, unless they are plain."""
    if isinstance(value, dict):
        return {_quote(key): _quote(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_quote(item) for item in value]
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return DoubleQuotedScalarString(value)
    return value


_PLAIN = re.compile(r"[\w.-]+(?: [\w.-]+)*")
