"""Reviewing conversations call by call: labels that are kept, and what can be made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lhkit.confirm.form import Form, filled
from lhkit.errors import UsageError
from lhkit.files import write_whole
from lhkit.harness.author.accept import (
    accept_argument,
    observed_arguments,
    require_unchanged,
    tool_schema,
)
from lhkit.harness.corrections import CorrectedConversation, mended, scenario_from_review, talk_line
from lhkit.harness.loader import read_sources
from lhkit.harness.record import SampleRecord
from lhkit.harness.results import Run
from lhkit.harness.reviews import (
    CallPlace,
    Label,
    LabelKind,
    Reviewed,
    ReviewFile,
    compare_reviews,
    reviewers_of,
    turn_of,
    turn_sha256,
)
from lhkit.harness.store import RECORDS
from lhkit.json_values import shown
from lhkit.locales import DEFAULT_LOCALE, load_catalog
from lhkit.notebook.board import Board, Press
from lhkit.notebook.board_state import WITH_CALL, WITH_WORDS, Correction, ReviewState
from lhkit.notebook.board_view import review_lines, review_parts
from lhkit.notebook.loop import HomeLoop
from lhkit.tools.validation import Accepted, ArgumentValidator
from lhkit.toolset import DEFAULT, Toolset, ToolsetSource, load, load_toolset


class Review(Board[ReviewState]):
    """Conversations of a folder, judged one call and one reply after another, by keys.

    `1` right, `2` wrong, `3` another call should have been; for a reply `1` fine, `2` not fine,
    `3` a call is missing before it. Arrows move, `n` and `p` go to another conversation. A label is
    on the disk when the next place is shown; a review that is opened again goes on where it was.

    Example:
        ```
        review = Review("runs/chats", reviewer="kim")
        review
        await review.to_scenarios("scenarios/reviewed")
        ```

    Args:
        source: a folder of kept chats or of a run, or a run that was loaded.
        reviewer: who judges; two people review one folder under two names.
        toolset: the tools that conversations are replayed with; needed unless they are
            life-helper's. A toolset that only the folder names is never loaded.
        scenarios: files or folders that a run was played from: their worlds, and for `accept`.
        locale: language of the review (`ko`, `en`).
        folder: where labels are kept; by default the folder of the run.

    Raises:
        MissingRunError: there is no run in the folder.
        UsageError: there is no conversation in it, or the reviewer's name makes no file name.
    """

    def __init__(
        self,
        source: Run | Path | str,
        *,
        reviewer: str = "reviewer",
        toolset: ToolsetSource | None = None,
        scenarios: tuple[Path | str, ...] = (),
        locale: str = DEFAULT_LOCALE,
        folder: Path | str | None = None,
    ) -> None:
        self._run = source if isinstance(source, Run) else Run.load(source)
        self._folder = Path(folder) if folder else _folder_of(source)
        records = tuple(record for record in self._run.records if record.evidence.turns)
        if not records:
            raise UsageError(f"{self._folder} holds no conversation to review")
        self._toolset = toolset
        self._sources = read_sources([Path(each) for each in scenarios]) if scenarios else None
        self._file = ReviewFile(self._folder, reviewer)
        state = ReviewState(
            reviewer=reviewer,
            records=records,
            tools={
                language: {tool["name"]: tool["parameters"] for tool in told.get("tools", ())}
                for language, told in self._run.manifest.get("locales", {}).items()
            },
            labels={
                place: label for record in records for place, label in self._file.of(record).items()
            },
            place=-1,  # before the first
        )
        catalog = load_catalog(locale)
        title = catalog.text("review.title")
        super().__init__(state, loop=HomeLoop(), catalog=catalog, title=title)
        self._show(state.at_next_open() or state.moved(0))

    def _lines(self) -> list[str]:
        return review_lines(self._state, self._catalog)

    def _parts(self) -> Sequence[str]:
        return review_parts(self._state, self._catalog)

    def judge(
        self,
        held: LabelKind | str,
        *,
        tool: str = "",
        args: Mapping[str, Any] | None = None,
        say: str = "",
    ) -> None:
        """Say what is to be held of the place that is looked at, and go on to the next open one.

        Args:
            held: `right`, `wrong` or `should_be` of a call; `fine`, `not_fine` or `call_missing` of
                a reply.
            tool: the call that should be there, for `should_be` and `call_missing`.
            args: its arguments.
            say: what should have been said, for `not_fine` and `call_missing`, if you know it.

        Raises:
            UsageError: that cannot be said of this place, or the tool refuses the arguments.
            RunError: the label cannot be written.
        """
        chosen = LabelKind(held)
        if chosen not in self._state.choices:
            kind = "reply" if self._state.call is None else "call"
            raise UsageError(f"{chosen} cannot be said of a {kind}: see the buttons of the review")
        has_call = chosen in WITH_CALL
        if has_call and (fault := self._fault_of(tool, args or {})):
            raise UsageError(f"{tool}: {fault}")
        place = self._state.current
        label = Label(
            place=place,
            held=chosen,
            seen_sha256=turn_sha256(turn_of(place, self._state.record)),
            tool=tool if has_call else "",
            args=dict(args or {}) if has_call else None,
            say=say.strip() if chosen in WITH_WORDS else "",
        )
        self._file.append(label)
        self._change(labels={**self._state.labels, place: label}, form=None, told=())
        self._go_on()

    def _go_on(self) -> None:
        following = self._state.at_next_open()
        if following is not None:
            self._show(following)
        else:
            self._tell(self._catalog.text("review.all_done"))

    def go(self, conversation: int, place: int = 0) -> None:
        """Look at another place; both count from 0."""
        self._show(self._state.moved(conversation, place))

    def agreement(self, *reviewers: str) -> Reviewed:
        """Return how two reviewers agree, on what both have judged, and where they differ.

        Raises:
            UsageError: there are not two reviewers: name them.
        """
        return compare_reviews(self._state.records, self._folder, *reviewers)

    async def to_scenarios(self, folder: Path | str) -> tuple[Path, ...]:
        """Write a scenario file for each conversation that is judged whole, and return them.

        The calls that are right, and those that should have been, are made with the real tools in
        the conversation's world: the gold passes, and `lhkit lint` has nothing to say but of a
        reply that is not fine and for which no better words were written.

        Raises:
            UsageError: nothing is judged whole, a world is not known, a mended call comes to a
                mistake, or `toolset` is needed.
            OSError: a file cannot be written.
        """
        toolset, target = self._own_toolset(), Path(folder)
        ac = None if self._run.toolset == DEFAULT else "chat"
        texts = {
            target / f"reviewed-{talk.name.replace('#', '-')}.yaml": await scenario_from_review(
                talk, toolset, ac=ac
            )
            for talk in self.talks()
        }
        return _written(texts)

    def to_training(self, path: Path | str) -> Path:
        """Write the mended conversations as lines of JSON; return the file.

        Raises:
            UsageError: nothing is judged whole, or a world is not known.
            OSError: the file cannot be written.
        """
        (written,) = _written({Path(path): "".join(map(talk_line, self.talks()))})
        return written

    def accept(self) -> tuple[Path, ...]:
        """Widen the scenarios of a played run by the arguments of calls that are held for right.

        Only arguments that a scenario expected otherwise are added, as `lhkit accept` does it.

        Returns:
            The files that changed.

        Raises:
            UsageError: no `scenarios` were given, one changed since it was played, or a value is
                refused.
            ScenarioError: a file is written in a way that no program can edit.
        """
        if self._sources is None:
            raise UsageError('give Review the scenarios of the run: scenarios=("mine.yaml",)')
        scenarios = {each.id: each for each in self._sources.scenarios}
        texts: dict[Path, str] = {}
        for record in self._state.records:
            name = record.sample_id.scenario
            right = [each for each in observed_arguments(record) if self._is_right(record, each)]
            if not right or name not in scenarios:
                continue
            require_unchanged(scenarios[name], self._run.manifest)
            origin = self._sources.origins[name]
            for each in right:
                text = texts.get(origin.file) or origin.file.read_bytes().decode("utf-8")
                schema = tool_schema(each, record, self._run.manifest)
                texts[origin.file] = accept_argument(each, origin, schema, text).after
        return _written(texts)

    def talks(self) -> tuple[CorrectedConversation, ...]:
        """Return the conversations that are judged whole, as they should have gone.

        Raises:
            UsageError: none is, or the world of one is not known.
        """
        done = [record for record in self._state.records if self._state.is_done(record)]
        if not done:
            raise UsageError("no conversation is judged whole yet: judge its calls and replies")
        return tuple(mended(each, self._state.labels, self._world_of(each)) for each in done)

    def _is_right(self, record: SampleRecord, observed: Any) -> bool:
        place = CallPlace(sample=str(record.sample_id), turn=observed.turn, call=observed.call)
        label = self._state.labels.get(place)
        return label is not None and label.held is LabelKind.RIGHT

    def _world_of(self, record: SampleRecord) -> Mapping[str, Any]:
        state = record.evidence.initial_state
        if state or self._sources is None:
            if not state and record.evidence.initial_sha256:
                raise UsageError(
                    f"{record.sample_id}: the run does not hold the world it began in: give Review "
                    'the scenarios it was played from: scenarios=("mine.yaml",)'
                )
            now = {"now": record.started_at} if record.started_at else {}
            return {**now, **{table: list(rows) for table, rows in state.items()}}
        for scenario in self._sources.scenarios:
            if scenario.id == record.sample_id.scenario:
                return dict(scenario.world)
        raise UsageError(
            f"{record.sample_id}: no such scenario in the files that Review was given: name it"
        )

    def _own_toolset(self) -> Toolset:
        if self._toolset is not None:
            return load_toolset(self._toolset)
        if self._run.toolset != DEFAULT:  # a folder is data: what it names is never loaded
            raise UsageError(
                f"the conversations were with the tools of {shown(self._run.toolset)}, which a run "
                "folder cannot load: give Review the toolset, as toolset=mine or "
                'toolset="FILE.py:NAME"'
            )
        return load(DEFAULT)

    def _fault_of(self, tool: str, args: Mapping[str, Any]) -> str:
        """Return what is wrong with a call; empty if the tool would take it."""
        schema = self._state.schemas.get(tool)
        if schema is None:
            return self._catalog.text("review.no_tool", tool=tool)
        verdict = ArgumentValidator(schema).check(dict(args))
        if isinstance(verdict, Accepted):
            names = ", ".join(verdict.extra)
            return self._catalog.text("review.unknown", names=names) if names else ""
        parts = (getattr(verdict, name, None) for name in ("field", "expected", "actual"))
        why = " · ".join(str(each) for each in parts if each)
        return self._catalog.text("review.refused", why=why)

    def _carry_out(self, press: Press) -> None:
        state = self._state
        match press.name:
            case "judge" if press.value in state.choices:
                if press.value in {*WITH_CALL, *WITH_WORDS}:
                    self._open_form(LabelKind(press.value))
                else:
                    self.judge(press.value)
            case "tool" if state.form is not None and press.value in state.schemas:
                self._open_form(state.form.held, press.value)
            case "save" if state.form is not None:
                self._save(state.form, press.fields)
            case "cancel":
                self._change(form=None)
            case "next_open":
                self._go_on()
            case "compare":
                self._compare()
            case step if step in _STEPS:
                talks, places = _STEPS[step]
                self.go(state.conversation + talks, state.place + places if places else 0)
            case _:
                pass

    def _open_form(self, held: LabelKind, tool: str | None = None) -> None:
        form = self._state.correction(held, tool)
        self._change(form=form, forms=form.number, told=())

    def _save(self, form: Correction, fields: Mapping[str, str]) -> None:
        """Judge with what stands in a form, or tell in it what is wrong."""
        say = fields.get("say", "")
        typed = {each.name: fields.get(f"arg:{each.name}", "") for each in form.fields}
        done = filled(Form(fields=form.fields), typed, self._catalog)
        fault = ""
        if form.held in WITH_CALL and not done.faults:
            fault = self._fault_of(form.tool, done.values)
        if not (fault or done.faults):
            self.judge(form.held, tool=form.tool, args=done.values, say=say)
            return
        number = form.number + 1
        told = replace(form, number=number, typed=typed, say=say, fault=fault, faults=done.faults)
        self._change(form=told, forms=number)

    def _compare(self) -> None:
        state = self._state
        others = [each for each in reviewers_of(self._folder) if each != state.reviewer]
        if len(others) == 1:
            self._change(compared=self.agreement(state.reviewer, others[0]), told=())
        else:
            key = "review.which_other" if others else "review.no_other"
            names = ", ".join(others)
            self._tell(self._catalog.text(key, names=names, folder=self._folder))


_STEPS = {
    "previous": (0, -1),
    "next": (0, 1),
    "previous_talk": (-1, 0),
    "next_talk": (1, 0),
}
"""By how many conversations and places a key moves."""


def _written(texts: Mapping[Path, str]) -> tuple[Path, ...]:
    """Write files, each whole, and return them."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return tuple(texts)


def _folder_of(source: Run | Path | str) -> Path:
    if not isinstance(source, Run):
        return Path(source)
    if source.folder is not None:
        return source.folder
    folder = Path("runs") / source.name
    if source.name and (folder / RECORDS).is_file():
        return folder
    raise UsageError("give Review the folder of the run, or folder= for where labels are kept")
