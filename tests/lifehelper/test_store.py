"""The database: opened or refused with a sentence, all or nothing, isolated, quick to copy."""

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from lhkit.errors import StoreError
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.habits import Entry, insert_habit, list_habits, put_entry
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.search import find_protocol, search_protocols
from lhkit.lifehelper.store import MIGRATIONS, Store, StoreImage
from lhkit.lifehelper.world import snapshot

DAY = date(2026, 6, 17)


def wish(protocol_id: str) -> NewHabit:
    return NewHabit(
        protocol_id=protocol_id, frame_level="action", framed_text="나는 걷는다", anchor_when="7시"
    )


def without(catalog: ProtocolCatalog, *ids: str) -> ProtocolCatalog:
    return ProtocolCatalog(each for each in catalog.values() if each.id not in ids)


def test_what_was_written_is_there_when_the_file_is_opened_again(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        insert_habit(store, wish("daily-walk"), created_on=DAY)
        before = snapshot(store)
    with Store.open(path, catalog) as store:
        assert snapshot(store) == before
        assert [row["id"] for row in before["habits"]] == ["daily-walk"]


def test_a_file_is_in_wal_mode_with_strict_tables_and_foreign_keys(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    with Store.open(tmp_path / "life.db", catalog) as store:
        assert store.rows("PRAGMA journal_mode")[0][0] == "wal"
        assert store.number("PRAGMA user_version") == len(MIGRATIONS)
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            put_entry(store, Entry(habit_id="no-habit", date=DAY, value="done"))
        tables = store.rows("SELECT name FROM pragma_table_list WHERE strict")
        assert {row["name"] for row in tables} >= {"protocol", "habit", "tracker_entry"}


def test_a_fresh_store_has_foreign_keys_too(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert_habit(store, wish("no-protocol"), created_on=DAY)


def test_a_file_of_a_newer_version_is_refused_with_file_and_versions(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        store.write("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"life\.db has schema version 99 .* up to 1") as caught:
        Store.open(path, catalog)
    assert "upgrade lhkit" in str(caught.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 200, encoding="utf-8")
    with pytest.raises(StoreError, match=r"notes\.txt cannot be used"):
        Store.open(path, catalog)
    assert path.read_text(encoding="utf-8") == "dear diary, " * 200


def test_another_programs_database_is_refused_and_left_alone(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE habit (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path, catalog)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["missing/life.db", "."])
def test_a_path_that_cannot_be_opened_is_refused_with_a_sentence(
    tmp_path: Path, catalog: ProtocolCatalog, where: str
) -> None:
    with pytest.raises(StoreError, match="choose another file"):
        Store.open(tmp_path / where, catalog)


def test_an_error_inside_a_transaction_leaves_nothing(store: Store) -> None:
    before = snapshot(store)

    def half_a_write() -> None:
        with store.transaction():
            insert_habit(store, wish("daily-walk"), created_on=DAY)
            put_entry(store, Entry(habit_id="daily-walk", date=DAY, value="done"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_a_write()
    assert snapshot(store) == before
    insert_habit(store, wish("daily-walk"), created_on=DAY)  # and the store goes on working


DIES_MIDWAY = """
import os, sys
from datetime import date
from pathlib import Path
from lhkit.lifehelper.store import Store
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.habits import insert_habit
from lhkit.lifehelper.rules import NewHabit
store = Store.open(Path(sys.argv[1]), load_protocols())
wish = NewHabit(protocol_id="daily-walk", frame_level="action", framed_text="a", anchor_when="b")
with store.transaction():
    insert_habit(store, wish, created_on=date(2026, 6, 17))
    print("written", flush=True)
    os._exit(9)
"""


@pytest.mark.promise("lifehelper.crash_safe")
def test_a_process_that_dies_in_the_middle_of_a_write_leaves_nothing(
    tmp_path: Path, real_catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    command = [sys.executable, "-c", DIES_MIDWAY, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (9, "written\n"), run.stderr
    with Store.open(path, real_catalog) as store:
        assert snapshot(store) == {"habits": [], "tracker": []}
        insert_habit(store, wish("daily-walk"), created_on=DAY)


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


def test_two_processes_write_the_same_file_and_lose_nothing(
    tmp_path: Path, real_catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, real_catalog) as store:
        insert_habit(store, wish("daily-walk"), created_on=DAY)
    command = [sys.executable, "-c", WRITES_MANY, str(path)]
    writers = [
        subprocess.Popen([*command, year], stderr=subprocess.PIPE, text=True)
        for year in ("2024", "2025")
    ]
    failures = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert failures == [("", 0), ("", 0)]
    with Store.open(path, real_catalog) as store:
        assert len(snapshot(store)["tracker"]) == 80


def test_many_may_create_the_same_file_at_once(tmp_path: Path, catalog: ProtocolCatalog) -> None:
    path = tmp_path / "life.db"

    def found(_number: int) -> int:
        with Store.open(path, catalog) as store:
            return store.number("SELECT count(*) FROM protocol")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(found, range(16))) == [len(catalog)] * 16


def test_a_new_file_that_another_process_is_writing_to_opens_when_that_is_done(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.3, other.execute, ["COMMIT"])
        done.start()
        with Store.open(path, catalog) as store:
            assert store.rows("PRAGMA journal_mode")[0][0] == "wal"
        done.join()


@pytest.mark.parametrize("lock", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_a_file_that_another_program_keeps_is_refused_with_a_sentence(
    tmp_path: Path, catalog: ProtocolCatalog, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr("lhkit.lifehelper.store.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "life.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        other.execute("SELECT * FROM sqlite_schema").fetchall()  # takes the lock of a reader
        with pytest.raises(StoreError, match=r"life\.db is in use by another program"):
            Store.open(path, catalog)


def test_two_fresh_stores_share_nothing(image: StoreImage) -> None:
    with image.fresh() as one, image.fresh() as other:
        insert_habit(one, wish("daily-walk"), created_on=DAY)
        assert len(list_habits(one)) == 1
        assert list_habits(other) == ()
        assert [hit["id"] for hit in search_protocols(other, query="걷기")] == ["daily-walk"]


def test_a_closed_store_answers_nothing(image: StoreImage) -> None:
    store = image.fresh()
    store.close()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        list_habits(store)


def test_a_catalog_that_changed_is_taken_over_when_the_file_is_opened(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, without(catalog, "daily-walk")) as store:
        assert find_protocol(store, "daily-walk", locale="ko") is None
    with Store.open(path, catalog) as store:
        assert find_protocol(store, "daily-walk", locale="ko") is not None
        assert [hit["id"] for hit in search_protocols(store, query="걷기")] == ["daily-walk"]


def test_a_protocol_that_left_the_catalog_stays_only_for_its_habits(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        insert_habit(store, wish("daily-walk"), created_on=DAY)
    with Store.open(path, without(catalog, "daily-walk", "stretch-break")) as store:
        assert list_habits(store)[0].title == "매일 20분 걷기"
        assert search_protocols(store, query="걷기 스트레칭") == ()
        assert find_protocol(store, "stretch-break", locale="ko") is None


def test_opening_with_the_same_catalog_writes_nothing(
    tmp_path: Path, catalog: ProtocolCatalog
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as first, Store.open(path, catalog) as watching:
        seen = watching.number("PRAGMA data_version")
        Store.open(path, catalog).close()
        assert watching.number("PRAGMA data_version") == seen
        first.write("DELETE FROM catalog_state")
        assert watching.number("PRAGMA data_version") != seen


def test_text_that_utf_8_cannot_carry_is_stored_with_a_replacement(store: Store) -> None:
    odd = NewHabit(
        protocol_id="daily-walk", frame_level="action", framed_text="걷는다 \ud83d", anchor_when="7"
    )
    insert_habit(store, odd, created_on=DAY)
    assert list_habits(store)[0].framed_text == "걷는다 ?"
