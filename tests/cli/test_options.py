"""What is typed is what a command gets; what is not typed is what its options say by themselves."""

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lhkit.cli import build_parser
from lhkit.commands.options import (
    MOST,
    AcceptOptions,
    ChatOptions,
    DoctorOptions,
    EvalOptions,
    ExportOptions,
    ImportChatsOptions,
    LintOptions,
    MatrixOptions,
    MutateOptions,
    PromptOptions,
    ReportOptions,
    RescoreOptions,
    ServeOptions,
    ServeToolsOptions,
)
from lhkit.commands.tune_options import (
    DataOptions,
    InitOptions,
    RunOptions,
    ShowOptions,
    TrainOptions,
)
from lhkit.models.weights import SHIPPED_ADAPTER
from lhkit.tuning.recipe import FROM_NOTHING, AdapterShape, TuneSettings

ONE, TWO, RUN, NEW = Path("one.yaml"), Path("two.yaml"), Path("runs/one"), Path("new")
A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


def taken(line: str) -> Any:
    """Return the options that the command of a line is called with; it is not run."""
    found = []

    def run(command: Coroutine[Any, Any, int]) -> int:
        found.append(command.cr_frame.f_locals["options"])
        command.close()
        return 0

    shown = CliRunner().invoke(build_parser(run), line.split())
    assert shown.exit_code == 0, shown.output
    (options,) = found
    return options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("eval", EvalOptions()),
        ("matrix suite.toml", MatrixOptions(suite=Path("suite.toml"))),
        ("chat", ChatOptions()),
        ("serve", ServeOptions()),
        ("mcp serve", ServeToolsOptions()),
        ("doctor", DoctorOptions()),
        ("lint", LintOptions()),
        ("mutate", MutateOptions()),
        ("accept runs/one a", AcceptOptions(run=RUN, sample="a")),
        ("prompt", PromptOptions()),
        ("import openai-messages runs/one --into new", ImportChatsOptions(file=RUN, into=NEW)),
        ("rescore runs/one", RescoreOptions(run=RUN)),
        ("report runs/one", ReportOptions(folder=RUN)),
        ("export runs/one", ExportOptions(folder=RUN)),
        ("tune init --toolset own.py:own --out new", InitOptions(toolset="own.py:own", out=NEW)),
        ("tune data --out new", DataOptions(out=NEW)),
        ("tune show one.yaml", ShowOptions(data=ONE)),
        ("tune train one.yaml --into new", TrainOptions(data=ONE, into=NEW)),
        (
            "tune run --toolset own.py:own --phrases one.yaml --into new",
            RunOptions(toolset="own.py:own", phrases=ONE, into=NEW),
        ),
    ],
)
def test_what_is_not_typed_has_the_default_that_python_sees(line: str, options: object) -> None:
    assert taken(line) == options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (
            "tune run --toolset a:b --phrases one.yaml --into new --eval two.yaml --openings 0.5",
            RunOptions(
                toolset="a:b",
                phrases=ONE,
                into=NEW,
                scored_on=(TWO,),
                openings=0.5,
            ),
        ),
        (
            "tune show one.yaml --kind follow_ups --locale ko --from 21 --count 5",
            ShowOptions(data=ONE, kind="follow_ups", locale="ko", begin=21, count=5),
        ),
        (
            "tune run --toolset a:b --phrases one.yaml --into new --made-up-names 0.25",
            RunOptions(toolset="a:b", phrases=ONE, into=NEW, made_up_names=0.25),
        ),
        (
            "tune run --toolset a:b --phrases one.yaml --into n --device cuda --rank 8",
            RunOptions(toolset="a:b", phrases=ONE, into=Path("n"), device="cuda", rank=8),
        ),
        (
            f"eval one.yaml two.yaml --base-url {A} --base-url {B} --limit 3 --exit-zero",
            EvalOptions(paths=(ONE, TWO), base_urls=(A, B), limit=3, exit_zero=True),
        ),
        (
            "eval --ray local --replicas 2 --gpus-per-replica 1 --cpus-per-replica 0.5",
            EvalOptions(ray="local", replicas=2, gpus=1, cpus=0.5),
        ),
        (
            "serve --weights new --compile --dry-run",
            ServeOptions(weights=NEW, compiled=True, dry_run=True),
        ),
        ("chat --db kept.sqlite3 --locale en", ChatOptions(file=Path("kept.sqlite3"), locale="en")),
        (
            "accept runs/one a --scenarios one.yaml --scenarios two.yaml --dry-run",
            AcceptOptions(run=RUN, sample="a", paths=(ONE, TWO), is_dry=True),
        ),
        (
            "tune train one.yaml --into new --from life-helper --keep-every 5",
            TrainOptions(data=ONE, into=NEW, start=SHIPPED_ADAPTER, keep_every_minutes=5),
        ),
        (
            "tune data --out new --apart one.yaml --apart two.yaml --reviewed talks.jsonl",
            DataOptions(out=NEW, apart=(ONE, TWO), reviewed=Path("talks.jsonl")),
        ),
    ],
)
def test_what_is_typed_arrives_as_it_was_typed(line: str, options: object) -> None:
    assert taken(line) == options


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        ("", {}),
        ("--steps 3 --rank 4", {"steps": 3, "adapter": AdapterShape(rank=4, alpha=8)}),
        ("--minutes 2 --patience 3", {"steps": MOST, "minutes": 2, "patience": 3}),
        ("--minutes 2 --steps 5 --seed 7", {"steps": 5, "minutes": 2, "seed": 7}),
        ("--device cuda", {"device": "cuda"}),
    ],
)
def test_how_to_train_is_what_is_typed_and_for_the_rest_the_recipe_from_nothing(
    line: str, recipe: dict[str, Any]
) -> None:
    options = taken(f"tune train one.yaml --into new {line}")
    assert options.recipe == replace(FROM_NOTHING, **recipe)


@pytest.mark.parametrize(("count", "kept"), [(100, 5), (1_200, 60), (6_000, 60)])
def test_the_minutes_of_a_run_go_to_learning_more_than_to_measuring(count: int, kept: int) -> None:
    run = RunOptions(toolset="own.py:own", phrases=ONE, into=NEW, count=count)
    assert round(run.dev_share * count) == kept


def test_what_python_says_of_a_training_goes_before_the_options() -> None:
    tuning = TuneSettings(steps=3, dev_every_steps=1)
    run = {"toolset": "own.py:own", "phrases": ONE, "into": NEW}
    assert TrainOptions(data=ONE, into=NEW, steps=9, tuning=tuning).recipe == tuning
    assert RunOptions(**run, minutes=9, tuning=tuning).recipe == tuning
    typed = replace(FROM_NOTHING, steps=MOST, minutes=9, seed=4)
    assert RunOptions(**run, minutes=9, seed=4).recipe == typed
    assert RunOptions(**run, device="cuda").recipe.device == "cuda"
    assert RunOptions(**run, decisive_weight=4).recipe.decisive_weight == 4
    assert RunOptions(**run, rank=8).recipe.adapter == AdapterShape(rank=8, alpha=16)
