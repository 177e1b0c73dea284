"""The store: opening, refusals, transactions, concurrent processes and in-memory copies."""

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from lhkit.base.errors import StoreError
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.habits import Entry, insert_habit, list_habits, put_entry
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.search import find_protocol, search_protocols
from lhkit.lifehelper.store import MIGRATIONS, Store, StoreImage
from lhkit.lifehelper.world import snapshot

DAY = date(2026, 6, 17)


def new_habit(protocol_id: str) -> NewHabit:
    return NewHabit(
        protocol_id=protocol_id, frame_level="action", framed_text="나는 걷는다", anchor_when="7시"
    )


def without(catalog: ProtocolCatalog, *ids: str) -> ProtocolCatalog:
    return ProtocolCatalog(protocol for protocol in catalog.values() if protocol.id not in ids)


def test_store_keeps_data_across_opens(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        insert_habit(store, new_habit("daily-walk"), created_on=DAY)
        before = snapshot(store)
    with Store.open(path, catalog) as store:
        assert snapshot(store) == before
        assert [row["id"] for row in before["habits"]] == ["daily-walk"]


def test_store_file_uses_wal_strict_tables_and_foreign_keys(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    with Store.open(tmp_path / "life.db", catalog) as store:
        assert store.rows("PRAGMA journal_mode")[0][0] == "wal"
        assert store.number("PRAGMA user_version") == len(MIGRATIONS)
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            put_entry(store, Entry(habit_id="no-habit", date=DAY, value="done"))
        tables = store.rows("SELECT name FROM pragma_table_list WHERE strict")
        assert {row["name"] for row in tables} >= {"protocol", "habit", "tracker_entry"}


def test_store_in_memory_checks_foreign_keys(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert_habit(store, new_habit("no-protocol"), created_on=DAY)


def test_store_refuses_a_newer_schema_version(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        store.write("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"life\.db has schema version 99, .* up to 1:") as caught:
        Store.open(path, catalog)
    assert "upgrade lhkit" in str(caught.value)


def test_store_refuses_a_file_that_is_not_a_database(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 200, encoding="utf-8")
    with pytest.raises(StoreError, match=r"notes\.txt cannot be used"):
        Store.open(path, catalog)
    assert path.read_text(encoding="utf-8") == "dear diary, " * 200


def test_store_refuses_another_programs_database(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE habit (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path, catalog)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["missing/life.db", "."])
def test_store_refuses_a_path_that_cannot_be_opened(
    tmp_path: Path, catalog: ProtocolCatalog, where: str
) -> None:
    with pytest.raises(StoreError, match="choose another file"):
        Store.open(tmp_path / where, catalog)


def test_transaction_rolls_back_on_error(store: Store) -> None:
    before = snapshot(store)

    def half_a_write() -> None:
        with store.transaction():
            insert_habit(store, new_habit("daily-walk"), created_on=DAY)
            put_entry(store, Entry(habit_id="daily-walk", date=DAY, value="done"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_a_write()
    assert snapshot(store) == before
    insert_habit(store, new_habit("daily-walk"), created_on=DAY)  # and the store goes on working


DIES_MIDWAY = """
import os, sys
from datetime import date
from pathlib import Path
from lhkit.lifehelper.store import Store
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.habits import insert_habit
from lhkit.lifehelper.rules import NewHabit
store = Store.open(Path(sys.argv[1]), load_protocols())
habit = NewHabit(protocol_id="daily-walk", frame_level="action", framed_text="a", anchor_when="b")
with store.transaction():
    insert_habit(store, habit, created_on=date(2026, 6, 17))
    print("written", flush=True)
    os._exit(9)
"""


@pytest.mark.longer
def test_transaction_rolls_back_when_the_process_dies(
    tmp_path: Path, real_catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    command = [sys.executable, "-c", DIES_MIDWAY, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (9, "written\n"), run.stderr
    with Store.open(path, real_catalog) as store:
        assert snapshot(store) == {"habits": [], "tracker": []}
        insert_habit(store, new_habit("daily-walk"), created_on=DAY)


WRITES_MANY = """
import sys
from datetime import date, timedelta
from pathlib import Path
from lhkit.lifehelper.store import Store
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.habits import Entry, put_entry
with Store.open(Path(sys.argv[1]), load_protocols()) as store:
    for n in range(40):
        day = date(int(sys.argv[2]), 1, 1) + timedelta(days=n)
        put_entry(store, Entry(habit_id="daily-walk", date=day, value="done"))
"""


@pytest.mark.longer
def test_store_accepts_writes_of_two_processes(
    tmp_path: Path, real_catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, real_catalog) as store:
        insert_habit(store, new_habit("daily-walk"), created_on=DAY)
    command = [sys.executable, "-c", WRITES_MANY, str(path)]
    writers = [
        subprocess.Popen([*command, year], stderr=subprocess.PIPE, text=True)
        for year in ("2024", "2025")
    ]
    failures = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert failures == [("", 0), ("", 0)]
    with Store.open(path, real_catalog) as store:
        assert len(snapshot(store)["tracker"]) == 80


def test_store_can_be_created_concurrently(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"

    def protocol_count(_number: int) -> int:
        with Store.open(path, catalog) as store:
            return store.number("SELECT count(*) FROM protocol")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(protocol_count, range(16))) == [len(catalog)] * 16


@pytest.mark.longer
def test_store_open_waits_for_another_writer(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.3, other.execute, ["COMMIT"])
        done.start()
        with Store.open(path, catalog) as store:
            assert store.rows("PRAGMA journal_mode")[0][0] == "wal"
        done.join()


@pytest.mark.parametrize("lock", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_store_refuses_a_locked_file_after_the_timeout(
    tmp_path: Path, catalog: ProtocolCatalog, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr("lhkit.lifehelper.store.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "life.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        other.execute("SELECT * FROM sqlite_schema").fetchall()  # takes the lock of a reader
        with pytest.raises(StoreError, match=r"life\.db is locked by another program"):
            Store.open(path, catalog)


def test_stores_in_memory_are_independent(image: StoreImage) -> None:
    with image.fresh() as one, image.fresh() as other:
        insert_habit(one, new_habit("daily-walk"), created_on=DAY)
        assert len(list_habits(one, locale="ko")) == 1
        assert list_habits(other, locale="ko") == ()
        assert [hit["id"] for hit in search_protocols(other, query="걷기", locale="ko")] == [
            "daily-walk"
        ]


def test_store_raises_after_close(image: StoreImage) -> None:
    store = image.fresh()
    store.close()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        list_habits(store, locale="ko")


def test_store_loads_a_changed_catalog_on_open(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, without(catalog, "daily-walk")) as store:
        assert find_protocol(store, "daily-walk", locale="ko") is None
    with Store.open(path, catalog) as store:
        assert find_protocol(store, "daily-walk", locale="ko") is not None
        assert [hit["id"] for hit in search_protocols(store, query="걷기", locale="ko")] == [
            "daily-walk"
        ]


def test_store_keeps_removed_protocols_of_habits_only(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        insert_habit(store, new_habit("daily-walk"), created_on=DAY)
    with Store.open(path, without(catalog, "daily-walk", "stretch-break")) as store:
        assert list_habits(store, locale="ko")[0].title == "매일 20분 걷기"
        assert search_protocols(store, query="걷기 스트레칭", locale="ko") == ()
        assert find_protocol(store, "stretch-break", locale="ko") is None


def test_store_open_with_an_equal_catalog_writes_nothing(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as first, Store.open(path, catalog) as watching:
        seen = watching.number("PRAGMA data_version")
        Store.open(path, catalog).close()
        assert watching.number("PRAGMA data_version") == seen
        first.write("DELETE FROM catalog_state")
        assert watching.number("PRAGMA data_version") != seen


def test_store_replaces_lone_surrogates(store: Store) -> None:
    odd = NewHabit(
        protocol_id="daily-walk", frame_level="action", framed_text="걷는다 \ud83d", anchor_when="7"
    )
    insert_habit(store, odd, created_on=DAY)
    assert list_habits(store, locale="ko")[0].framed_text == "걷는다 ?"
