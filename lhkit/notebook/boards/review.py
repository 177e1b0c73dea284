"""Review recorded conversations call by call, and convert the labels to data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.files import write_atomically
from lhkit.base.json_values import shown
from lhkit.base.user_locale import user_catalog
from lhkit.harness.authoring.accept import (
    accept_argument,
    observed_arguments,
    require_unchanged,
    tool_schema,
)
from lhkit.harness.chats.corrections import (
    CorrectedConversation,
    conversation_line,
    corrected_conversation,
    scenario_from_review,
)
from lhkit.harness.chats.drafts import SUFFIX
from lhkit.harness.chats.reviews import (
    CallPlace,
    Label,
    LabelKind,
    Labels,
    ReviewComparison,
    ReviewFile,
    compare_reviews,
    places_of,
    reviewers_of,
    turn_sha256,
)
from lhkit.harness.records.judge_labels import (
    in_random_order,
    labels_of,
    new_labels,
    read_labels,
    write_labels,
)
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.results import Run
from lhkit.harness.running.judge_prompt import question_in
from lhkit.harness.scenarios.loader import read_sources
from lhkit.notebook.boards.board import Board, Press
from lhkit.notebook.boards.board_state import WITH_CALL, WITH_WORDS, Correction, ReviewState
from lhkit.notebook.boards.board_view import review_lines, review_parts, review_saved
from lhkit.notebook.boards.call_form import call_error, read_form
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.toolset import DEFAULT, Toolset, ToolsetSource, load, load_toolset


class Review(Board[ReviewState]):
    """Label the calls and replies of recorded conversations, by keys.

    For a call: `1` right, `2` wrong, `3` another call is right. For a reply: `1` fine, `2` not
    fine, `3` a call is missing before it. Arrows move, `n` and `p` change the conversation. A label
    is saved before the next place is shown; a review that is opened again resumes.

    Example:
        ```
        review = Review("runs/chats", reviewer="kim")
        review
        await review.to_scenarios("scenarios/reviewed")
        ```

    Args:
        source: a folder of recorded chats or of a run, or a loaded run.
        reviewer: the reviewer's name; two people review a folder under two names.
        toolset: the tools for replaying conversations; required unless they are life-helper's.
            A toolset that only the folder names is never loaded.
        scenarios: scenario files or folders of a run, for their initial states and for `accept`.
        score: the name of a judge in the run: the review asks its question about each conversation,
            in random order and without its answers. `1` is yes, `2` is no. The answers are those
            that `lhkit agreement RUN --score NAME` compares it with.
        locale: language of the review (`ko`, `en`); by default that of the user.
        folder: the folder for labels; by default that of the run.

    Raises:
        MissingRunError: the folder contains no run.
        UsageError: it contains no conversation or no such judge, or the reviewer's name is not a
            valid file name.
    """

    def __init__(
        self,
        source: Run | Path | str,
        *,
        reviewer: str = "reviewer",
        toolset: ToolsetSource | None = None,
        scenarios: tuple[Path | str, ...] = (),
        score: str | None = None,
        locale: str | None = None,
        folder: Path | str | None = None,
    ) -> None:
        if not isinstance(source, Run) and Path(source).suffix == SUFFIX and Path(source).is_file():
            raise UsageError(f"{source} is no folder of chats. Open drafts with DraftReview.")
        self._run = source if isinstance(source, Run) else Run.load(source)
        self._folder = Path(folder) if folder else _folder_of(source)
        records = tuple(record for record in self._run.records if record.trajectory.turns)
        self._score = score
        if score is not None:
            self._run.agreement(score)  # is there such a judge?
            records = tuple(in_random_order(records))
        if not records:
            raise UsageError(f"{self._folder} contains no conversation to review")
        self._toolset = toolset
        self._sources = read_sources([Path(path) for path in scenarios]) if scenarios else None
        self._file = ReviewFile(self._folder, reviewer)
        state = ReviewState(
            reviewer=reviewer,
            records=records,
            tools={
                language: {tool["name"]: tool["parameters"] for tool in prompt.tools}
                for language, prompt in self._run.manifest.locales.items()
            },
            labels=self._answers_in(records)
            if score is not None
            else {
                place: label for record in records for place, label in self._file.of(record).items()
            },
            question=self._question(),
            place=-1,  # before the first place
        )
        catalog = user_catalog(locale)
        title = catalog.text("review.title")
        super().__init__(state, loop=HomeLoop(), catalog=catalog, title=title)
        self._show(state.at_next_open() or state.moved(0))

    def _question(self) -> str:
        judged = (each.judge for each in self._run.score_records if each.score == self._score)
        return next((question_in(each.prompt) for each in judged if each is not None), "")

    def _answers_in(self, records: Iterable[SampleRecord]) -> Labels:
        """Return the answers of a person to the question of the judge that are there."""
        labels = labels_of(self._score or "", read_labels(self._folder), records)
        return {
            place: Label(
                place=place,
                verdict=LabelKind.YES if labels[record.sample_id] else LabelKind.NO,
                turn_sha256="",
            )
            for record in records
            if record.sample_id in labels
            for place in tuple(places_of(record))[-1:]
        }

    def _lines(self) -> list[str]:
        return review_lines(self._state, self._catalog)

    def _parts(self) -> Sequence[str]:
        return review_parts(self._state, self._catalog)

    def _saved_parts(self) -> Sequence[str]:
        return review_saved(self._state, self._catalog)

    def judge(
        self,
        verdict: LabelKind | str,
        *,
        tool: str = "",
        args: Mapping[str, Any] | None = None,
        say: str = "",
    ) -> None:
        """Label the current place, and go to the next unlabelled one.

        Args:
            verdict: `right`, `wrong` or `should_be` for a call; `fine`, `not_fine` or
                `call_missing` for a reply; `yes` or `no` for the question of a judge.
            tool: the tool of the corrected call, for `should_be` and `call_missing`.
            args: its arguments.
            say: the corrected reply, for `not_fine` and `call_missing`, if known.

        Raises:
            UsageError: the label does not apply to this place, or the arguments are invalid.
            RunError: the label cannot be written.
        """
        chosen = LabelKind(verdict)
        if chosen not in self._state.choices:
            kind = "reply" if self._state.call is None else "call"
            raise UsageError(f"{chosen} is not a label of a {kind}: see the buttons of the review")
        has_call = chosen in WITH_CALL
        if has_call and (error := self._call_error(tool, args or {})):
            raise UsageError(f"{tool}: {error}")
        place = self._state.current
        label = Label(
            place=place,
            verdict=chosen,
            turn_sha256=turn_sha256(self._state.record.trajectory.turns[place.turn]),
            tool=tool if has_call else "",
            args=dict(args or {}) if has_call else None,
            say=say.strip() if chosen in WITH_WORDS else "",
        )
        if self._score is None:
            self._file.append(label)
        else:
            answer = {place.sample: chosen is LabelKind.YES}
            write_labels(self._folder, new_labels(self._score, answer, [self._state.record]))
        self._update(labels={**self._state.labels, place: label}, form=None, notices=())
        self._go_to_next_open()

    def _go_to_next_open(self) -> None:
        state = self._state.at_next_open()
        if state is not None:
            self._show(state)
        elif self._score is not None:
            run = self._folder
            self._show_notice(self._catalog.text("review.answered", run=run, score=self._score))
        else:
            self._show_notice(self._catalog.text("review.all_done"))

    def go(self, conversation: int, place: int = 0) -> None:
        """Go to another place; both numbers count from 0."""
        self._show(self._state.moved(conversation, place))

    def agreement(self, *reviewers: str) -> ReviewComparison:
        """Return the agreement of two reviewers on places that both have labelled.

        Args:
            reviewers: the two names; optional if there are only two.

        Raises:
            UsageError: there are not exactly two reviewers.
        """
        return compare_reviews(self._state.records, self._folder, *reviewers)

    async def to_scenarios(self, folder: Path | str) -> tuple[Path, ...]:
        """Write a scenario file for each completely labelled conversation.

        The right and corrected calls are made with the real tools in the conversation's initial
        state, so that the reference solution passes. `lhkit lint` only reports replies that are not
        fine and have no corrected reply.

        Returns:
            The files.

        Raises:
            UsageError: no conversation is labelled completely, an initial state is unknown, a
                corrected call fails, or `toolset` is required.
            OSError: a file cannot be written.
        """
        toolset, target = self._load_toolset(), Path(folder)
        criteria = {str(record.sample_id): record.ac for record in self._state.records}
        texts = {}
        for conversation in self.corrected_chats():
            path = target / f"reviewed-{conversation.name.replace('#', '-')}.yaml"
            ac = criteria[conversation.name]
            texts[path] = await scenario_from_review(conversation, toolset, ac=ac)
        return _write_files(texts)

    def to_training(self, path: Path | str) -> Path:
        """Write the corrected conversations as JSON lines; return the file.

        Raises:
            UsageError: no conversation is labelled completely, or an initial state is unknown.
            OSError: the file cannot be written.
        """
        (file,) = _write_files(
            {Path(path): "".join(map(conversation_line, self.corrected_chats()))}
        )
        return file

    def accept(self) -> tuple[Path, ...]:
        """Accept the arguments of calls labelled right in the run's scenarios.

        Only arguments that differ from the expected ones are added, as in `lhkit accept`.

        Returns:
            The changed files.

        Raises:
            UsageError: no `scenarios` were given, one changed since the run, or a value is invalid.
            ScenarioError: a file's YAML cannot be edited.
        """
        if self._sources is None:
            raise UsageError('give Review the scenarios of the run: scenarios=("mine.yaml",)')
        scenarios = {scenario.id: scenario for scenario in self._sources.scenarios}
        texts: dict[Path, str] = {}
        for record in self._state.records:
            name = record.sample_id.scenario
            arguments = [arg for arg in observed_arguments(record) if self._is_right(record, arg)]
            if not arguments or name not in scenarios:
                continue
            require_unchanged(scenarios[name], self._run.manifest)
            origin = self._sources.origins[name]
            for argument in arguments:
                text = texts.get(origin.file) or origin.file.read_bytes().decode("utf-8")
                schema = tool_schema(argument, record, self._run.manifest)
                texts[origin.file] = accept_argument(argument, origin, schema, text).after
        return _write_files(texts)

    def corrected_chats(self) -> tuple[CorrectedConversation, ...]:
        """Return the completely labelled conversations, with their corrections.

        Raises:
            UsageError: there is none, or an initial state is unknown.
        """
        if self._score is not None:
            raise UsageError("this review has answers to the question of a judge, and no labels")
        done = [record for record in self._state.records if self._state.is_done(record)]
        if not done:
            raise UsageError("no conversation is labelled completely: label its calls and replies")
        return tuple(
            corrected_conversation(record, self._state.labels, self._world_of(record))
            for record in done
        )

    def _is_right(self, record: SampleRecord, observed: Any) -> bool:
        place = CallPlace(sample=str(record.sample_id), turn=observed.turn, call=observed.call)
        label = self._state.labels.get(place)
        return label is not None and label.verdict is LabelKind.RIGHT

    def _world_of(self, record: SampleRecord) -> Mapping[str, Any]:
        state = record.trajectory.initial_state
        if state or self._sources is None:
            if not state and record.trajectory.initial_sha256:
                raise UsageError(
                    f"{record.sample_id}: the run does not contain its initial state: give Review "
                    'the scenarios of the run: scenarios=("mine.yaml",)'
                )
            now = {"now": record.started_at} if record.started_at else {}
            return {**now, **{table: list(rows) for table, rows in state.items()}}
        for scenario in self._sources.scenarios:
            if scenario.id == record.sample_id.scenario:
                return dict(scenario.world)
        raise UsageError(
            f"{record.sample_id}: its scenario is not in the files given to Review: add its file"
        )

    def _load_toolset(self) -> Toolset:
        if self._toolset is not None:
            return load_toolset(self._toolset)
        if self._run.toolset != DEFAULT:  # data must not choose the code to load
            raise UsageError(
                f"the conversations used the tools of {shown(self._run.toolset)}, which are not "
                "loaded from a run folder: give Review the toolset, as toolset=mine or "
                'toolset="FILE.py:NAME"'
            )
        return load(DEFAULT)

    def _call_error(self, tool: str, args: Mapping[str, Any]) -> str:
        return call_error(self._state.schemas, tool, args, self._catalog)

    def _handle(self, press: Press) -> None:
        state = self._state
        match press.name:
            case "judge" if press.value in state.choices:
                if press.value in {*WITH_CALL, *WITH_WORDS}:
                    self._open_form(LabelKind(press.value))
                else:
                    self.judge(press.value)
            case "tool" if state.form is not None and press.value in state.schemas:
                self._open_form(state.form.verdict, press.value)
            case "save" if state.form is not None:
                self._save(state.form, press)
            case "cancel":
                self._update(form=None)
            case "next_open":
                self._go_to_next_open()
            case "compare" if self._score is None:
                self._compare()
            case step if step in _STEPS:
                conversations, places = _STEPS[step]
                self.go(state.conversation + conversations, state.place + places if places else 0)
            case _:
                pass

    def _open_form(self, verdict: LabelKind, tool: str | None = None) -> None:
        form = self._state.correction(verdict, tool)
        self._update(form=form, forms=form.number, notices=())

    def _save(self, form: Correction, press: Press) -> None:
        """Save a label from its form, or show validation errors in the form."""
        filled_in, args = read_form(form, press, self._catalog)
        error = ""
        if form.verdict in WITH_CALL and not filled_in.errors:
            error = self._call_error(form.tool, args)
        if not (error or filled_in.errors):
            self.judge(form.verdict, tool=form.tool, args=args, say=filled_in.say)
            return
        self._update(form=replace(filled_in, error=error), forms=filled_in.number)

    def _compare(self) -> None:
        state = self._state
        others = [name for name in reviewers_of(self._folder) if name != state.reviewer]
        if len(others) == 1:
            self._update(compared=self.agreement(state.reviewer, others[0]), notices=())
        else:
            key = "review.which_other" if others else "review.no_other"
            names = ", ".join(others)
            self._show_notice(self._catalog.text(key, names=names, folder=self._folder))


_STEPS = {
    "previous": (0, -1),
    "next": (0, 1),
    "previous_talk": (-1, 0),
    "next_talk": (1, 0),
}
"""The numbers of conversations and places that a key moves by."""


def _write_files(texts: Mapping[Path, str]) -> tuple[Path, ...]:
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    return tuple(texts)


def _folder_of(source: Run | Path | str) -> Path:
    if not isinstance(source, Run):
        return Path(source)
    if source.folder is not None:
        return source.folder
    folder = Path("runs") / source.name
    if source.name and (folder / RECORDS).is_file():
        return folder
    raise UsageError("Review needs the folder of the run, or folder= for the labels")
