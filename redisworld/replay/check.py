"""Does the code of today still follow the log of a run? A cold replay, judged: nothing is written, nobody asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from redisworld import events, failures
from redisworld.errors import ErrorInfo, MalformedMessage, ReplayDivergence
from redisworld.events import Event, EventKind
from redisworld.replay.commands import Cancelled, Completed, Outcome
from redisworld.replay.engine import USER_ERROR, Instance, WorkflowLike, shown
from redisworld.runs import RunRow

Word = Literal["fits", "diverges", "ends differently", "unreadable"]

_ENDS = (EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of a run's log with other code says.

    ``fits``; ``diverges``: a worker would fail the run, or one that has ended would end in another way; ``ends
    differently``: another result; ``unreadable``: the log itself is damaged. ``detail`` names both sides, ``event`` is
    the number of the event they part at, from 1. ``early`` is what the code asks for at places the run has passed,
    and the log does not hold: it is made up for with the next wake.
    """

    word: Word
    events: int
    event: int = 0
    detail: str = ""
    early: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the code can be deployed as far as this run goes."""
        return self.word == "fits"


async def check(
    row: RunRow, workflow: WorkflowLike, pages: AsyncIterator[Sequence[bytes]], *, max_payload: int | None = None
) -> Verdict:
    """Replay a whole log, given page by page, with this workflow. ``row`` is the run's, read before the log."""
    replay = _Replay(row, workflow, max_payload)
    try:
        async for page in pages:
            for element in page:
                if (verdict := replay.take(element)) is not None:
                    return verdict
        return replay.end()
    finally:
        replay.close()


class _Replay:
    """One check on its way through the log."""

    def __init__(self, row: RunRow, workflow: WorkflowLike, max_payload: int | None) -> None:
        self._row = row
        self._workflow = workflow
        self._max_payload = max_payload
        self._number = 0
        self._instance: Instance | None = None
        self._passed: dict[str, str] = {}
        self._outcome_then: Outcome | None = None
        self._asked_to_cancel = False

    def take(self, element: bytes) -> Verdict | None:
        """The next element; a verdict where it is settled by it."""
        self._number += 1
        try:
            event = events.parse(element)
            instance = self._instance = self._instance or self._begin(event)
            instance.deliver(event)
        except MalformedMessage as error:
            return self._verdict("unreadable", str(error))
        except ReplayDivergence as error:
            return self._verdict("diverges", str(error) + self._ended_before())
        self._asked_to_cancel = self._asked_to_cancel or event.kind is EventKind.CANCEL_REQUESTED
        if self._number == self._row.replayed_to:
            self._passed, self._outcome_then = instance.unrecorded(), instance.outcome
        return self._judge_end(event) if event.kind in _ENDS else None

    def end(self) -> Verdict:
        """The log is over."""
        if self._instance is None:
            return self._verdict("unreadable", "the log is empty")
        if self._row.status.terminal and self._number < self._row.finished_event:
            return self._verdict(
                "unreadable", f"the log has {self._number} events, its end was event {self._row.finished_event}"
            )
        left = self._instance.unrecorded()
        early = [asked for id, asked in self._passed.items() if id in left]
        if self._outcome_then is not None:
            early.append(f"its end ({_told(self._outcome_then)})")
        return Verdict(word="fits", events=self._number, early=() if self._row.status.terminal else tuple(early))

    def close(self) -> None:
        if self._instance is not None:
            self._instance.close()

    def _begin(self, created: Event) -> Instance:
        given = events.run_created(created)
        instance = Instance(
            run_id=self._row.run_id,
            workflow=self._workflow,
            input=given.input,
            at=self._row.started_at or created.at,
            max_payload=self._max_payload,
        )
        instance.learn(passed_to=self._row.passed_to, patches=self._row.patches)
        instance.start()
        return instance

    def _judge_end(self, logged: Event) -> Verdict | None:
        """Compare the ends, where the body made the one in the log and not an operator or a limit."""
        instance = self._instance
        if instance is None or not self._body_ended_with(logged, instance.outcome):
            return None
        outcome = instance.outcome
        has = f"the log has {logged.kind}{_payload(logged)}"
        if outcome is None:
            open_things = ", ".join([*instance.open_steps().values(), *(["a wait"] if instance.open_waits() else [])])
            return self._verdict("diverges", f"{has}, the code goes on and waits for {open_things or 'something else'}")
        if logged.kind is not EventKind(f"run_{outcome.status}"):
            return self._verdict("diverges", f"{has}, the code would {_told(outcome)}")
        if isinstance(outcome, Completed) and outcome.result != logged.payload:
            return self._verdict("ends differently", f"{has}, the code would {_told(outcome)}")
        return None

    def _body_ended_with(self, logged: Event, outcome: Outcome | None) -> bool:
        if (
            logged.kind is EventKind.RUN_CANCELLED
        ):  # a terminated run has no outcome, one that was asked lets it through
            return self._asked_to_cancel and outcome is not None
        return logged.kind is EventKind.RUN_COMPLETED or logged.detail in ("", USER_ERROR)

    def _ended_before(self) -> str:
        outcome = self._instance.outcome if self._instance is not None else None
        return f"; it had ended before ({_told(outcome)})" if outcome is not None else ""

    def _verdict(self, word: Word, detail: str) -> Verdict:
        return Verdict(word=word, events=self._number, event=self._number, detail=detail)


def _told(outcome: Outcome) -> str:
    if isinstance(outcome, Completed):
        return f"complete with {shown(outcome.result)}"
    return "be cancelled" if isinstance(outcome, Cancelled) else f"fail with {_short(outcome.error)}"


def _payload(logged: Event) -> str:
    if logged.kind is EventKind.RUN_COMPLETED:
        return f" with {shown(logged.payload)}"
    return f" with {_short(failures.decode(logged.payload))}" if logged.kind is EventKind.RUN_FAILED else ""


def _short(error: ErrorInfo) -> str:
    return f"{error.type}: {error.message:.200}"
