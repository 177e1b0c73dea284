"""A pytest plugin: one test for each sample of `*.scenario.yaml` files and of marked tests.

`pytest --lhkit-toolset tools.py:toolset --lhkit-model gold` collects the files. In a module,
`@pytest.mark.lhkit("shop.yaml", toolset="tools.py:toolset")` runs a test once for each sample, with
the fixtures `scenario` and `lhkit_record`. Every option is also a key of pytest's configuration:
`lhkit_toolset = "tools.py:toolset"`. What neither says is taken from the project's `lhkit.toml`.

A sample that fails is a failed test, an infrastructure error is an error. With `--lhkit-run NAME`
each record is written to a run folder at once, and the next call runs only what is missing in it.
With `--lhkit-baseline RUN` the comparison decides, and samples that fail are expected to.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from lhkit.base.project_file import find_project_file
from lhkit.base.spelling import in_pytest

if TYPE_CHECKING:
    from lhkit.cli.suite_run import PlannedSuite, SuiteGate, SuitePlanner, SuiteRecorder
    from lhkit.harness.records.record import SampleRecord
    from lhkit.harness.running.run_options import RunOptions
    from lhkit.harness.scenarios.scenario import Scenario
    from lhkit.harness.scenarios.scenario_filter import ScenarioSelection

SUFFIXES = (".scenario.yaml", ".scenario.yml")
_NO_MODEL = "no model: give --lhkit-model or --lhkit-base-url"
_SHOWN_ERRORS = 8
"""Tests for which the same infrastructure error is shown in full; of the others, the number."""
_MORE_ERRORS = "more errors"
_PLUGIN = pytest.StashKey["Plugin"]()
_OUTCOME = pytest.StashKey[dict[str, Any]]()
_SCORES = pytest.StashKey[list[str]]()
"""The results of a sample's scores, as lines."""
_COMPARED = pytest.StashKey[str]()
_REPLIES = pytest.StashKey[list[Any]]()
"""Identities, and the counts of `ReadCalls`, as values that a worker of xdist can send."""


class _Option(NamedTuple):
    """An option of `lhkit eval` as an option of pytest."""

    field: str
    """Its name in `RunOptions`, whose default and limits apply."""
    kind: type
    help: str
    name: str = ""
    """Its name in `lhkit eval`, if that is another one."""

    @property
    def flag(self) -> str:
        return f"--lhkit-{(self.name or self.field).replace('_', '-')}"

    @property
    def key(self) -> str:
        return f"lhkit_{self.name or self.field}"


OPTIONS = (
    _Option("toolset", str, "FILE.py:NAME, package.module:NAME or mcp:SERVER."),
    _Option("model", str, "gold, silent, an embedded model, or the name of a served one."),
    _Option("base_url", str, "URL of a model server."),
    _Option("dialect", str, "Format of tool calls: json, pythonic, functiongemma, gemma4, openai."),
    _Option("chat_template", str, "Chat template of the model, or its folder."),
    _Option("constraint", str, "Constrained decoding: off, auto or required.", "constrain"),
    _Option("runtime", str, "Server of an embedded model: vllm or llama.cpp."),
    _Option("dtype", str, "Number type of an embedded model: bfloat16 or float32."),
    _Option("user", str, "Who answers confirmations: script, careful or hasty."),
    _Option("stress", str, "Harder conditions: distractors=10,shuffle,seed=1."),
    _Option("repeats", int, "Samples per scenario."),
    _Option("variants", bool, "Run every wording of the user's messages."),
    _Option("max_tokens", int, "Most tokens of a model message."),
    _Option("max_attempts", int, "Attempts per sample, if the server fails."),
    _Option("only", tuple, "Scenarios with this id, or ac01-*; repeatable."),
    _Option("tag", tuple, "Scenarios with this tag; repeatable."),
    _Option("ac", tuple, "Scenarios of this criterion; repeatable."),
    _Option("locale", tuple, "Scenarios in this language; repeatable."),
    _Option("failed", str, "Scenarios that failed in this run."),
    _Option("sample", int, "So many scenarios, drawn at random."),
    _Option("seed", int, "Seed of that draw."),
    _Option("limit", int, "The first scenarios, at most so many."),
    _Option("keep_prompts", bool, "Keep prompt texts in the records."),
    _Option("keep_states", bool, "Keep whole states in the records."),
    _Option("logprobs", bool, "Keep the weakest and the mean log-probability of each call."),
    _Option(
        "approvals", str, "Policy of approvals: the writes that it lets through are not asked."
    ),
    _Option("scores", tuple, "Your own scores: FILE.py:NAME; repeatable.", "score"),
)
_RUN = _Option("", str, "Write the records to runs/NAME, and run only what is missing.", "run")
_BASELINE = _Option(
    "",
    str,
    "A run to compare with: it decides, and what failed there, too, is xfailed.",
    "baseline",
)
_MOST = _Option(
    "", int, "With a baseline: at most so many scenarios may regress.", "max_regressions"
)
_STOP = _Option(
    "",
    bool,
    "With a baseline: run the scenarios in a random order, and skip the rest when an always-valid "
    "test has decided.",
    "stop_when_decided",
)
_OWN = (_RUN, _BASELINE, _MOST, _STOP)
"""Options that are not those of a run."""


class SampleFailedError(Exception):
    """A sample failed; the message is the report.

    Attributes:
        name: of its scenario in its wording.
        has_occurred: whether a violation occurred in it.
    """

    def __init__(self, message: str, *, name: str = "", has_occurred: bool = False) -> None:
        super().__init__(message)
        self.name = name
        self.has_occurred = has_occurred


class InfrastructureError(pytest.fail.Exception):  # type: ignore[name-defined,misc]
    """A sample could not be scored, because server or tools failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)  # in every phase, also in the setup of a fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and the keys of the configuration."""
    group = parser.getgroup("lhkit", "lhkit: scenarios as tests")
    actions: dict[type, dict[str, Any]] = {
        bool: {"action": "store_true", "default": None},
        int: {"type": int, "metavar": "N"},
        str: {"metavar": "VALUE"},
        tuple: {"action": "append", "metavar": "VALUE"},
    }
    kinds: dict[type, Any] = {bool: "bool", str: "string", tuple: "args"}
    kinds[int] = "int" if pytest.version_tuple >= (8, 4) else "string"
    for option in (*OPTIONS, *_OWN):
        group.addoption(option.flag, dest=option.key, help=option.help, **actions[option.kind])
        parser.addini(option.key, option.help, type=kinds[option.kind], default=None)


def _given(config: pytest.Config, option: _Option) -> Any:
    """Return the value on the command line, else in the configuration file, else None."""
    value = config.getoption(option.key)
    if value is None:
        try:
            value = config.getini(option.key)
            value = None if value is False or value in ("", []) else value
            value = int(value) if value is not None and option.kind is int else value
        except (pytest.UsageError, TypeError, ValueError) as error:  # do not name the key
            raise pytest.UsageError(f"{option.key} is invalid: {error}") from None
    return tuple(value) if isinstance(value, list) else value


def _read_project(folder: Path, config: pytest.Config) -> dict[str, Any]:
    from lhkit.base.errors import LhkitError
    from lhkit.cli.frame.project import find_project
    from lhkit.settings import load_settings

    given = {option.field: _given(config, option) for option in OPTIONS}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        project = find_project(folder)
        keys = ("toolset", "model", "base_url", "dialect", "user", "scores")
        given.pop("scores", None)  # those of the project and of the options add up
        return project.defaults(keys, given, load_settings()) if project else {}
    except LhkitError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and check the options."""
    config.addinivalue_line(
        "markers",
        "lhkit(*paths, toolset=None): run the test once for each sample of scenario files",
    )
    plugin = config.stash[_PLUGIN] = Plugin(config)
    if any(_given(config, option) is not None for option in (*OPTIONS, *_OWN)):
        from lhkit.base.errors import LhkitError

        try:
            plugin.require_valid()
        except LhkitError as error:
            raise pytest.UsageError(in_pytest(str(error))) from None
    config.pluginmanager.register(plugin, "lhkit-session")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return what is taken from `lhkit.toml`."""
    values = config.stash[_PLUGIN].project_values()
    shown = ", ".join(
        f"{name} {' '.join(value) if isinstance(value, tuple) else value}"
        for name, value in values.items()
    )
    return [f"lhkit.toml: {shown}"] if shown else []


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect scenario files where a toolset is given."""
    if file_path.name.endswith(SUFFIXES) and parent.config.stash[_PLUGIN].toolset:
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each sample."""
    from lhkit.base.errors import LhkitError

    mark = metafunc.definition.get_closest_marker("lhkit")
    if mark is None:
        return
    plugin = metafunc.config.stash[_PLUGIN]
    toolset = mark.kwargs.get("toolset") or plugin.toolset
    if not mark.args or not toolset:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: the mark lhkit needs scenario files and a toolset. "
            'Write @pytest.mark.lhkit("shop.yaml", toolset="tools.py:toolset").'
        )
    folder = metafunc.definition.path.parent
    try:
        samples = [
            each for path in mark.args for each in plugin.samples(folder / path, toolset, folder)
        ]
    except LhkitError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    metafunc.fixturenames += [n for n in ("lhkit_sample",) if n not in metafunc.fixturenames]
    metafunc.parametrize("lhkit_sample", samples, ids=[sample.name for sample in samples])


@pytest.fixture
def scenario(lhkit_sample: "PlannedTest") -> "Scenario":
    """The scenario of a test that is marked with `lhkit`."""
    return lhkit_sample.scenario


@pytest.fixture
def lhkit_record(lhkit_sample: "PlannedTest", request: pytest.FixtureRequest) -> "SampleRecord":
    """The record of the sample, run by the configured model.

    An infrastructure error is an error of the test, and without a model the test is skipped. What
    is required of the record is up to the test; `assert_passed(record)` requires a pass.
    """
    return request.config.stash[_PLUGIN].record(lhkit_sample, request.node)


def assert_passed(record: "SampleRecord") -> None:
    """Require that a sample passed and that no violation occurred.

    Raises:
        SampleFailedError: it did not; the message shows why, and the conversation.
    """
    from lhkit.base.locales import load_catalog
    from lhkit.harness.records.record import Verdict
    from lhkit.harness.records.transcript import transcript

    __tracebackhide__ = True
    score, occurred = record.score, _occurred(record)
    if score.verdict is Verdict.PASS and not occurred:
        return
    conversation = transcript(record, load_catalog("en"), max_chars=2_000)
    message = "\n".join([*score.reasons, *occurred, "", conversation])
    raise SampleFailedError(message, name=record.sample_id.name, has_occurred=bool(occurred))


def _occurred(record: "SampleRecord") -> list[str]:
    """Return a line for each violation that occurred."""
    from lhkit.harness.records.record import Severity

    return [
        f"violation that occurred: {violation.code} {violation.detail}".rstrip()
        for violation in record.score.violations
        if violation.severity is Severity.ESCAPED
    ]


@dataclass(frozen=True)
class PlannedTest:
    """One scenario, wording and repeat of a file, and the reference of its toolset."""

    path: Path
    scenario: "Scenario"
    repeat: int
    toolset: str

    @property
    def name(self) -> str:
        """The sample's id: `scenario`, or `scenario#2` for its second repeat."""
        name = self.scenario.name
        return name if self.repeat == 0 else f"{name}#{self.repeat + 1}"


class ScenarioFile(pytest.File):
    """A file of scenarios."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Yield one test for each sample."""
        from lhkit.base.errors import LhkitError

        plugin = self.config.stash[_PLUGIN]
        try:
            samples = plugin.samples(self.path, plugin.toolset, self.path.parent)
        except LhkitError as error:
            raise self.CollectError(str(error)) from None
        for sample in samples:
            yield ScenarioItem.from_parent(self, name=sample.name, sample=sample)


class ScenarioItem(pytest.Item):
    """One sample."""

    def __init__(self, *, sample: PlannedTest, **more: Any) -> None:
        super().__init__(**more)
        self.sample = sample
        self.record: SampleRecord | None = None

    def setup(self) -> None:
        """Run the sample, so that an infrastructure error is an error and no failure."""
        self.record = self.config.stash[_PLUGIN].record(self.sample, self)

    def runtest(self) -> None:
        """Require a pass."""
        if self.record is not None:
            assert_passed(self.record)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the message of a failed sample; its traceback, slow to build, is not shown."""
        if isinstance(excinfo.value, SampleFailedError):
            return _short_repr(excinfo, self)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the sample is; one line for all, so that skipped ones are one line."""
        return self.path, 0, self.name


def _samples_of(items: Iterable[pytest.Item]) -> dict[pytest.Item, PlannedTest]:
    """Return the items that have a sample, with it."""
    samples: dict[pytest.Item, PlannedTest] = {}
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        sample = item.sample if isinstance(item, ScenarioItem) else parameters.get("lhkit_sample")
        if isinstance(sample, PlannedTest):
            samples[item] = sample
    return samples


@dataclass(eq=False)
class Plugin:
    """What one pytest process shares: the options, the model, a plan for each toolset.

    With pytest-xdist the workers have plans and models, and the controller writes the run folder.
    """

    config: pytest.Config
    _scenarios: dict[Path, "Sequence[Scenario]"] = field(default_factory=dict)
    _runner: asyncio.Runner | None = None
    _planner: "SuitePlanner | None" = None
    _project: dict[str, Any] | None = None
    _error: str = ""
    _planned: "dict[tuple[str, Path], PlannedSuite]" = field(default_factory=dict)
    _manifest: str = ""
    _selection: "ScenarioSelection | None" = None
    _recorder: "SuiteRecorder | None" = None
    _gate: "SuiteGate | None" = None
    _usage_error: str = ""
    _notices: list[str] = field(default_factory=list)
    _errors: Counter[str] = field(default_factory=Counter)
    _skipped: int = 0
    _replies: list[Any] = field(default_factory=list)
    _scores: list[str] = field(default_factory=list)

    @property
    def toolset(self) -> str:
        """The toolset of scenario files; empty if neither an option nor `lhkit.toml` has one."""
        return str(_given(self.config, OPTIONS[0]) or self.project_values().get("toolset", ""))

    def project_values(self) -> dict[str, Any]:
        """Return the values of the project's `lhkit.toml` that no option or variable gives.

        Raises:
            pytest.UsageError: the file is invalid.
        """
        if self._project is None:
            folder = self.config.invocation_params.dir
            self._project = _read_project(folder, self.config) if find_project_file(folder) else {}
        return self._project

    @property
    def is_worker(self) -> bool:
        """True in a worker of pytest-xdist."""
        return hasattr(self.config, "workerinput")

    @property
    def folder(self) -> Path | None:
        """The run folder, if the records are written."""
        name = _given(self.config, _RUN)
        return self.config.rootpath / "runs" / name if name else None

    def options(self, **more: Any) -> "RunOptions":
        """Return the options of the run; `more` replaces some.

        Raises:
            UsageError: a value is invalid.
        """
        from lhkit.base.options import validate_options
        from lhkit.confirm.policy import load_policy
        from lhkit.harness.running.run_options import RunOptions

        values = {option.field: _given(self.config, option) for option in OPTIONS} | more
        failed = self.config.rootpath / "runs" / (values["failed"] or "")
        if values["failed"] and failed.is_dir():
            values["failed"] = failed
        if values["scores"]:
            values["scores"] = [
                self._beside(each, self.config.rootpath) for each in values["scores"]
            ]
        if values["approvals"]:
            values["approvals"] = load_policy(self.config.rootpath / values["approvals"])
        given = {name: value for name, value in values.items() if value is not None}
        project = self.project_values()
        scores = (*project.get("scores", ()), *given.get("scores", ()))
        return validate_options(RunOptions, **{**project, **given, "scores": scores})

    def require_valid(self) -> None:
        """Check the options, and that the run folder can be written, before anything is collected.

        Raises:
            LhkitError: an option is invalid, or the folder is in use or cannot be written.
        """
        from lhkit.harness.records.store import open_journal, read_manifest, require_run_name

        options = self.options()
        self._load_gate(is_failed_only=options.failed is not None)
        if self.folder is None:
            return
        require_run_name(_given(self.config, _RUN), option=_RUN.flag)
        if self.folder.exists() and not self.is_worker:
            with open_journal(self.folder):
                read_manifest(self.folder)

    @staticmethod
    def _beside(reference: str, *folders: Path) -> str:
        """Return a reference whose file is in the working directory, or in one of some folders."""
        file, colon, name = reference.rpartition(":")
        if file.endswith(".py") and not Path(file).is_file():
            places = [folder / file for folder in folders]
            file = str(next((place for place in places if place.is_file()), file))
        return f"{file}{colon}{name}"

    @property
    def is_compared(self) -> bool:
        """True if a comparison decides, not each sample."""
        return _given(self.config, _BASELINE) is not None

    def _load_gate(self, *, is_failed_only: bool) -> None:
        from lhkit.base.errors import UsageError

        name, most = _given(self.config, _BASELINE), _given(self.config, _MOST)
        is_stopping = _given(self.config, _STOP) is not None
        for option, is_given in ((_MOST, most is not None), (_STOP, is_stopping)):
            if name is None and is_given:
                raise UsageError(f"{option.flag} is for a comparison: give {_BASELINE.flag} too")
        if name is None:
            return
        if is_stopping:
            self._require_stoppable(most)
        if most is not None and most < 0:
            raise UsageError(f"{_MOST.flag}={most}: give at least 0")
        from lhkit.cli.suite_run import SuiteGate

        folder = self.config.rootpath / name
        self._gate = SuiteGate.load(
            folder if folder.is_dir() else Path(name),
            self.config.rootpath / "runs",
            most,
            is_failed_only=is_failed_only,
            order_seed=self.options().seed if is_stopping else None,
        )

    def _require_stoppable(self, max_regressions: int | None) -> None:
        from lhkit.base.errors import UsageError

        if max_regressions is not None:
            raise UsageError(
                f"{_STOP.flag} stops by the paired test, and {_MOST.flag} counts over all "
                "scenarios: leave one of them out"
            )
        if self.is_worker or self.config.getoption("dist", "no") != "no":
            raise UsageError(
                f"{_STOP.flag} looks at the scenarios one after the other, and the workers of "
                "pytest-xdist do not know what the others found: leave out -n, or give -n 0"
            )

    def samples(self, path: Path, toolset: str, folder: Path) -> list[PlannedTest]:
        """Return the samples of a scenario file.

        Args:
            path: the file.
            toolset: a reference; a file in it is looked for in the working directory, in `folder`
                and beside the configuration file.
            folder: of the test.

        Raises:
            LhkitError: the file or an option is invalid.
        """
        from lhkit.harness.running.prepared import all_wordings
        from lhkit.harness.scenarios.loader import load_scenarios

        path = path.resolve()  # the same file may be named in several ways
        if path not in self._scenarios:
            self._scenarios[path] = load_scenarios([path])
        toolset = self._beside(toolset, folder, self.config.rootpath)
        options = self.options()
        return [
            PlannedTest(path, scenario, repeat, toolset)
            for scenario in all_wordings(self._scenarios[path], options)
            for repeat in range(options.repeats)
        ]

    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Deselect the scenarios that `--lhkit-tag` and the like leave out."""
        samples = _samples_of(items)
        if not samples:
            return
        from lhkit.base.errors import LhkitError
        from lhkit.harness.running.prepared import choose_scenarios

        try:
            chosen = choose_scenarios(self._scenarios_of(samples.values()), self.options())
        except LhkitError as error:
            self._refuse(session, str(error))
            return
        ids = {scenario.id for scenario in chosen.scenarios}
        dropped = [item for item, sample in samples.items() if sample.scenario.id not in ids]
        if dropped:
            self.config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item in items if item not in dropped]

    def _scenarios_of(self, samples: Iterable[PlannedTest]) -> "list[Scenario]":
        """Return all scenarios of the files of some samples."""
        paths = dict.fromkeys(sample.path for sample in samples)
        return [scenario for path in paths for scenario in self._scenarios[path]]

    @pytest.hookimpl(tryfirst=True)  # before a worker of xdist sends its tests to the controller
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Load each toolset, open the model and plan the samples that remain, once."""
        from lhkit.base.errors import LhkitError

        samples = _samples_of(session.items)
        if not samples or self.config.option.collectonly:
            return
        try:
            self._prepare(samples)
        except LhkitError as error:
            self._refuse(session, str(error))
            return
        if self._gate is not None and self._gate.analysis is not None:
            session.items[:] = _in_order(session.items, samples, self._gate.analysis.order)

    def _refuse(self, session: pytest.Session, error: str) -> None:
        """End the session with one message, also from a worker of xdist."""
        error = _spelled(error)
        if not self.is_worker:
            raise pytest.UsageError(error)
        self.config.workeroutput["lhkit_error"] = error  # type: ignore[attr-defined]
        session.items.clear()

    def _prepare(self, samples: Mapping[pytest.Item, PlannedTest]) -> None:
        from lhkit.base.errors import UsageError
        from lhkit.settings import load_settings

        same_id = _same_id(samples.values())
        if (self.folder or self.is_compared) and (
            error := _several_toolsets(samples.values()) or same_id
        ):
            raise UsageError(f"{(_RUN if self.folder else _BASELINE).flag} {error}")
        options, settings = self.options(), load_settings()
        if not (options.model or options.base_url or settings.base_url):
            for item in samples:
                item.add_marker(pytest.mark.skip(reason=_NO_MODEL))
            return
        from lhkit.cli.suite_run import ModelUnavailableError, SuitePlanner

        groups: dict[tuple[str, Path | None], list[PlannedTest]] = {}
        for sample in samples.values():
            # one plan a toolset, or one a file where ids are not unique
            key = (sample.toolset, sample.path if same_id else None)
            groups.setdefault(key, []).append(sample)
        worker = getattr(self.config, "workerinput", {})
        self._runner = asyncio.Runner()
        self._planner = SuitePlanner(
            settings=settings,
            folder=self.folder,
            workers=worker.get("workercount", 1),
            command=worker.get("mainargv", sys.argv)[1:],
            gate=self._gate,
        )
        try:
            for group in groups.values():
                planned = self._runner.run(self._planner.plan(*self._options_for(group)))
                self._planned |= {(sample.toolset, sample.path): planned for sample in group}
                self._manifest, self._selection = planned.manifest, planned.selection
                self._notices += planned.notices
        except ModelUnavailableError as error:
            self._error = str(error)
        if self.is_worker:
            self.config.workeroutput["lhkit_notices"] = self._notices  # type: ignore[attr-defined]

    def _options_for(self, samples: Sequence[PlannedTest]) -> "tuple[RunOptions, list[Scenario]]":
        """Return the options that select the scenarios of some samples, and all to select from."""
        from lhkit.harness.scenarios.scenario_filter import ScenarioFilter

        scenarios = self._scenarios_of(samples)
        ids = tuple(dict.fromkeys(sample.scenario.id for sample in samples))
        filters: dict[str, Any] = dict.fromkeys(ScenarioFilter.model_fields)
        filters["only"] = ids if len(ids) < len(scenarios) else None
        return self.options(**filters, toolset=samples[0].toolset), scenarios

    def record(self, sample: PlannedTest, item: pytest.Item) -> "SampleRecord":
        """Run a sample, or take its record from the run folder.

        Raises:
            InfrastructureError: it cannot be scored.
        """
        if self._error:
            raise InfrastructureError(in_pytest(self._error))
        planned = self._planned.get((sample.toolset, sample.path))
        if planned is None or self._runner is None:  # requested by `getfixturevalue` only
            pytest.skip(_NO_MODEL)
        analysis = None if self._gate is None else self._gate.analysis
        name, repeat = sample.scenario.name, sample.repeat
        if analysis is not None and analysis.is_decided and not planned.has_record(name, repeat):
            pytest.skip(f"decided after {analysis.looked} of {len(analysis.order)} scenarios")
        recorded = self._runner.run(planned.record(name, repeat))
        record = recorded.record
        if analysis is not None:
            analysis.record(record.sample_id, record.score.verdict)
        item.stash[_REPLIES] = _replies(record)
        if recorded.scores:
            from lhkit.harness.records.score_record import encode_score

            item.stash[_SCORES] = [encode_score(result) for result in recorded.scores]
            item.user_properties += [
                (f"score {value.name}", value.value)
                for result in recorded.scores
                for value in result.values
            ]
        if self.is_compared:
            from lhkit.cli.suite_run import record_line

            item.stash[_COMPARED] = record_line(record)
        if self.folder is not None:
            item.stash[_OUTCOME] = {
                "sample": str(record.sample_id),
                "line": recorded.line,
                "is_valid": record.is_valid,
                "manifest": self._manifest,
                "scores": list(recorded.score_lines),
            }
            self._manifest = ""
        if not record.is_valid:
            raise InfrastructureError(
                in_pytest("\n".join([*record.score.reasons, *_occurred(record)]))
            )
        return record

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Shorten errors of servers and tools; send the record along, also with xdist."""
        report: Any = yield
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, InfrastructureError):
            report.lhkit_error = str(error)
            report.longrepr = _short_repr(call.excinfo, item)
        if (
            self._gate is not None
            and isinstance(error, SampleFailedError)
            and not error.has_occurred
            and not self._gate.is_decided_by(error.name)
        ):
            report.outcome, report.wasxfail = "skipped", str(error).partition("\n")[0]
        if _COMPARED in item.stash:
            report.lhkit_compared = item.stash[_COMPARED]
            del item.stash[_COMPARED]
        if _REPLIES in item.stash:
            report.lhkit_replies = item.stash[_REPLIES]
            del item.stash[_REPLIES]
        if _SCORES in item.stash:
            report.lhkit_scores = item.stash[_SCORES]
            del item.stash[_SCORES]
        if _OUTCOME in item.stash:
            report.lhkit_outcome = item.stash[_OUTCOME]
            del item.stash[_OUTCOME]
        return cast("pytest.TestReport", report)

    @pytest.hookimpl(tryfirst=True)  # before the terminal shows the report
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write the record of a report, and count errors and replies for the summary."""
        if self.is_worker:
            return
        if error := getattr(report, "lhkit_error", ""):
            self._errors[error] += 1
            report.is_more = self._errors[error] > _SHOWN_ERRORS
        if hasattr(report, "lhkit_replies"):
            self._replies.append(report.lhkit_replies)
        self._scores += getattr(report, "lhkit_scores", ())
        if self._gate is not None and hasattr(report, "lhkit_compared"):
            self._gate.add(report.lhkit_compared)
        self._skipped += report.skipped and _NO_MODEL in str(report.longrepr)
        if hasattr(report, "lhkit_outcome") and self.folder is not None:
            from lhkit.cli.suite_run import SuiteRecorder

            self._recorder = self._recorder or SuiteRecorder(self.folder)
            self._recorder.add(**report.lhkit_outcome)

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Count an error that was shown often enough without showing it once more."""
        return (_MORE_ERRORS, "E", "ERROR") if getattr(report, "is_more", False) else None

    def _dialect_lines(self) -> Iterator[str]:
        """Yield warnings about a dialect that does not fit the model."""
        from lhkit.base.locales import load_catalog
        from lhkit.conversation.responses import ModelIdentity
        from lhkit.harness.figures.metrics import ReadCalls
        from lhkit.harness.views.tables import dialect_lines

        models = {
            ModelIdentity(model=model, weights=weights, dialect=dialect): None
            for identities, *_ in self._replies
            for model, weights, dialect in identities
        }
        unread: Counter[str] = Counter()
        for *_, formats in self._replies:
            unread.update(formats)
        read = ReadCalls(
            messages=sum(messages for _, messages, _, _ in self._replies),
            with_calls=sum(with_calls for _, _, with_calls, _ in self._replies),
            unread=dict(unread),
        )
        yield from dialect_lines(tuple(models), read, load_catalog("en"))

    def _score_lines(self) -> Iterator[str]:
        """Yield one line for each score."""
        from lhkit.base.locales import load_catalog
        from lhkit.harness.figures.score_figures import score_figures
        from lhkit.harness.records.score_record import decode_score
        from lhkit.harness.views.scores import figure_lines

        results = list(map(decode_score, self._scores))
        valid = {result.sample_id for result in results}
        yield from figure_lines(score_figures(valid, results), load_catalog("en"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Store the usage error and the notices of an xdist worker."""
        output = getattr(node, "workeroutput", {})
        self._usage_error = output.get("lhkit_error", self._usage_error)
        self._notices += [n for n in output.get("lhkit_notices", ()) if n not in self._notices]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Complete the run folder, and close the model."""
        if self._recorder is not None:
            if self._gate is not None and self._gate.analysis is not None:
                self._recorder.selection = self._gate.analysis.selection(self._selection)
            self._recorder.close()
            if self._recorder.error and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
        result = self._gate.check() if self._gate is not None else None
        if result is not None and result.exit_code and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._usage_error:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if self._runner is not None and self._planner is not None:
            with self._runner:
                self._runner.run(self._planner.aclose())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print counts of reused samples, notices and errors."""
        if self._usage_error:
            terminalreporter.write_line(f"ERROR: {self._usage_error}", red=True)
        for line in dict.fromkeys(self._summary()):  # planning and the records may warn of the same
            terminalreporter.write_line(f"lhkit: {line}")

    def _summary(self) -> Iterator[str]:
        if self._recorder is not None:
            yield from self._recorder.summary()
        yield from self._notices
        if self._gate is not None and (result := self._gate.check()) is not None:
            lines = (*result.remarks, *result.findings, *self._gate.stopped_lines())
            yield from map(_spelled, lines)
            yield from self._gate.regressed_lines()
        for error, count in self._errors.items():
            if count > _SHOWN_ERRORS:
                first = error.partition("\n")[0]
                yield f"{count - _SHOWN_ERRORS} more tests have the same error: {first}"
        if self._skipped:
            yield f"{self._skipped} samples were not run: {_NO_MODEL}"
        if self._replies:
            yield from self._dialect_lines()
        if self._scores:
            yield from self._score_lines()


def _spelled(text: str) -> str:
    """Return a message of lhkit with the options of pytest."""
    return in_pytest(text).replace(" --stop-when-decided", f" {_STOP.flag}")


def _in_order(
    items: Sequence[pytest.Item],
    samples: Mapping[pytest.Item, PlannedTest],
    order: Iterable[str],
) -> list[pytest.Item]:
    """Return the items with the samples among them in the order of their scenarios."""
    places = {scenario: place for place, scenario in enumerate(order)}
    ordered = iter(sorted(samples, key=lambda item: places[samples[item].scenario.id]))
    return [next(ordered) if item in samples else item for item in items]


def _several_toolsets(samples: Iterable[PlannedTest]) -> str:
    """Return why samples of several toolsets cannot be one run; empty if there is one toolset."""
    toolsets = list(dict.fromkeys(sample.toolset for sample in samples))
    if len(toolsets) == 1:
        return ""
    return (
        f"is for the run of one toolset, and the tests use {', '.join(toolsets)}. "
        "Run them separately."
    )


def _same_id(samples: Iterable[PlannedTest]) -> str:
    """Return why files with the same ids cannot be one run; empty if ids are unique."""
    paths: dict[str, Path] = {}
    for sample in samples:
        first = paths.setdefault(sample.scenario.id, sample.path)
        if first != sample.path:
            return (
                f"needs unique ids: {first} and {sample.path} both have a scenario "
                f"{sample.scenario.id!r}. Rename one, or run the files separately."
            )
    return ""


def _replies(record: "SampleRecord") -> list[Any]:
    from lhkit.harness.figures.metrics import count_read_calls

    requests = record.trajectory.requests
    found = (request.response.identity for request in requests)
    models = {(each.model, each.weights, each.dialect) for each in found if each is not None}
    read = count_read_calls(requests)
    return [[list(names) for names in models], read.messages, read.with_calls, dict(read.unread)]


def _short_repr(excinfo: Any, item: pytest.Item) -> Any:
    """Return the message of an error of lhkit without a traceback; the summary has its start."""
    shown = excinfo.getrepr(style="value", chain=False)
    if shown.reprcrash is not None:
        shown.reprcrash.message = str(excinfo.value).partition("\n")[0]
        shown.reprcrash.path = str(item.path)
        shown.reprcrash.lineno = (item.reportinfo()[1] or 0) + 1
    return shown
