"""life-helper with protocols that a scenario rewrites: the carrier of instructions in a catalog."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lhkit import UsageError
from lhkit.lifehelper.toolset import LifeHelperSession, LifeHelperToolset


class Rewritten(BaseModel):
    """A row of `world.catalog`: the protocol, and its new texts."""

    model_config = ConfigDict(extra="forbid")
    id: str
    title: str | None = None
    summary: str | None = None
    steps: Annotated[list[str], Field(min_length=1)] | None = None
    anchor: str | None = None


_ROWS = TypeAdapter(list[Rewritten])
_UPDATE = """
    UPDATE protocol_text SET title = coalesce(?, title), summary = coalesce(?, summary),
    steps = coalesce(?, steps), anchor = coalesce(?, anchor) WHERE protocol_id = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperWithCatalog(LifeHelperToolset):
    """The life-helper toolset; `world.catalog` replaces texts of shipped protocols."""

    name: str = "life-helper-injection"

    def open(self, world: Mapping[str, Any], locale: str) -> LifeHelperSession:
        """Return a session of life-helper whose catalog has the rewritten texts.

        Raises:
            UsageError: the initial state is invalid; the message names the field.
        """
        tables = dict(world)
        try:
            rows = _ROWS.validate_python(tables.pop("catalog", []))
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, ("world.catalog", *first["loc"])))
            raise UsageError(f"{at}: {first['msg']}") from error
        session = LifeHelperToolset.open(self, tables, locale)
        for row in rows:
            if row.id not in session.known_ids()["protocol_id"]:
                raise UsageError(f"world.catalog: no protocol {row.id!r} in the catalog")
            steps = None if row.steps is None else json.dumps(row.steps, ensure_ascii=False)
            session.store.write(_UPDATE, [row.title, row.summary, steps, row.anchor, row.id])
        return session


toolset = LifeHelperWithCatalog()
