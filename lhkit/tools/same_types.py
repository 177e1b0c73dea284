"""Compare annotations and defaults, to reuse what was derived from them."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo

_SCALARS = (str, int, float, bool, bytes, type(None))
_LIBRARIES = ("annotated_types", "pydantic.")


def is_same_type(one: Any, other: Any) -> bool:
    """Return True if two annotations, or defaults, certainly mean the same; False if unknown."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if get_origin(one) is not None:
        return get_origin(one) is get_origin(other) and _are_same(_parts(one), _parts(other))
    if isinstance(one, _SCALARS):
        return repr(one) == repr(other)  # 0.0 is not -0.0
    if isinstance(one, list | tuple):
        return _are_same(one, other)
    if isinstance(one, Mapping):
        return _are_same([*one.items()], [*other.items()])
    if isinstance(one, FieldInfo):
        return _are_same(*(_set_attributes(field) for field in (one, other)))
    is_known = type(one).__module__.startswith(_LIBRARIES) and is_dataclass(one)
    return is_known and _are_same(*([getattr(x, f.name) for f in fields(x)] for x in (one, other)))


def _parts(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Annotated:
        return (hint.__origin__, *hint.__metadata__)
    return get_args(hint)


def _set_attributes(field: FieldInfo) -> list[Any]:
    """Return what `Field(…)` was given; without that, something that is the same for no other."""
    return [getattr(field, "_attributes_set", object()), field.metadata, field.annotation]


def _are_same(some: Any, others: Any) -> bool:
    return len(some) == len(others) and all(map(is_same_type, some, others))
