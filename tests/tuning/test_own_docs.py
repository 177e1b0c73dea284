"""docs/tune-own-tools.md does what it says: its files and commands are run as they stand."""

import json
import re
import shlex
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result
from typer.testing import CliRunner

from lhkit.cli import build_parser
from lhkit.tuning.data import read_sequences

DOCS = (Path(__file__).parents[2] / "docs" / "tune-own-tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


COMMANDS = [shlex.split(line) for block in blocks("bash") for line in block.splitlines()]


def to_its_end(work: Coroutine[Any, Any, int]) -> int:
    """Run it in a thread: after a browser test, playwright's loop still runs in this one."""

    async def waited() -> int:
        return await work

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, waited).result()


def lhkit(*args: str) -> Result:
    return CliRunner().invoke(build_parser(to_its_end), args, env={"COLUMNS": "300"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder with the toolset of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    (tmp_path / "notes.py").write_text(blocks("python")[0], encoding="utf-8")
    return tmp_path


def test_the_commands_lead_from_tools_to_a_model(folder: Path, tiny_gemma: Path) -> None:
    init, data, show, whole, train, merge, more, further, _talks = (
        command[1:] for command in COMMANDS
    )
    run = lhkit(*init)
    assert (run.exit_code, run.stderr) == (0, "")
    assert "3 tools, en. Fill in its" in run.stdout
    run = lhkit(*data)
    assert run.exit_code == 2
    assert re.search(r"phrases\.yaml:\d+: .*list_notes\.say\[0\]: a TODO is left", run.stderr)
    (folder / "phrases.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    run = lhkit(*data, "--count", "40")
    assert run.exit_code == 0, run.stderr
    assert "Not found in" not in run.stdout, run.stdout
    assert "never used" not in run.stdout
    run = lhkit(*show)
    assert run.exit_code == 0, run.stderr
    assert " · follow_ups · en · own-tools." in run.stdout
    assert "  User: Today is " in run.stdout
    texts = {each.text for each in read_sequences(folder / "data" / "train.jsonl")}
    dev = {each.text for each in read_sequences(folder / "data" / "train.dev.jsonl")}
    assert len(texts) > 30
    assert texts.isdisjoint(dev)
    base = ["--base", str(tiny_gemma)]
    small = [*base, "--steps", "3", "--batch-tokens", "400"]
    for command in (
        [*train, *small],
        [*merge, *base],
        [*more, "--count", "40"],
        [*further, *small],
    ):
        run = lhkit(*command)
        assert run.exit_code == 0, run.stderr
    assert (folder / "tuned" / "model" / "model.safetensors").is_file()
    for _ in range(2):
        run = lhkit(*whole, *base, "--batch-tokens", "400", "--minutes", "0.01", "--count", "40")
        assert run.exit_code == 0, run.stderr
        assert "The whole model is in notes-model/model." in run.stdout
    manifest = json.loads((folder / "tuned-2" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["start"]


def test_conversations_of_ones_own_code_are_played_with_the_same_tools(folder: Path) -> None:
    (folder / "talks.py").write_text(blocks("python")[1], encoding="utf-8")
    run = lhkit(*COMMANDS[-1][1:], "--count", "20")
    assert run.exit_code == 0, run.stderr
    told = {each.text for each in read_sequences(folder / "data" / "talks.jsonl")}
    assert any('"text":"Another one."' in text for text in told)
    assert any("There is no note yet" in text for text in told)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def talks(count, *, seed, korean_share): return []", "wrote no conversation"),
        ("def talks(count, *, seed, korean_share): return ['hello']", "wrote 'hello': give `lhkit"),
        (
            "def talks(count, *, seed, korean_share):\n    raise ValueError('no')",
            "talks.py:2: ValueError: no",
        ),
        ("def talks(count): return []", "TypeError: talks() got an unexpected keyword"),
        ("talk = 1", "--conversations talks.py:talks: "),
    ],
)
def test_code_that_writes_no_conversations_is_one_sentence(
    folder: Path, code: str, sentence: str
) -> None:
    (folder / "talks.py").write_text(code, encoding="utf-8")
    run = lhkit(*COMMANDS[-1][1:])
    assert run.exit_code == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("data --out x.jsonl", "needs --phrases FILE"),
        (
            "data --out x.jsonl --phrases p.yaml --conversations talks.py:talks",
            "--phrases, --conversations and --reviewed: give one of them",
        ),
        ("data --out x.jsonl --conversations talks", "--conversations talks has no colon"),
        ("init --toolset notes.py:Notebook --out notes.py", "notes.py is there already"),
        ("init --toolset notes.py:No --out x.yaml", "has no 'No'"),
        ("init --toolset notes.py:Notebook --out x.yaml --locale fr", "no locale 'fr'"),
        ("data --out x.jsonl --toolset notes.py:Notebook", "needs --phrases FILE"),
        ("data --out x.jsonl --phrases p.yaml", "p.yaml:2: worlds[0]: world.now: Field required"),
        ("data --out x.jsonl --phrases p.yaml", "Mend these; what comes after them is checked"),
        (
            "data --out x.jsonl --toolset notes.py:Notebook --phrases p.yaml --dev-share 1",
            "nothing is left to learn from",
        ),
    ],
)
def test_misuse_is_one_sentence_and_writes_nothing(folder: Path, args: str, sentence: str) -> None:
    undated = re.sub(r", due: \{date: [a-z ]+\}", "", blocks("yaml")[0]).replace("now:", "day:")
    (folder / "p.yaml").write_text(undated, encoding="utf-8")
    run = lhkit("tune", *args.split())
    assert run.exit_code == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr
    assert not (folder / "x.yaml").exists()
    assert not (folder / "x.jsonl").exists()
