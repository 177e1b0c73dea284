"""The store under kill -9 and with two concurrent connections."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.store import Store

WRITES_PAIRS = """
import sys
from pathlib import Path
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.store import Store
with Store.open(Path(sys.argv[1]), load_protocols()) as store:
    store.write("CREATE TABLE IF NOT EXISTS pair (half INTEGER, n INTEGER)")
    n = store.number("SELECT count(*) FROM pair")
    while True:
        with store.transaction():
            store.write("INSERT INTO pair VALUES (0, ?)", [n])
            print("between", n, flush=True)
            store.write("INSERT INTO pair VALUES (1, ?)", [n])
        n += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills", [(0, 1, 4, 9), pytest.param(range(10), marks=pytest.mark.nightly)], ids=["4", "10"]
)
def test_killed_between_statements_the_database_holds_whole_writes_only(
    tmp_path: Path, kills: Sequence[int]
) -> None:
    path = tmp_path / "life.db"
    whole = 0
    for round_ in kills:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES_PAIRS, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(round_ + 1):
            assert process.stdout.readline().startswith("between")
        process.kill()
        process.stdout.close()
        process.wait(30)
        with Store.open(path, load_protocols()) as store:
            assert store.row("PRAGMA integrity_check")[0] == "ok"  # type: ignore[index]  # it has a row
            halves = store.rows("SELECT n, count(*) AS halves FROM pair GROUP BY n")
            assert {row["halves"] for row in halves} <= {2}
            assert len(halves) >= whole + round_  # earlier commits stay
            whole = len(halves)


def test_store_sees_committed_writes_of_another_connection(tmp_path: Path) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, load_protocols()) as one, Store.open(path, load_protocols()) as two:
        one.write("CREATE TABLE note (text TEXT)")
        with one.transaction():
            one.write("INSERT INTO note VALUES ('a')")
            assert two.number("SELECT count(*) FROM note") == 0
        two.write("INSERT INTO note VALUES ('b')")
        assert one.number("SELECT count(*) FROM note") == 2
