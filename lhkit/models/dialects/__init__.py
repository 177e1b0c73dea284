"""How each Gemma family is spoken to. A new family is one file and one row here."""

from collections.abc import Mapping
from types import MappingProxyType

from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.functiongemma import FunctionGemmaDialect
from lhkit.models.dialects.gemma4 import Gemma4Dialect
from lhkit.models.dialects.json_dialect import JsonDialect
from lhkit.models.dialects.pythonic import PythonicDialect

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (JsonDialect(), PythonicDialect(), FunctionGemmaDialect(), Gemma4Dialect())
    }
)
"""Dialects by name."""

__all__ = ["DIALECTS", "Dialect"]
