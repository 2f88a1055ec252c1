"""How is one operation played on Redis and on the model, and what may the same call answer when it is asked again?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from tests.model import look, promises
from tests.model.model import Answer, Store
from tests.model.script import move, one_of
from tests.model.stage import Hand, Stage

KEPT = 12
"""Hands, turns, attempts and calls that a worker may come back to."""
PICK = one_of(range(256))
"""Which of the things at hand, the newest first; the higher ones reach for what is stale or gone."""

Chosen = TypeVar("Chosen")
Real = Callable[[], Coroutine[Any, Any, Any]]


class Turn(msgspec.Struct, frozen=True):
    """A pass of a body that a worker has in hand: what it has loaded (or, for a first pass, not)."""

    hand: Hand
    token: str
    replayed_to: int
    consumed: int
    owned: str = ""
    started_at: int | None = None
    chunk: int = 1


class Attempt(msgspec.Struct, frozen=True):
    """A step that a worker runs."""

    hand: Hand
    step: str
    token: str


class Call(msgspec.Struct, frozen=True):
    """An operation as it went to both."""

    text: str
    real: Real
    model: Callable[[], Any]
    answer: Any
    timed: bool = False
    """Takes all that is due: later it may take more."""
    also: tuple[Answer, ...] = ()
    """What it may answer besides when it is asked again at once."""


class NothingToDo(Exception):
    """There is nothing to which the drawn move applies."""


class Table:
    """Redis beside the model. ``reached`` counts operations and outcome words over all games."""

    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.story: list[str] = []
        """What has happened, a line for each move that was one."""
        stage.reset()
        self.store = Store(stage.clock.now)
        self.hands: list[Hand] = []
        self.turns: list[Turn] = []
        self.attempts: list[Attempt] = []
        self.told: set[Hand] = set()
        """Step messages that were told to go on with their run; a worker loads under no others."""
        self.calls: list[Call] = []
        self.last: Call | None = None

    # -- how each operation goes

    def ask(
        self, text: str, real: Real, model: Callable[[], Any], *, timed: bool = False, also: tuple[Answer, ...] = ()
    ) -> Any:
        """Play an operation on both; the answer, once it and all that lies in Redis is as the model has it."""
        answer = self.stage.run(real())
        wanted = model()
        self.story.append(f"{text} -> {words(answer)}")
        for word in answer if isinstance(answer, list) else [answer]:
            self.reached[f"{text.split(' ', 1)[0]} {_outcome(word)}"] += 1
        assert answer == wanted, f"{text}: Redis answers {words(answer)}, the model {words(wanted)}"
        self.compare(text)
        self.last = None if answer == ("conflict", "wf") else Call(text, real, model, answer, timed, also)
        if self.last is not None and not text.startswith(("again:", "late:", "start")):
            self.calls = [*self.calls[-KEPT + 1 :], self.last]
        return answer

    def compare(self, text: str) -> None:
        lines = look.differences(self.stage.look(), look.expected(self.store))
        assert not lines, f"after {text}\n  " + "\n  ".join(lines)
        problems = promises.broken(self.store)
        assert not problems, f"after {text}\n  " + "\n  ".join(problems)

    def happen(self, text: str) -> None:
        """Something has happened that was no call."""
        self.story.append(text)
        self.reached[text.split(" ", 1)[0]] += 1
        self.last = None
        self.compare(text)

    def held(self, hand: Hand) -> bool:
        return self.store.holds(hand.consumer, hand.entry.name)

    def choose(self, pick: int, every: Sequence[Chosen], likely: Callable[[Chosen], bool]) -> Chosen:
        if not every:
            raise NothingToDo
        good = [one for one in every if likely(one)]
        return good[-1 - pick % len(good)] if good and pick < 224 else every[-1 - pick % len(every)]

    def token(self, consumer: str) -> str:
        return self.stage.consumers[consumer].world.next_token()

    def is_over(self, hand: Hand) -> bool:
        run = self.store.runs.get(hand.entry.run)
        return run is None or run.terminal

    # -- lost replies

    @move(5)
    def ask_again(self) -> None:
        """The reply was lost: the same answer, or the documented one, and nothing changes."""
        if self.last is None:
            raise NothingToDo
        last, before = self.last, self.stage.look()
        text = f"again: {last.text.removeprefix('again: ')}"
        answer = self.ask(text, last.real, last.model, timed=last.timed, also=last.also)
        after = self.stage.look()
        for picture in (before, after):
            picture["counts"] = {k: v for k, v in picture["counts"].items() if k != "claims"}  # type: ignore[attr-defined]
        assert before == after, f"a repeat changes something: {look.differences(after, before)}"
        pairs = zip(answer, last.answer, strict=True) if isinstance(answer, list) else [(answer, last.answer)]
        for second, first in pairs:
            assert second in [*repeats(first, timed=last.timed), *last.also], (
                f"first {words(first)}, then {words(second)}"
            )

    @move(4, trouble=True, pick=PICK)
    def ask_late(self, pick: int) -> None:
        """A copy of an earlier call arrives after others have acted."""
        call = self.choose(pick, self.calls, lambda _: True)
        self.ask(f"late: {call.text}", call.real, call.model)


def repeats(first: Answer, *, timed: bool) -> list[Answer]:
    """What the same call may answer when it is asked again at once."""
    if timed:  # reaped nothing more, promoted nothing more
        return [(0,), (first[0],)]
    match first:
        case ("created", name):
            return [("conflict", name)]
        case ("exhausted", duty):
            return [("skipped", "responsible" if duty == "responsible" else "settled", "")]
        case ("full", _):
            return [("gone", "failed")]
        case (word, "woken"):
            return [(word, "settled")]
        case (True,):
            return [(False,)]
        case ("too_early", ms):
            return [("too_early", left) for left in range(int(ms or 0) + 100)] + [first]
    return [first]


def words(answer: Any) -> str:
    if isinstance(answer, list):
        return "; ".join(map(words, answer))
    return " ".join(str(part) for part in answer)


def _outcome(answer: Answer) -> str:
    return " ".join(part for part in map(str, answer[:2]) if not part.isdigit())
