"""Check the `format`s of JSON Schema that the standard library can check.

These are `date` (YYYY-MM-DD), `date-time` and `time` (ISO 8601; seconds and offset may be left
out, since models write local time), `uuid`, `ipv4`, `ipv6`. Other formats (`email`, `uri`,
`duration`, …) tell the model something and are checked nowhere: use a pattern, the tool's `check`,
or check in the handler.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address

from lhkit.tools.json_schema import FormatChecker

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
_TIME = re.compile(_HOUR)
_MOMENT = re.compile(rf"{_DAY.pattern}[Tt ]{_HOUR}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

FORMS = {
    "date": "YYYY-MM-DD",
    "date-time": "YYYY-MM-DDTHH:MM:SS",
    "time": "HH:MM:SS",
    "uuid": "8-4-4-4-12 hexadecimal digits",
    "ipv4": "such as 192.0.2.1",
    "ipv6": "such as 2001:db8::1",
}

_READERS: Mapping[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "date": (_DAY, date.fromisoformat),
    "date-time": (_MOMENT, lambda text: datetime.fromisoformat(text.upper())),
    "time": (_TIME, lambda text: time.fromisoformat(text.upper())),
    "uuid": (_UUID, str),
    "ipv4": (re.compile(r"[0-9.]+"), IPv4Address),
    "ipv6": (re.compile(r"[0-9a-fA-F:.]+"), IPv6Address),
}


def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())

    def add(name: str, form: re.Pattern[str], read: Callable[[str], object]) -> None:
        def is_so(value: object) -> bool:
            return not isinstance(value, str) or (
                form.fullmatch(value) is not None and read(value) is not None
            )

        checker.checks(name, raises=ValueError)(is_so)

    for name, (form, read) in _READERS.items():
        add(name, form, read)
    return checker


FORMATS = _format_checker()
