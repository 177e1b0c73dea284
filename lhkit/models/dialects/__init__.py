"""Dialects: the prompt and call format of each Gemma family, rendered and parsed without I/O.

- `base`: the abstract `Dialect`; `parser`: incremental parsing of one response.
- `json`, `pythonic`: lhkit's own protocols for models without a tool format (Gemma 3 and 3n), on
  the `turns` of Gemma 3.
- `functiongemma`, `gemma4`: native formats, those of the models' chat templates; `markup` has
  their tokens, `native_prompt` and `declaration` render prompts, `marked` parses responses.
- `values`: strings and values in text; `constraint`: grammars for constrained decoding.
- `training`: training data from conversations.

A new dialect is one module and one row in `_ALL`; a family that uses it is a row in
`lhkit.models.families`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.functiongemma import FUNCTIONGEMMA
from lhkit.models.dialects.gemma4 import GEMMA4
from lhkit.models.dialects.json import JsonDialect
from lhkit.models.dialects.pythonic import PythonicDialect

_ALL: tuple[Dialect, ...] = (JsonDialect(), PythonicDialect(), FUNCTIONGEMMA, GEMMA4)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in _ALL})
"""Dialects by name."""

__all__ = ["DIALECTS", "Dialect"]
