"""SECURITY.md names test files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_security_page_names_existing_tests_for_each_guarantee() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| **")]
    assert rows
    for row in rows:
        files = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert files, row
        assert [file for file in files if not (ROOT / file).is_file()] == []
