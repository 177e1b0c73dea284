"""Read a life-helper database without lhkit."""

import sqlite3
from contextlib import closing
from pathlib import Path


def habits(database: Path) -> list[str]:
    """Return the ids of all habits."""
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM habit")]
