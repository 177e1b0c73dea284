"""Which line serves a model, and which client `--dialect` opens."""

import asyncio
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit import app, embedded
from lhkit.base.accelerators import Accelerator
from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.base.files import file_sha256
from lhkit.cli.serve import serve_line
from lhkit.cli.serve.serve import serve_model
from lhkit.cli.serve.serve_line import ServeOptions
from lhkit.models.client.identity import weights_alias
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.vllm import VllmHttp
from lhkit.models.precision import DTYPES, Dtype, choose_precision
from lhkit.models.serving import gemma, vllm_server
from lhkit.models.serving.vllm_server import SAMPLER, Device
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from tests.models.fake_vllm import FakeVllm
from tests.models.test_vllm_options import help_of

pytestmark = pytest.mark.anyio

H200 = Accelerator(name="NVIDIA H200", driver="580.159.04", capability=9.0)
REAL_PRINTED = vllm_server.read_help


@pytest.fixture(autouse=True)
def vllm_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the installed vLLM print its help without the seconds of its import."""

    async def printed(_command: Sequence[str]) -> str:
        return help_of("0.32")

    monkeypatch.setattr(vllm_server, "read_help", printed)


def vllm_on_path(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an executable `vllm` on the path that knows what a version knows and ends at the rest."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    known = folder / "help.txt"
    known.write_text(help_of(version), encoding="utf-8")
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "from lhkit.models.serving.vllm_server import parse_help\n"
        f"text = open({str(known)!r}).read()\n"
        "if '--help=all' in sys.argv:\n    sys.exit(print(text))\n"
        "unknown = [w for w in sys.argv if w[:2] == '--' and w not in parse_help(text)]\n"
        "sys.exit(f'unrecognized arguments: {unknown}' if unknown else 0)\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(vllm_server, "read_help", REAL_PRINTED)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.longer
@pytest.mark.parametrize(("version", "left_out"), [("0.32", False), ("0.24", True)])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_serve_leaves_out_options_unknown_to_vllm(
    version: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    left_out: bool,
    dry_run: bool,
) -> None:
    vllm_on_path(tmp_path, version, monkeypatch)
    settings = Settings(cache_dir=tmp_path / "cache", locale="en")
    options = ServeOptions(model="google/gemma-3-4b-it", dry_run=dry_run)
    assert await serve_model(options, settings) == 0
    printed = capsys.readouterr()
    words = shlex.split(printed.out)
    assert ("--enable-per-request-metrics" in words) != left_out
    assert ("records have no server times of requests" in printed.err) == left_out
    assert "Gemma 3: other commands use the dialect json" in printed.err
    assert printed.err.count("\n") == 1 + left_out
    assert words[words.index("--max-num-seqs") + 1] == "256"
    assert words[words.index("--stream-interval") + 1] == "4"
    assert not {"--enforce-eager", "--dtype", "env"} & {*words}


@pytest.mark.parametrize(("installed", "is_gpu"), [("0.25.1", True), ("0.25.1+cpu", False)])
async def test_serve_embedded_uses_the_card_of_a_gpu_build(
    installed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_gpu: bool,
) -> None:
    monkeypatch.setattr(embedded, "embedded_folder", lambda *_: tmp_path / "weights")
    monkeypatch.setattr(gemma, "installed_version", lambda *_: installed)
    monkeypatch.setattr(gemma, "accelerators", lambda: (H200,))
    monkeypatch.delenv(SAMPLER, raising=False)
    settings = Settings(cache_dir=tmp_path / "cache", locale="en")
    assert await serve_model(ServeOptions(dry_run=True), settings) == 0
    printed = capsys.readouterr()
    words = shlex.split(printed.out)
    assert words[words.index("--max-num-seqs") + 1] == ("256" if is_gpu else "16")
    assert ("--enforce-eager" in words) != is_gpu
    assert ("--block-size" in words) != is_gpu
    assert ("--stream-interval" in words) == is_gpu
    assert any("VLLM_CPU" in word for word in words) != is_gpu
    assert ("On NVIDIA H200, bfloat16." in printed.err) == is_gpu
    assert (f"{SAMPLER}=0 saves about 95 s" in printed.err) == is_gpu
    assert (f"{SAMPLER}=0" in words) == is_gpu
    assert ("lhkit-device-NVIDIA%20H200" in words) == is_gpu
    if is_gpu:
        assert words[words.index("--dtype") + 1] == "bfloat16"
        assert {"lhkit-dtype-bfloat16", "lhkit-max-num-seqs-256"} <= {*words}


async def test_serve_keeps_the_users_choice_of_the_sampler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma, "installed_version", lambda *_: "0.25.1")
    monkeypatch.setattr(gemma, "accelerators", lambda: (H200,))
    monkeypatch.setattr(serve_line, "accelerators", lambda: (H200,))
    settings = Settings(cache_dir=tmp_path, locale="en")
    for value, is_set in ((None, True), ("1", False)):
        if value is not None:
            monkeypatch.setenv(SAMPLER, value)
        for options in (ServeOptions(dry_run=True), ServeOptions(model=OTHER, dry_run=True)):
            assert await serve_model(options, settings) == 0
            printed = capsys.readouterr()
            assert (f"{SAMPLER}=0" in shlex.split(printed.out)) == is_set
            assert (SAMPLER in printed.err) == is_set


FAKE_API_SERVER = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from lhkit.models.serving.vllm_server import parse_help
if "--help=all" in sys.argv:
    sys.exit(print(text))
options = [word for word in sys.argv if word.startswith("--")]
if unknown := [option for option in options if option not in parse_help(text)]:
    sys.exit(f"error: unrecognized arguments: {unknown}")
if "--enforce-eager" in options or any("VLLM_CPU" in name for name in os.environ):
    sys.exit("error: options of a CPU")
class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Server).serve_forever()
"""


@pytest.mark.slow
async def test_serve_on_gpu_starts_a_vllm_from_a_folder_on_the_python_path(tmp_path: Path) -> None:
    """As `pip install --target` leaves it: no `vllm` on the path, metadata next to the package."""
    packages = tmp_path / "packages"
    module = packages / "vllm" / "entrypoints" / "openai" / "api_server.py"
    module.parent.mkdir(parents=True)
    for parent in list(module.parents)[:3]:
        (parent / "__init__.py").touch()
    module.write_text(f"text = {help_of('0.24')!r}{FAKE_API_SERVER}", encoding="utf-8")
    metadata = packages / "vllm-0.24.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.24.0\n", encoding="utf-8")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lhkit", "serve", "--weights", str(folder)),
        env={
            "PYTHONPATH": f"{packages}:{Path(__file__).parents[2]}",
            "PATH": "/usr/bin:/bin",
            "LHKIT_CACHE_DIR": str(tmp_path / "cache"),
            "LHKIT_LOCALE": "en",
        },
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert line.startswith(b"mine is served at"), errors
    assert b"records have no server times of requests" in errors
    assert b"vLLM chooses the number type" in errors


OTHER = "google/gemma-3n-E2B-it"


@pytest.mark.parametrize(
    ("options", "words", "absent"),
    [
        (
            {"port": 8123},
            ("env", "HF_HUB_OFFLINE=1", "--served-model-name gemma", "--model {0}/of-gemma"),
            ("--tool-call-parser", "VLLM_CACHE_ROOT={0}/cache/vllm"),
        ),
        ({"port": 8123}, ("--port 8123", "--enforce-eager"), ()),
        (
            {"model": "gemma-base", "server_parser": True},
            ("--served-model-name gemma-base", "--model {0}/of-gemma-base", "--tool-call-parser"),
            (),
        ),
        ({"compiled": True}, ("VLLM_CACHE_ROOT={0}/cache/vllm",), ("--enforce-eager",)),
        ({"weights": "mine"}, ("--served-model-name mine", "--model {0}/mine"), ()),
        (
            {"lora": "mine"},
            ("--enable-lora", "--lora-modules mine={0}/mine", "--served-model-name gemma-base"),
            (),
        ),
        (
            {"lora": "mine", "model": "google/gemma-3-4b-it"},
            ("--enable-lora", "--lora-modules mine={0}/mine"),
            (),
        ),
        ({"model": OTHER}, (f"vllm serve {OTHER}",), ("--port",)),
        ({"model": OTHER, "port": 8123, "device": "gpu"}, ("--port 8123",), ()),
        ({"model": OTHER, "port": 8123, "device": "cpu"}, ("--port 8123",), ()),
        ({"model": OTHER, "server_parser": True}, ("gemma3_pythonic.jinja",), ()),
    ],
)
async def test_serve_dry_run_prints_the_line_only(
    options: dict[str, Any],
    words: tuple[str, ...],
    absent: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("config.json", "adapter_config.json", "adapter_model.safetensors"):
        (mine / name).write_text('{"peft_type": "LORA", "r": 16}', encoding="utf-8")
    monkeypatch.setattr(embedded, "embedded_folder", lambda name, _: tmp_path / f"of-{name}")
    given = {name: mine if value == "mine" else value for name, value in options.items()}
    settings = Settings(cache_dir=tmp_path / "cache")
    assert await serve_model(ServeOptions(dry_run=True, **given), settings) == 0
    line = f"{' '.join(shlex.split(capsys.readouterr().out))} ".replace("/gemma3_", "/ gemma3_")
    assert [word for word in words if f"{word.format(tmp_path)} " not in line] == []
    assert [word for word in absent if word.format(tmp_path) in line] == []
    assert {each.name for each in settings.cache_dir.glob("*")} <= {"vllm-options"}


async def test_serve_refuses_folder_without_adapter(tmp_path: Path) -> None:
    options = ServeOptions(lora=tmp_path / "nowhere", dry_run=True)
    with pytest.raises(UsageError, match="nowhere has no LoRA adapter"):
        await serve_model(options, Settings(cache_dir=tmp_path))


@pytest.mark.parametrize("dry_run", [False, True])
async def test_serve_folder_reports_hash_unless_dry_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    dry_run: bool,
) -> None:
    """What is printed may be given when the folder holds something else."""

    async def ran(_command: Sequence[str]) -> int:
        return 0

    monkeypatch.setattr(serve_line, "_run_vllm", ran)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    settings = Settings(cache_dir=tmp_path)
    await serve_model(ServeOptions(model=str(folder), dry_run=dry_run), settings)
    words = shlex.split(capsys.readouterr().out)
    alias = weights_alias(await weights_sha256(folder, tmp_path))
    named = ["--served-model-name", str(folder), alias, "lhkit-max-num-seqs-256"]
    named = [] if dry_run else named
    assert words[words.index("--max-num-seqs") + 2 :] == named


@pytest.mark.parametrize(("device", "is_printed"), [("cpu", True), ("gpu", False)])
async def test_serve_cpu_line_has_dtype_and_threads(
    device: Device,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_printed: bool,
) -> None:
    async def ran(_command: Sequence[str]) -> int:
        return 0

    monkeypatch.setattr(serve_line, "_run_vllm", ran)
    monkeypatch.setattr(serve_line, "cpu_environment", lambda: {"OMP_NUM_THREADS": "7"})
    settings = Settings(locale="en")
    await serve_model(ServeOptions(model="google/gemma-3-1b-it", device=device), settings)
    printed = capsys.readouterr()
    words, dtype = shlex.split(printed.out), choose_precision().dtype
    assert (f"Computes in {dtype}" in printed.err) == is_printed
    assert (f"lhkit-dtype-{dtype}" in words) == is_printed
    assert ("OMP_NUM_THREADS=7" in words) == is_printed
    assert ("--dtype" in words) == is_printed


@pytest.mark.parametrize("dtype", DTYPES)
async def test_serve_uses_requested_dtype(
    dtype: Dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(cache_dir=tmp_path, dtype=dtype, locale="en")
    await serve_model(ServeOptions(dry_run=True), settings)
    printed = capsys.readouterr()
    words = shlex.split(printed.out)
    assert words[words.index("--dtype") + 1] == dtype
    assert f"Computes in {dtype}, as requested." in printed.err


@pytest.mark.parametrize(("dialect", "client"), [("json", VllmHttp), ("openai", OpenAiHttp)])
async def test_open_model_chooses_client_by_dialect(dialect: str, client: type) -> None:
    async with FakeVllm() as server:
        choice = app.ModelChoice(base_url=server.base_url, dialect=dialect)
        async with app.open_model(choice, Settings()) as model:
            assert type(model) is client
            assert model.identity.dialect == dialect


async def test_open_model_ignores_unsupported_locale_of_life_helper() -> None:
    async with FakeVllm() as server:
        choice = app.ModelChoice(base_url=server.base_url)
        async with app.open_model(choice, Settings(locale="ja")) as model:
            assert model.identity.dialect == "json"


async def test_open_model_checks_constraint_with_given_tools() -> None:
    unpromised = echo_tool("nap", parameters={"type": "object", "not": {"required": ["x"]}})
    async with FakeVllm() as server:
        choice = app.ModelChoice(
            base_url=server.base_url, constraint="required", tools=(echo_tool("look"),)
        )
        async with app.open_model(choice, Settings(locale="ja")) as model:
            assert model.identity.constraint == "required"
        with pytest.raises(UsageError, match="tool 'nap': decoding cannot be constrained"):
            async with app.open_model(replace(choice, tools=(unpromised,)), Settings()):
                pass


async def test_serve_gguf_file_uses_llama_cpp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.gguf"
    file.write_text("")
    settings = Settings(cache_dir=tmp_path)
    monkeypatch.setattr(serve_line, "usable_cores", lambda: 5)
    dry = ServeOptions(model=str(file), port=8099, dry_run=True)
    assert await serve_model(dry, settings) == 0
    line = capsys.readouterr().out
    assert "gguf_serving.py --threads 5 " in line
    assert line.split()[-4:-1] == [str(file), "8099", "2"]
    assert line.rstrip().endswith(file_sha256(file))  # as an alias: clients learn which file it is
    monkeypatch.setattr("lhkit.models.serving.llama_cpp_server.find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match=r"lhkit\[local\]"):
        await serve_model(dry.model_copy(update={"dry_run": False}), settings)
