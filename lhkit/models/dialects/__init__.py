"""How each Gemma family is spoken to. A new family is one file and one row here."""

from collections.abc import Mapping
from types import MappingProxyType

from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.functiongemma import FUNCTIONGEMMA
from lhkit.models.dialects.gemma4 import GEMMA4
from lhkit.models.dialects.json import JsonDialect
from lhkit.models.dialects.pythonic import PythonicDialect

_ROWS: tuple[Dialect, ...] = (JsonDialect(), PythonicDialect(), FUNCTIONGEMMA, GEMMA4)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({row.name: row for row in _ROWS})
"""Dialects by name."""

__all__ = ["DIALECTS", "Dialect"]
