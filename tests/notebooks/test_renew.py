"""`notebooks/renew.py`: the models that a notebook uses, and recording their cassettes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

TUNED = "http://127.0.0.1:8000"
BARE = "http://127.0.0.1:8001"
ONE = """
LIVE = False  # or "http://127.0.0.1:8000"

model = await lhkit.connect(LIVE) if LIVE else lhkit.CassetteModel.open("cassettes/chat.jsonl")
"""
TWO = """
LIVE = False  # or {"gemma-base": "http://127.0.0.1:8000", "gemma": "http://127.0.0.1:8001"}

bare = (
    await lhkit.connect(LIVE["gemma-base"])
    if LIVE
    else lhkit.CassetteModel.open("cassettes/before.jsonl")
)
tuned = await lhkit.connect(LIVE["gemma"]) if LIVE else lhkit.CassetteModel.open("x.jsonl")
"""


@pytest.fixture
def renew(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)  # as for a script
    yield import_module("renew")
    for name in ("renew", "lab"):
        del sys.modules[name]


def notebook_of(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_use_recorders_covers_every_cassette(path: Path, renew: ModuleType) -> None:
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
    addresses = {"gemma": TUNED, "gemma-base": BARE}
    done: set[str] = set()
    rewritten = "\n".join(renew.use_recorders(source, addresses, done) for source in sources)
    assert "CassetteModel" not in rewritten
    assert "LIVE = False" not in "".join(line for line in rewritten.splitlines() if "`" not in line)
    assert rewritten.count("lhkit.RecordingModel") == len(done)


@pytest.mark.parametrize(
    ("source", "names"), [(ONE, {"gemma"}), (TWO, {"gemma", "gemma-base"}), ("print(1)", set())]
)
def test_renew_finds_the_models_of_a_notebook(
    renew: ModuleType, source: str, names: set[str]
) -> None:
    assert renew.model_names(notebook_of(source)) == names


def test_use_recorders_uses_the_address_of_the_default_model(renew: ModuleType) -> None:
    cell = renew.use_recorders(ONE, {"gemma": TUNED, "gemma-base": BARE}, set())
    assert f"LIVE = '{TUNED}'" in cell
    endpoint = 'lhkit.Endpoint(base_url=LIVE, model="gemma")'
    assert f'lhkit.RecordingModel(await lhkit.connect({endpoint}), "cassettes/chat.jsonl")' in cell


def test_use_recorders_gives_each_model_its_address(renew: ModuleType) -> None:
    cell = renew.use_recorders(TWO, {"gemma": TUNED, "gemma-base": BARE}, set())
    assert f"LIVE = {{'gemma': '{TUNED}', 'gemma-base': '{BARE}'}}" in cell
    for name in ("gemma", "gemma-base"):
        assert f'lhkit.Endpoint(base_url=LIVE["{name}"], model="{name}")' in cell


def test_use_recorders_records_a_shared_cassette_once(renew: ModuleType) -> None:
    done: set[str] = set()
    renew.use_recorders(ONE, {"gemma": TUNED}, done)
    again = renew.use_recorders(ONE, {"gemma": TUNED}, done)
    assert 'model = lhkit.CassetteModel.open("cassettes/chat.jsonl")' in again


@pytest.mark.parametrize(
    ("words", "addresses"),
    [
        ([""], {}),
        ([TUNED], {"gemma": TUNED}),
        ([f"gemma-base={BARE}", f"gemma={TUNED}"], {"gemma": TUNED, "gemma-base": BARE}),
    ],
)
def test_renew_parses_addresses(
    renew: ModuleType, words: list[str], addresses: dict[str, str]
) -> None:
    assert renew.parse_addresses(words) == addresses


def test_parse_addresses_rejects_a_notebook(renew: ModuleType) -> None:
    with pytest.raises(ValueError, match="notebooks go first"):
        renew.parse_addresses(["04_compare.ipynb"])


def test_record_serves_models_without_an_address(
    renew: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "both.ipynb"
    nbformat.write(notebook_of(TWO), path)
    events: list[str] = []

    @contextmanager
    def serve(*command: str) -> Iterator[str]:
        events.append(f"{command[-1]} up")
        yield BARE
        events.append(f"{command[-1]} down")

    monkeypatch.setattr(renew, "serve", serve)
    monkeypatch.setattr(renew, "execute", lambda notebook: events.append(notebook.cells[0].source))
    renew.record([path], {"gemma": TUNED})
    up, source, down = events
    assert (up, down) == ("gemma-base up", "gemma-base down")
    assert f"LIVE = {{'gemma': '{TUNED}', 'gemma-base': '{BARE}'}}" in source


def test_record_fails_without_a_server(
    renew: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.ipynb"
    nbformat.write(notebook_of(ONE), path)
    monkeypatch.setattr(renew, "serve", lambda *_: nullcontext())
    with pytest.raises(SystemExit, match="gemma cannot be served"):
        renew.record([path], {})
