"""A pytest plugin: one test for each sample of `*.scenario.yaml` files and of marked tests.

`pytest --lhkit-toolset tools.py:toolset --lhkit-model gold` collects the files. In a module,
`@pytest.mark.lhkit("shop.yaml", toolset="tools.py:toolset")` runs a test once for each sample, with
the fixtures `scenario` and `lhkit_record`.

A sample that fails is a failed test, an infrastructure error is an error. With `--lhkit-run NAME`
the records become an ordinary run folder, and the next call runs only what is missing in it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lhkit.harness.records.manifest import Manifest
    from lhkit.harness.records.record import SampleRecord
    from lhkit.harness.running.plan import ModelSource, PlannedSample
    from lhkit.harness.running.run import EncodedRecord
    from lhkit.harness.scenarios.scenario import Scenario
    from lhkit.toolset import Toolset

SUFFIXES = (".scenario.yaml", ".scenario.yml")
_ATTEMPTS = 3
_PLUGIN = pytest.StashKey["Plugin"]()


class SampleFailedError(Exception):
    """A sample failed; the message is the report."""


class InfrastructureError(Exception):
    """A sample could not be scored, because server or tools failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("lhkit", "lhkit: scenarios as tests")
    group.addoption("--lhkit-toolset", metavar="REF", help="FILE.py:NAME or package.module:NAME.")
    group.addoption("--lhkit-model", metavar="NAME", help="gold, silent, or a served model.")
    group.addoption("--lhkit-base-url", metavar="URL", help="Address of a model server.")
    group.addoption("--lhkit-dialect", metavar="NAME", help="As in lhkit eval.")
    group.addoption("--lhkit-chat-template", metavar="FILE", type=Path, help="As in lhkit eval.")
    group.addoption("--lhkit-repeats", metavar="N", type=int, default=1, help="Runs a scenario.")
    group.addoption(
        "--lhkit-variants", action="store_true", help="Run every wording of the user's messages."
    )
    group.addoption("--lhkit-run", metavar="NAME", help="Write the records to runs/NAME.")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and keep what the session shares."""
    config.addinivalue_line(
        "markers",
        "lhkit(*paths, toolset=None): run the test once for each sample of scenario files",
    )
    plugin = Plugin(config)
    name = config.getoption("--lhkit-run")
    if name:
        _require_run_name(name)
        if not hasattr(config, "workerinput"):
            plugin.require_folder()
    config.stash[_PLUGIN] = plugin
    config.pluginmanager.register(plugin, "lhkit-session")


def _require_run_name(name: str) -> None:
    from lhkit.base.errors import UsageError
    from lhkit.harness.records.store import require_run_name

    try:
        require_run_name(name, option="--lhkit-run")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(tryfirst=True)  # before a worker of xdist sends its tests to the controller
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a run of several toolsets, or of scenarios with the same id: a folder has one."""
    if not session.config.getoption("--lhkit-run"):
        return
    items = [item for item in session.items if isinstance(item, ScenarioItem | pytest.Function)]
    fault = _run_fault([sample for item in items if (sample := _sample_of(item)) is not None])
    if fault and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["lhkit_fault"] = fault
        session.items.clear()
    elif fault:
        raise pytest.UsageError(fault)


def _run_fault(samples: "Sequence[Sample]") -> str:
    """Return why samples cannot be one run; empty if they can."""
    toolsets = list(dict.fromkeys(sample.toolset for sample in samples))
    if len(toolsets) > 1:
        return (
            f"--lhkit-run writes the run of one toolset, and the tests use {', '.join(toolsets)}. "
            "Run them separately."
        )
    paths: dict[str, Path] = {}
    for sample in samples:
        first = paths.setdefault(sample.scenario.id, sample.path)
        if not first.samefile(sample.path):
            return (
                f"--lhkit-run: {first} and {sample.path} both have a scenario "
                f"{sample.scenario.id!r}. Make each id unique, or run the files separately."
            )
    return ""


def _sample_of(item: "ScenarioItem | pytest.Function") -> "Sample | None":
    if isinstance(item, ScenarioItem):
        return item.sample
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("lhkit_sample") if callspec else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect scenario files where a toolset is given."""
    if file_path.name.endswith(SUFFIXES) and parent.config.getoption("--lhkit-toolset"):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each sample."""
    mark = metafunc.definition.get_closest_marker("lhkit")
    if mark is None:
        return
    toolset = mark.kwargs.get("toolset") or metafunc.config.getoption("--lhkit-toolset")
    if not mark.args or not toolset:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the mark lhkit needs scenario files and a toolset. "
            'Write @pytest.mark.lhkit("shop.yaml", toolset="tools.py:toolset").'
        )
    folder = metafunc.definition.path.parent
    paths = [folder / path for path in mark.args]
    samples = list(_samples(paths, _absolute(toolset, folder), metafunc.config))
    metafunc.fixturenames += [n for n in ("lhkit_sample",) if n not in metafunc.fixturenames]
    metafunc.parametrize("lhkit_sample", samples, ids=[sample.name for sample in samples])


@pytest.fixture
def scenario(lhkit_sample: "Sample") -> "Scenario":
    """The scenario of a test that is marked with `lhkit`."""
    return lhkit_sample.scenario


@pytest.fixture
def lhkit_record(lhkit_sample: "Sample", request: pytest.FixtureRequest) -> "SampleRecord":
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

    score, occurred = record.judgement, _occurred(record)
    if score.verdict is Verdict.PASS and not occurred:
        return
    violations = [f"violation that occurred: {text}" for text in occurred]
    conversation = transcript(record, load_catalog("en"), max_chars=2_000)
    raise SampleFailedError("\n".join([*score.reasons, *violations, "", conversation]))


def _occurred(record: "SampleRecord") -> list[str]:
    """Return the violations that occurred, as code and detail."""
    from lhkit.harness.records.record import Severity

    return [
        f"{violation.code} {violation.detail}".rstrip()
        for violation in record.judgement.violations
        if violation.severity is Severity.ESCAPED
    ]


@dataclass(frozen=True)
class Sample:
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


def _samples(paths: Sequence[Path], toolset: str, config: pytest.Config) -> Iterator[Sample]:
    for path in paths:
        for scenario in _load([path], config):
            for repeat in range(config.getoption("--lhkit-repeats")):
                yield Sample(path, scenario, repeat, toolset)


def _load(paths: Sequence[Path], config: pytest.Config) -> "Sequence[Scenario]":
    from lhkit.harness.running.run_options import ReplayOptions
    from lhkit.harness.scenarios.loader import load_scenarios

    options = ReplayOptions(variants=config.getoption("--lhkit-variants"))
    return options.expand(load_scenarios(paths))


def _absolute(toolset: str, folder: Path) -> str:
    """Return a reference whose file is found whatever the working directory is."""
    file, colon, name = toolset.rpartition(":")
    is_relative = file.endswith(".py") and not Path(file).is_file() and (folder / file).is_file()
    return f"{folder / file}{colon}{name}" if is_relative else toolset


class ScenarioFile(pytest.File):
    """A file of scenarios."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Yield one test for each sample."""
        from lhkit.base.errors import LhkitError

        toolset = _absolute(self.config.getoption("--lhkit-toolset"), self.path.parent)
        try:
            samples = list(_samples([self.path], toolset, self.config))
        except LhkitError as error:
            raise self.CollectError(str(error)) from error
        for sample in samples:
            yield ScenarioItem.from_parent(self, name=sample.name, sample=sample)


class ScenarioItem(pytest.Item):
    """One sample."""

    def __init__(self, *, sample: Sample, **more: Any) -> None:
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

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the sample is."""
        return self.path, None, self.name


@dataclass
class _Finished:
    """A run whose samples have been run already: `replay` writes their records."""

    records: dict[tuple[str, int], "EncodedRecord"]
    status: str = ""

    async def run_sample(self, sample: "PlannedSample", attempt: int) -> "EncodedRecord":
        """Return the finished sample."""
        return self.records[sample.scenario.name, sample.repeat]

    async def warm_up(self, samples: Sequence["PlannedSample"]) -> int:
        """Do nothing: nothing is run."""
        return 0


@dataclass(eq=False)
class Plugin:
    """What one pytest process shares: the event loop, the model, the records."""

    config: pytest.Config
    _runner: asyncio.Runner | None = None
    _stack: Any = None
    _model: "ModelSource | None" = None
    _toolsets: dict[str, "Toolset"] = field(default_factory=dict)
    _earlier: dict[tuple[str, int, str], "SampleRecord"] | None = None
    _manifest: "Manifest | None" = None
    _fault: str = ""
    _kept: list[str] = field(default_factory=list)
    _replies: list[Any] = field(default_factory=list)
    _lines: dict[str, dict[tuple[str, int], tuple[Path, str]]] = field(default_factory=dict)

    def record(self, sample: Sample, item: pytest.Item) -> "SampleRecord":
        """Run a sample, or take its record from the run folder, and keep it for the run.

        Raises:
            InfrastructureError: it cannot be scored.
        """
        from lhkit.base.errors import LhkitError
        from lhkit.harness.records.record import encode_record

        try:
            record: SampleRecord = self._run(self._recorded(sample))
        except LhkitError as error:
            raise InfrastructureError(str(error)) from None
        item.stash[_REPLIES] = _replies(record)
        if self.config.getoption("--lhkit-run"):
            line = encode_record(record)
            place = [sample.toolset, str(sample.path), *_key(sample)]
            item.stash[_LINE] = [*place, line, self._kept.pop() if self._kept else ""]
        if not record.is_valid:
            occurred = [f"violation that occurred: {text}" for text in _occurred(record)]
            raise InfrastructureError("\n".join([*record.judgement.reasons, *occurred]))
        return record

    async def _recorded(self, sample: Sample) -> "SampleRecord":
        from lhkit.harness.records.wall_clock import WallClock
        from lhkit.harness.running.plan import plan_run
        from lhkit.harness.running.run import EncodedRecord
        from lhkit.harness.running.run_options import ReplayOptions
        from lhkit.harness.running.sample import SampleContext, run_planned_sample

        model, toolset = await self._opened_model(), self._toolset(sample.toolset)
        plan = plan_run([sample.scenario], model, toolset, repeats=sample.repeat + 1)
        earlier = self._earlier_records()
        if self._manifest is not None:
            plan = plan.resuming(self._manifest)
        planned = plan.scenarios[0].sample(sample.repeat)
        kept = earlier.get((*_key(sample), planned.content_hash))
        if kept is not None:
            self._kept.append("kept" if plan.code_sha256 else "unknown")
            return kept
        clock = asyncio.get_running_loop().time
        context = SampleContext(
            model=model,
            toolset=toolset,
            clock=clock,
            options=ReplayOptions(),
            begun_s=clock(),
            started_at=None,
            wall=WallClock(clock),
        )
        for attempt in range(1, _ATTEMPTS + 1):
            record = await run_planned_sample(planned, context, attempt=attempt)
            if EncodedRecord.from_record(record).cause is None:  # None unless the server failed
                break
        return record

    def _earlier_records(self) -> dict[tuple[str, int, str], "SampleRecord"]:
        from lhkit.harness.records.store import read_manifest, read_records

        if self._earlier is None:
            folder = self._folder()
            records = read_records(folder) if folder and folder.is_dir() else ()
            self._manifest = read_manifest(folder) if folder and folder.is_dir() else None
            self._earlier = {
                (record.sample_id.name, record.sample_id.repeat, record.content_hash): record
                for record in records
                if record.is_valid
            }
        return self._earlier

    async def _opened_model(self) -> "ModelSource":
        """Return the model; without one, skip."""
        from contextlib import AsyncExitStack

        from lhkit.app import ModelChoice, open_model
        from lhkit.harness.authoring.reference import REFERENCE_MODELS
        from lhkit.settings import load_settings

        if self._model is not None:
            return self._model
        settings = load_settings()
        name = self.config.getoption("--lhkit-model")
        address = self.config.getoption("--lhkit-base-url")
        if name in REFERENCE_MODELS and not address:
            self._model = REFERENCE_MODELS[name]()
            return self._model
        address = address or settings.base_url
        if not name and not address:
            pytest.skip("no model: give --lhkit-model or --lhkit-base-url")
        choice = ModelChoice(
            name=name,
            base_url=address,
            api_key=settings.api_key,
            dialect=self.config.getoption("--lhkit-dialect"),
            chat_template=self.config.getoption("--lhkit-chat-template"),
        )
        self._stack = AsyncExitStack()
        self._model = await self._stack.enter_async_context(open_model(choice, settings))
        return self._model

    def _toolset(self, reference: str) -> "Toolset":
        from lhkit.base.options import REPLY_TOKENS
        from lhkit.toolset import limit_tokens, load_toolset

        if reference not in self._toolsets:
            self._toolsets[reference] = limit_tokens(load_toolset(reference), REPLY_TOKENS)
        return self._toolsets[reference]

    def require_folder(self) -> None:
        """Require that the run folder, if it exists, can be written now.

        Raises:
            pytest.UsageError: it is in use, cannot be written, or is invalid.
        """
        from lhkit.base.errors import LhkitError
        from lhkit.harness.records.store import open_journal, read_manifest

        folder = self._folder()
        if folder is None or not folder.exists():
            return
        try:
            with open_journal(folder):
                read_manifest(folder)
        except LhkitError as error:
            raise pytest.UsageError(str(error)) from None

    def _folder(self) -> Path | None:
        name = self.config.getoption("--lhkit-run")
        return self.config.rootpath / "runs" / name if name else None

    def _run(self, work: Any) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Shorten lhkit's own errors; send the record along with the report, also with xdist."""
        outcome: Any = yield
        report = outcome.get_result()
        own = (SampleFailedError, InfrastructureError)
        excinfo = call.excinfo
        if excinfo and isinstance(excinfo.value, own if isinstance(item, ScenarioItem) else own[1]):
            report.longrepr = _short_repr(excinfo, item)
        if report.when == "setup" and _REPLIES in item.stash:
            report.lhkit_replies = item.stash[_REPLIES]
        if report.when == "setup" and _LINE in item.stash:
            report.lhkit = item.stash[_LINE]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the records; in a worker of xdist nothing is done with them."""
        if hasattr(report, "lhkit_replies"):
            self._replies.append(report.lhkit_replies)
        if hasattr(report, "lhkit"):
            toolset, path, scenario, repeat, line, kept = report.lhkit
            self._lines.setdefault(toolset, {})[scenario, repeat] = (Path(path), line)
            self._kept += [kept] if kept else []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write how many samples were kept from the run folder."""
        from lhkit.base.locales import load_catalog

        if self._kept and not hasattr(self.config, "workerinput"):
            catalog, asked = load_catalog("en"), sum(map(len, self._lines.values()))
            lines = [catalog.text("eval.kept", count=len(self._kept), asked=asked)]
            if unknown := self._kept.count("unknown"):
                lines.append(catalog.text("eval.unknown_code", count=unknown))
            for line in lines:
                terminalreporter.write_line(f"lhkit: {line}")
        if not hasattr(self.config, "workerinput"):
            for line in self._dialect_lines():
                terminalreporter.write_line(f"lhkit: {line}")

    def _dialect_lines(self) -> Iterator[str]:
        """Yield what shows that a model does not know the dialect of its requests."""
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

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keep the fault that a worker of xdist found in the tests."""
        self._fault = getattr(node, "workeroutput", {}).get("lhkit_fault", self._fault)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the run folder, then close the model."""
        if self._fault:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            self._print(f"ERROR: {self._fault}")
        try:
            if self._lines and not hasattr(self.config, "workerinput"):
                for toolset in self._lines:
                    self._write_or_explain(toolset, session)
        finally:
            if self._runner is not None:
                if self._stack is not None:
                    self._runner.run(self._stack.aclose())
                self._runner.close()

    def _write_or_explain(self, reference: str, session: pytest.Session) -> None:
        from lhkit.base.errors import LhkitError, UsageError

        try:
            self._run(self._write(reference))
        except LhkitError as error:
            # a UsageError: a selection of tests would replace a whole run
            if not isinstance(error, UsageError) and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
            self._print(f"lhkit: {error}")

    def _print(self, line: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line, red=True)

    async def _write(self, reference: str) -> None:
        from lhkit.harness.records.record import decode_record
        from lhkit.harness.running.run import EncodedRecord, replay
        from lhkit.harness.scenarios.loader import load_scenarios

        lines = self._lines[reference]
        repeats = self.config.getoption("--lhkit-repeats")
        files = list(dict.fromkeys(path for path, _ in lines.values()))
        scenarios = load_scenarios(files)
        missing = {
            scenario.id
            for scenario in _load(files, self.config)
            for repeat in range(repeats)
            if (scenario.name, repeat) not in lines
        }
        complete = [scenario.id for scenario in scenarios if scenario.id not in missing]
        if not complete:
            return
        records = {}
        for key, (_, line) in lines.items():
            records[key] = EncodedRecord.from_record(decode_record(json.loads(line)))
        await replay(
            scenarios,
            await self._opened_model(),
            toolset=self._toolset(reference),
            runner=_Finished(records),
            run_dir=self._folder(),
            repeats=repeats,
            variants=self.config.getoption("--lhkit-variants"),
            only=complete if missing else (),
            max_attempts=1,
            progress=False,
        )


_LINE = pytest.StashKey[list[Any]]()
_REPLIES = pytest.StashKey[list[Any]]()
"""Identities, and the counts of `ReadCalls`, as values that a worker of xdist can send."""


def _replies(record: "SampleRecord") -> list[Any]:
    from lhkit.harness.figures.metrics import count_read_calls

    requests = record.evidence.requests
    found = (request.response.identity for request in requests)
    models = {(each.model, each.weights, each.dialect) for each in found if each is not None}
    read = count_read_calls(requests)
    return [[list(names) for names in models], read.messages, read.with_calls, dict(read.unread)]


def _short_repr(excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Return the message of an error of lhkit without a traceback; the summary has its start."""
    shown: Any = excinfo.getrepr(style="value", chain=False)
    if shown.reprcrash is not None:
        shown.reprcrash.message = str(excinfo.value).partition("\n")[0]
        shown.reprcrash.path = str(item.path)
        shown.reprcrash.lineno = (item.reportinfo()[1] or 0) + 1
    return shown


def _key(sample: Sample) -> tuple[str, int]:
    return sample.scenario.name, sample.repeat
