"""Review drafts of scenarios: a person's yes adds a draft to a suite."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError, RunError, UsageError
from lhkit.base.json_values import shown
from lhkit.base.user_locale import user_catalog
from lhkit.harness.authoring.scenario_yaml import value_of
from lhkit.harness.chats.chats import load_chats
from lhkit.harness.chats.draft_scenarios import (
    ProposedCall,
    add_to_suite,
    completed,
    edited_document,
)
from lhkit.harness.chats.drafts import (
    Answer,
    Draft,
    DraftDecision,
    Drafts,
    open_drafts,
    read_drafts,
)
from lhkit.harness.chats.reviews import LabelKind, turn_sha256
from lhkit.harness.records.record import SampleRecord
from lhkit.notebook.boards.board import Board, Press
from lhkit.notebook.boards.board_state import Correction, DraftState, call_form
from lhkit.notebook.boards.board_view import draft_lines, draft_parts, draft_saved
from lhkit.notebook.boards.call_form import call_error, read_form
from lhkit.notebook.panel.loop import HomeLoop, PanelTasks
from lhkit.toolset import DEFAULT, Toolset, ToolsetSource, load, load_toolset, name_of, opened


class DraftReview(Board[DraftState]):
    """Decide on the drafts of `lhkit chats suggest`, by click or by keys.

    `1` yes: the proposed scenario is added to the suite. `2` edit: a form for the right call of the
    last turn; the scenario is completed with the real tools and added. `3` no: it is dropped.
    Arrow keys change the draft, `o` goes to the next open one. A decision is saved before the next
    draft is shown; a no can be changed, a yes is in the suite.

    Example:
        ```
        DraftReview("drafts.jsonl", reviewer="kim")
        ```

    Args:
        source: the file of drafts.
        reviewer: the reviewer's name, which is stored with each decision.
        suite: the YAML file that confirmed scenarios are added to; by default the name of the
            drafts with `.scenario.yaml`.
        toolset: the tools, for edits; required unless they are life-helper's.
        locale: language of the review (`ko`, `en`); by default that of the user.

    Raises:
        UsageError: the file is missing or another one, or it has no draft.
        RunError: a line is invalid.
    """

    def __init__(
        self,
        source: Path | str,
        *,
        reviewer: str = "reviewer",
        suite: Path | str | None = None,
        toolset: ToolsetSource | None = None,
        locale: str | None = None,
    ) -> None:
        self._file = Path(source)
        self._suite = Path(suite) if suite else self._file.with_suffix(".scenario.yaml")
        self._toolset = toolset
        content = read_drafts(self._file)
        if not content.drafts:
            raise UsageError(f"{self._file} has no draft to review")
        state = DraftState(
            reviewer=reviewer, content=content, records=dict(_records(content)), conversation=-1
        )
        catalog, loop = user_catalog(locale), HomeLoop()
        super().__init__(state, loop=loop, catalog=catalog, title=catalog.text("drafts.title"))
        self._tasks = PanelTasks(loop, self._show_error)
        self._show(state.at_next_open() or state.moved(0))

    def _lines(self) -> list[str]:
        return draft_lines(self._state, self._catalog)

    def _parts(self) -> Sequence[str]:
        return draft_parts(self._state, self._catalog)

    def _saved_parts(self) -> Sequence[str]:
        return draft_saved(self._state, self._catalog)

    def go(self, number: int) -> None:
        """Go to another draft; they count from 0."""
        self._show(self._state.moved(number))

    def decide(self, answer: Answer | str) -> None:
        """Say `yes` or `no` to the current draft, and go to the next open one.

        Raises:
            UsageError: the answer is another one, the draft is in a suite already, or the suite is
                another file.
            RunError: the decision cannot be written.
            OSError: the suite cannot be written.
        """
        if answer not in {Answer.YES, Answer.NO}:
            raise UsageError(f"{answer!r} is not a decision: say yes or no, or call edit()")
        self._decide(Answer(answer), self._state.draft, self._state.draft.scenario)

    async def edit(self, tool: str, args: Mapping[str, Any]) -> None:
        """Add the current draft to the suite with another expected call in its last turn.

        The calls of the scenario are run once with the real tools, for its final state.

        Args:
            tool: the tool that should be called.
            args: its arguments.

        Raises:
            NotIsolatedError: sessions of the toolset share real data.
            UsageError: the call is invalid, lint reports an error, or `toolset` is required;
                besides, as `decide`.
            RunError: as `decide`.
            OSError: as `decide`.
        """
        draft = self._state.draft
        toolset = self._load_toolset(draft)
        if error := call_error(_schemas(draft, toolset), tool, args, self._catalog):
            raise UsageError(f"{tool}: {error}")
        document = edited_document(draft.scenario, ProposedCall(tool=tool, args=dict(args)))
        self._decide(Answer.EDIT, draft, await completed(document, toolset))

    def _decide(self, answer: Answer, draft: Draft, scenario: Mapping[str, Any]) -> None:
        """Write the scenario, then the decision: a killed process repeats neither."""
        with open_drafts(self._file) as writer:
            earlier = writer.content.decisions.get(draft.id)
            if earlier is not None and earlier.answer is not Answer.NO:
                raise UsageError(f"{draft.id} is in {earlier.suite} already: change it there")
            if answer is not Answer.NO:
                add_to_suite(self._suite, scenario)
            writer.decide(
                DraftDecision(
                    draft=draft.id,
                    answer=answer,
                    reviewer=self._state.reviewer,
                    suite="" if answer is Answer.NO else str(self._suite),
                )
            )
            content = writer.content
        records = {**self._state.records, **dict(_records(content, self._state.records))}
        self._update(content=content, records=records, form=None, notices=(), is_busy=False)
        key = "dropped" if answer is Answer.NO else "added"
        self._go_to_next_open(self._catalog.text(f"drafts.{key}", id=draft.id, suite=self._suite))

    def _go_to_next_open(self, notice: str = "") -> None:
        state = self._state.at_next_open()
        if state is not None:
            self._show(state)
        else:
            done = self._catalog.text("drafts.all_done", suite=self._suite)
            notice = " ".join(filter(None, [notice, done]))
        if notice:
            self._show_notice(notice)

    def _load_toolset(self, draft: Draft) -> Toolset:
        if self._toolset is not None:
            toolset = load_toolset(self._toolset)
            if name_of(toolset) != draft.toolset:
                raise UsageError(
                    f"{draft.id} is of the tools of {shown(draft.toolset)}, and these are "
                    f"{name_of(toolset)}: give DraftReview its own toolset"
                )
            return toolset
        if draft.toolset != DEFAULT:  # data must not choose the code to load
            raise UsageError(
                f"the chats used the tools of {shown(draft.toolset)}, which are not loaded from a "
                'file of drafts: give DraftReview the toolset, as toolset="FILE.py:NAME"'
            )
        return load(DEFAULT)

    def _handle(self, press: Press) -> None:
        state = self._state
        if state.is_busy:
            return
        match press.name, press.value:
            case "decide", Answer.EDIT:
                self._open_form()
            case "decide", (Answer.YES | Answer.NO) as answer:
                self.decide(answer)
            case "tool", tool if state.form is not None and tool in state.schemas:
                self._open_form(tool)
            case "save", _ if state.form is not None:
                self._save(state.form, press)
            case "cancel", _:
                self._update(form=None)
            case "next_open", _:
                self._go_to_next_open()
            case "next_talk", _:
                self.go(state.conversation + 1)
            case "previous_talk", _:
                self.go(state.conversation - 1)
            case _:
                pass

    def _open_form(self, tool: str | None = None) -> None:
        state, draft = self._state, self._state.draft
        schemas = state.schemas if state.form else _schemas(draft, self._load_toolset(draft))
        number = state.forms + 1
        form = call_form(schemas, _call_of(draft), tool, number=number, verdict=LabelKind.SHOULD_BE)
        self._update(form=form, forms=number, schemas=schemas, notices=())

    def _save(self, form: Correction, press: Press) -> None:
        """Complete the scenario of a form in the background, or show errors in the form."""
        filled_in, args = read_form(form, press, self._catalog)
        error = ""
        if not filled_in.errors:
            error = call_error(self._state.schemas, form.tool, args, self._catalog)
        filled_in = replace(filled_in, error=error)
        is_valid = not (error or filled_in.errors)
        self._update(form=filled_in, forms=filled_in.number, is_busy=is_valid)
        if is_valid:
            self._tasks.start(self._edit(filled_in, args))

    async def _edit(self, form: Correction, args: Mapping[str, Any]) -> None:
        try:
            await self.edit(form.tool, args)
        except LhkitError as error:
            failed = replace(form, error=self._catalog.translate(error), number=form.number + 1)
            self._update(form=failed, forms=failed.number, is_busy=False)
        except BaseException:
            self._update(is_busy=False)
            raise


def _records(
    content: Drafts, known: Mapping[str, SampleRecord] | None = None
) -> Iterator[tuple[str, SampleRecord]]:
    """Yield the chats of the drafts that are still there and unchanged, by draft."""
    folders: dict[str, Mapping[str, SampleRecord]] = {}
    for draft in content.drafts.values():
        source = draft.source
        if known is not None and draft.id in known:
            continue
        if source.folder not in folders:
            try:
                records = load_chats(Path(source.folder)).records
            except (RunError, UsageError):
                records = ()
            folders[source.folder] = {str(each.sample_id): each for each in records}
        record = folders[source.folder].get(source.chat)
        turns = record.trajectory.turns[source.turn :] if record is not None else ()
        if record is not None and turns and turn_sha256(turns[0]) == source.turn_sha256:
            yield draft.id, record


def _schemas(draft: Draft, toolset: Toolset) -> Mapping[str, Mapping[str, Any]]:
    """Return the argument schemas of the tools in the state of a draft."""
    with opened(toolset, draft.scenario["world"], draft.scenario["locale"]) as session:
        return {tool.name: tool.parameters for tool in session.registry.definitions}


def _call_of(draft: Draft) -> tuple[str, Any]:
    """Return the call to fill a form with: the expected one, else the one that was proposed."""
    if draft.calls:
        tool, args = draft.calls[0]["tool"], draft.calls[0].get("args", {})
        return tool, {name: value_of(matcher) for name, matcher in args.items()}
    first = draft.findings[0]
    return first.tool, first.args
