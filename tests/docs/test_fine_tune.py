"""The four commands of docs/fine-tune.md, run on made rows with the embedded Gemma."""

import json
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lhkit.harness.results.results import Run
from lhkit.models.weights.weights import ensure_weights
from lhkit.settings import load_settings
from tests.children import search_paths
from tests.docs.pages import ROOT, blocks, files

pytestmark = pytest.mark.timeout(3600)

PAGE = ROOT / "docs" / "fine-tune.md"
MODEL = "google/functiongemma-270m-it"
STEPS = ("import", "serve", "eval", "train.py", "serve", "eval", "compare")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def commands() -> list[list[str]]:
    """Return the commands of the four steps, in order, as words."""
    text = PAGE.read_text(encoding="utf-8").split("## Your own tools")[0]
    lines = [
        line
        for block in blocks(PAGE)
        if block.language == "sh" and block.text in text
        for line in block.text.replace("\\\n", "").splitlines()
    ]
    found = [shlex.split(line) for line in lines if not line.startswith(("#", "python -m venv"))]
    steps = [words for words in found if words[1] not in {"accept", "rescore"}]  # by hand
    return [[word for word in words if "=" not in word or word.startswith("-")] for words in steps]


def test_page_has_four_steps() -> None:
    named = [words[1] for words in commands()]
    assert [Path(name).name for name in named] == [*STEPS]
    compile(files(PAGE)["train.py"], "train.py", "exec")


def write_rows(file: Path) -> None:
    tools = [
        {
            "function": {
                "name": name,
                "description": f"Call {name}.",
                "parameters": {
                    "type": "OBJECT",
                    "properties": {"query": {"type": "STRING", "description": "What."}},
                    "required": ["query"],
                },
            }
        }
        for name in ("show_map", "play_music")
    ]
    rows = []
    for number, place in enumerate(("Ulm", "Bonn", "Jena", "Gera", "Kiel", "Trier")):
        arguments = {"query": place}
        rows.append(
            {
                "metadata": "eval" if number >= 4 else "train",
                "tools": tools,
                "messages": [
                    {"role": "developer", "content": "Call one function.\n"},
                    {"role": "user", "content": f"Where is {place}?"},
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "show_map", "arguments": arguments}}],
                    },
                ],
            }
        )
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture
async def base(anyio_backend: str) -> Path:  # noqa: ARG001 - requests the event loop
    return await ensure_weights(load_settings().cache_dir)


@pytest.mark.nightly
@pytest.mark.model
def test_four_commands_run_on_made_rows(base: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "dataset.jsonl")
    for name, text in files(PAGE).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {
        **search_paths(),
        "HOME": str(tmp_path),
        "LHKIT_LOCALE": "en",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }

    def run(words: list[str]) -> str:
        """Run a command; the embedded base takes the place of FunctionGemma, in its dialect."""
        words = [str(base) if word == MODEL else word for word in words]
        words = ["json" if word == "functiongemma" else word for word in words]
        if words[1] == "eval":
            words += ["--dialect", "json", "--exit-zero"]
        done = subprocess.run(
            [Path(words[0]).name, *words[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    @contextmanager
    def serving(words: list[str], port: int) -> Iterator[None]:
        """Serve as a command does, at a free port."""
        log_path = tmp_path / f"serve-{port}"
        words = [
            part
            for word in words
            for part in (["--weights", str(base)] if word == MODEL else [word])
        ]
        words[words.index("--port") + 1] = str(port)
        with (
            log_path.open("w") as log,
            subprocess.Popen(
                words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None
            is_served = any("is served at" in line for line in process.stdout)
            assert is_served, log_path.read_text(encoding="utf-8")[-3000:]
            try:
                yield
            finally:
                process.terminate()

    imported, serve, evaluate, train, serve_tuned, evaluate_tuned, compare = commands()
    assert "2 of 2" in run(imported)
    for served, evaluated in ((serve, evaluate), (serve_tuned, evaluate_tuned)):
        if served is serve_tuned:
            run(train)
            assert (tmp_path / "tuned" / "model.safetensors").exists()
        port = free_port()
        address = evaluated[evaluated.index("--base-url") + 1]
        here = [f"http://127.0.0.1:{port}" if word == address else word for word in evaluated]
        with serving(served, port):
            run(here)
    for name in ("base", "tuned"):
        records = Run.load(tmp_path / "runs" / name).records
        assert [record.is_valid for record in records] == [True, True]
    heads = run(compare).splitlines()[1].split()
    assert {"base", "tuned"} <= set(heads)
