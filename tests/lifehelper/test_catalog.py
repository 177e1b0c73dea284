"""Loading the catalog's files, and the errors of invalid entries."""

from pathlib import Path

import pytest

from lhkit.base.errors import StoreError
from lhkit.lifehelper.catalog import load_protocols
from tests.rows import check_rows

ENTRY = """
[[protocol]]
id = "daily-walk"
source = "A guide"
url = "https://example.org/walk"
keywords = ["걷기", "walk"]
[protocol.ko]
title = "매일 걷기"
summary = "매일 걸어요."
steps = ["신발을 신어요.", "걸어요."]
anchor = "점심 뒤"
[protocol.en]
title = "Walk"
summary = "Walk every day."
steps = ["Put on shoes.", "Walk."]
anchor = "After lunch"
"""


def folder_with(tmp_path: Path, content: str) -> Path:
    (tmp_path / "movement.toml").write_text(content, encoding="utf-8")
    return tmp_path


def test_load_protocols_takes_the_category_from_the_file_name(tmp_path: Path) -> None:
    catalog = load_protocols(folder_with(tmp_path, ENTRY))
    walk = catalog["daily-walk"]
    assert catalog.categories == ("movement",)
    assert walk.keywords == ("걷기", "walk")
    assert walk.texts["ko"].steps == ("신발을 신어요.", "걸어요.")
    assert walk.texts["en"].anchor == "After lunch"


def test_load_protocols_reads_a_folder_once(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, ENTRY)
    assert load_protocols(folder) is load_protocols(folder)


@check_rows(
    ("old", "new", "field"),
    [
        ('id = "daily-walk"', 'id = "Daily Walk"', "id"),
        ('id = "daily-walk"', "", "id"),
        ('source = "A guide"', 'source = "  "', "source"),
        ("https://example.org/walk", "javascript:alert(1)", "url"),
        ('keywords = ["걷기", "walk"]', "keywords = []", "keywords"),
        ('keywords = ["걷기", "walk"]', "keywords = [1]", "keywords"),
        ('title = "매일 걷기"', "", "ko.title"),
        ('summary = "Walk every day."', "summary = 3", "en.summary"),
        ('steps = ["Put on shoes.", "Walk."]', 'steps = "Walk."', "en.steps"),
        ('anchor = "After lunch"', "", "en.anchor"),
    ],
)
def test_load_protocols_names_file_entry_and_field_of_an_invalid_entry(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    with pytest.raises(StoreError) as caught:
        load_protocols(folder_with(tmp_path, ENTRY.replace(old, new)))
    message = str(caught.value)
    assert "movement.toml" in message
    assert f"field {field}:" in message
    assert "daily-walk" in message or "number 1" in message or "Daily Walk" in message


@check_rows("content", ["", "[protocol]\nid = 'x'", "protocol = 3", "protocol = [1]", "not toml ="])
def test_load_protocols_refuses_a_file_without_entries(tmp_path: Path, content: str) -> None:
    with pytest.raises(StoreError, match=r"movement\.toml"):
        load_protocols(folder_with(tmp_path, content))


def test_load_protocols_refuses_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=str(tmp_path)):
        load_protocols(tmp_path)


def test_load_protocols_refuses_a_duplicate_id(tmp_path: Path) -> None:
    (tmp_path / "focus.toml").write_text(ENTRY, encoding="utf-8")
    with pytest.raises(StoreError, match="daily-walk"):
        load_protocols(folder_with(tmp_path, ENTRY))
