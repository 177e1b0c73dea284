"""How each Gemma family is spoken to. A new family is one file and one row here."""

from collections.abc import Mapping
from types import MappingProxyType

from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.json_dialect import JsonDialect

DIALECTS: Mapping[str, Dialect] = MappingProxyType({"json": JsonDialect()})
"""Dialects by name."""

__all__ = ["DIALECTS", "Dialect"]
