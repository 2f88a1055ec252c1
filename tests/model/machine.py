"""Which operations are played on Redis and on the model, and what is compared after each one?

Two workers live through up to three runs: what a worker does with its deliveries, and all that goes wrong around it
(lost replies, late repeats, lost leases, copies of messages, stale holders that go on, clocks that step). After each
operation the answer, all that lies in Redis and the promises of ``promises.py`` are looked at. ``script.py`` says how
games are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from tests import leaks
from tests.model import hooks, passes, steps
from tests.model.around import CONSUMER, GROUPS, HOOKS, STEP, STEPS, WAITS, Surroundings
from tests.model.model import MODES, Answer
from tests.model.passes import Pass, Wish
from tests.model.script import Move, move, one_of, some_of
from tests.model.stage import Hand
from tests.model.table import KEPT, PICK, Attempt, NothingToDo, Turn

YES_OR_NO = one_of([False, True])
OUTCOME = one_of(["completed", "failed", "retrying", "completed"])
WISHES = some_of(
    [Wish(op, id, group) for op in ("step", "inline", "assign", "step") for id in STEPS for group in GROUPS]
    + [Wish("wait", id, due=due) for id in WAITS for due in (0, 100, 100, 300)]
    + [Wish("unwait", id) for id in WAITS] * 4
    + [Wish("hook", id, token=token, awaited=awaited) for id, token in HOOKS.items() for awaited in (False, True)] * 2
    + [Wish("dispose", id) for id in HOOKS] * 2
    + [Wish("attr", id) for id in ("c1", "c2")] * 2,
    most=5,
)
ENDING = one_of(["", "", "", "", "completed", "failed", "cancelled"])
_ORDER = ("step", "inline", "wait", "unwait", "hook", "dispose", "attr", "assign")
"""In which the items of a commit come."""


class Game(Surroundings):
    """All moves."""

    def play(self, moves: Sequence[Move]) -> None:
        """Play these moves; those to which nothing applies are left out. Raises AssertionError."""
        self.start("a", "r1")
        for name, drawn in moves:
            with suppress(NothingToDo):
                getattr(self, name)(**drawn)
        assert leaks.problems(self.stage.raw) == []

    # -- passes

    @move(3, pick=PICK)
    def load(self, pick: int) -> None:
        self._load(self.choose(pick, [hand for hand in self.hands if self._may_load(hand)], self._is_asked))

    def _may_load(self, hand: Hand) -> bool:
        return hand.entry.kind == "workflow" or hand in self.told

    def _load(self, hand: Hand) -> None:
        entry = hand.entry
        answer = self.ask(
            f"load by {hand}",
            lambda: self.stage.load(hand),
            lambda: passes.load(self.store, hand.consumer, entry.name, entry.run, entry.message),
        )
        if answer[0] == "loaded":
            _, _, replayed_to, length, owned, _ = answer
            self._begin(Turn(hand, self.token(hand.consumer), replayed_to, length, owned))

    @move(3, pick=PICK)
    def make_a_first_pass(self, pick: int) -> None:
        """The start message carries all that the first pass needs: nothing is read."""
        hand = self.choose(pick, [hand for hand in self.hands if self._is_first(hand)], self.held)
        at = max(int(hand.delivery.text("at")), self.store.now)
        self.story.append(f"make_a_first_pass by {hand} at {at}")
        self._begin(Turn(hand, self.token(hand.consumer), 0, 2, started_at=at))

    def _is_first(self, hand: Hand) -> bool:
        return hand.entry.message == "start" and bool(hand.delivery.text("at"))

    def _is_asked(self, hand: Hand) -> bool:
        run = self.store.runs.get(hand.entry.run)
        asked = run is not None and (hand.entry.message == run.wake or hand.entry.message in run.owners)
        return self.held(hand) and asked

    def _begin(self, turn: Turn) -> None:
        self.turns = [*self.turns[-KEPT + 1 :], turn]

    @move(5, trouble=True, pick=PICK, wishes=WISHES, ending=ENDING)
    def commit(self, pick: int, wishes: list[Wish], ending: str) -> None:
        self._commit_and_run(self._turn(pick), wishes, ending)

    def _commit_and_run(self, turn: Turn, wishes: list[Wish], ending: str) -> None:
        self.turns = [t for t in self.turns if t is not turn]
        asked = self._wishes(turn, wishes)
        asked += [Wish("end", ending)] if ending else []
        answer = self._commit(turn, asked, last=True)
        for wish in asked:
            if wish.op == "inline" and answer[1:2] == (True,):
                self.attempts = [*self.attempts[-KEPT + 1 :], Attempt(turn.hand, wish.id, wish.token)]

    @move(4, pick=PICK, wishes=WISHES)
    def commit_a_chunk(self, pick: int, wishes: list[Wish]) -> None:
        turn = self._turn(pick)
        asked = [wish for wish in self._wishes(turn, wishes) if wish.op == "step"]
        answer = self._commit(turn, asked, last=False)
        self.turns = [t for t in self.turns if t is not turn]
        if answer[0] == "chunk":
            self._begin(msgspec.structs.replace(turn, started_at=None, chunk=turn.chunk + 1))

    @move(1, pick=PICK, step=STEP)
    def commit_other_code(self, pick: int, step: str) -> None:
        """Another version of the body asks for a step of another name."""
        turn = self._turn(pick)
        run = self.store.runs.get(turn.hand.entry.run)
        if run is not None and step in run.steps:
            self._commit(turn, [Wish("step", step, name="other")], last=True)

    def _turn(self, pick: int) -> Turn:
        return self.choose(pick, [turn for turn in self.turns if not turn.owned], lambda turn: self.held(turn.hand))

    def _wishes(self, turn: Turn, wishes: list[Wish]) -> list[Wish]:
        """In the order in which a commit is made, with due times, tokens, holders, and all seals."""
        once = {wish.id: wish for wish in wishes}
        asked = [wish for op in _ORDER for wish in once.values() if wish.op == op]
        inline = next((wish for wish in asked if wish.op == "inline"), None)
        asked = [self._complement(turn, wish) for wish in asked if wish.op != "inline" or wish is inline]
        run = self.store.runs.get(turn.hand.entry.run)
        unsealed = {name for name, group in run.groups.items() if not group.sealed} if run else set()
        groups = sorted({wish.group for wish in asked} | unsealed)
        return asked + [Wish("seal", group) for group in groups if group in MODES]

    def _complement(self, turn: Turn, wish: Wish) -> Wish:
        consumer, run = turn.hand.consumer, turn.hand.entry.run
        if wish.op == "inline":
            return msgspec.structs.replace(wish, token=self.token(consumer))
        if wish.op == "wait":
            return msgspec.structs.replace(wish, due=self.store.now + wish.due)
        if wish.op != "hook":
            return wish
        (holder,) = self.ask(  # the token of a hook is claimed before the commit
            f"hook {wish.id} of {run} claims {wish.token}",
            lambda: self.stage.claim_token(consumer, run, wish.id, wish.token),
            lambda: hooks.claim_token(self.store, run, wish.id, wish.token),
        )
        return msgspec.structs.replace(wish, holder=holder)

    def _commit(self, turn: Turn, wishes: list[Wish], *, last: bool) -> Answer:
        p = Pass(
            replayed_to=turn.replayed_to,
            consumed=turn.consumed,
            token=turn.token,
            wishes=tuple(wishes),
            chunk=turn.chunk,
            last=last,
            started_at=turn.started_at,
        )
        hand, entry = turn.hand, turn.hand.entry
        answer: Answer = self.ask(
            f"{'commit' if last else 'chunk'} by {hand}, replayed to {p.replayed_to}, consumed {p.consumed}"
            f"{', unread' if p.started_at else ''}: " + ", ".join(f"{w.op} {w.id} {w.group}".strip() for w in wishes),
            lambda: self.stage.commit(hand, p),
            lambda: passes.commit(self.store, hand.consumer, entry.name, entry.run, entry.message, p),
            # the first chunk of an unread pass has started the run: its repeat is told to load
            also=() if last or p.started_at is None else (("lost", "1"),),
        )
        return answer

    # -- steps

    @move(4, pick=PICK, allowed=one_of([4, 2, 1]), may_replay=YES_OR_NO, ensure=YES_OR_NO)
    def claim(self, pick: int, allowed: int, may_replay: bool, ensure: bool) -> None:
        hand = self.choose(pick, [hand for hand in self.hands if hand.entry.kind == "step"], self._is_ready)
        self._claim([self._claim_of(hand, hand.entry.step, allowed, may_replay, ensure)], [hand])

    @move(4, pick=PICK, allowed=one_of([4, 1]))
    def claim_what_the_message_owns(self, pick: int, allowed: int) -> None:
        turn = self.choose(pick, [turn for turn in self.turns if turn.owned], lambda turn: self.held(turn.hand))
        self.turns = [t for t in self.turns if t is not turn]
        self._claim([self._claim_of(turn.hand, turn.owned, allowed, True, False, owned=True)], [turn.hand])

    @move(3, consumer=CONSUMER, may_replay=YES_OR_NO)
    def claim_a_batch(self, consumer: str, may_replay: bool) -> None:
        """All that a worker has in hand, in one script call."""
        mine = {h.entry.name: h for h in self.hands if h.consumer == consumer and h.entry.kind == "step"}
        if len(mine) > 1:
            hands = list(mine.values())
            self._claim([self._claim_of(hand, hand.entry.step, 4, may_replay, False) for hand in hands], hands)

    def _is_ready(self, hand: Hand) -> bool:
        run = self.store.runs.get(hand.entry.run)
        return self.held(hand) and run is not None and run.wake != hand.entry.message

    def _claim_of(
        self, hand: Hand, step: str, allowed: int, may_replay: bool, ensure: bool, *, owned: bool = False
    ) -> steps.Claim:
        return steps.Claim(
            consumer=hand.consumer,
            entry=hand.entry.name,
            run=hand.entry.run,
            step=step,
            message=hand.entry.message,
            token=self.token(hand.consumer),
            allowed=allowed,
            may_replay=may_replay,
            ensure=ensure,
            owned=owned,
        )

    def _claim(self, claims: list[steps.Claim], hands: list[Hand]) -> None:
        async def real() -> list[Answer]:
            pairs = zip(hands, claims, strict=True)
            return list(await asyncio.gather(*(self.stage.claim(hand, c) for hand, c in pairs)))

        text = ", ".join(f"{c.step} by {hand}, {c.allowed} allowed" for hand, c in zip(hands, claims, strict=True))
        answers = self.ask(f"claim {text}", real, lambda: [steps.claim(self.store, c) for c in claims])
        for hand, c, answer in zip(hands, claims, answers, strict=True):
            self._listen(hand, answer)
            if answer[0] == "started":
                self.attempts = [*self.attempts[-KEPT + 1 :], Attempt(hand, c.step, c.token)]

    @move(5, pick=PICK, outcome=OUTCOME, may_replay=YES_OR_NO, delay_ms=one_of([0, 100]), drain=YES_OR_NO)
    def complete(self, pick: int, outcome: str, may_replay: bool, delay_ms: int, drain: bool) -> None:
        attempt = self.choose(pick, self.attempts, self._runs)
        self._complete([attempt], outcome, may_replay=may_replay, delay_ms=delay_ms, drain=drain)

    @move(3, consumer=CONSUMER, outcome=OUTCOME, may_replay=YES_OR_NO)
    def complete_a_batch(self, consumer: str, outcome: str, may_replay: bool) -> None:
        # a worker has one body per delivery and per step: the newest
        by_entry = {a.hand.entry.name: a for a in self.attempts if a.hand.consumer == consumer}
        mine = {(a.hand.entry.run, a.step): a for a in by_entry.values()}
        if len(mine) > 1:
            self._complete(list(mine.values()), outcome, may_replay=may_replay)

    def _runs(self, attempt: Attempt) -> bool:
        run = self.store.runs.get(attempt.hand.entry.run)
        step = run.steps.get(attempt.step) if run else None
        return step is not None and (step.status, step.token) == ("running", attempt.token)

    def _complete(
        self, attempts: list[Attempt], outcome: str, *, may_replay: bool, delay_ms: int = 0, drain: bool = False
    ) -> None:
        done = [
            steps.Completion(
                consumer=a.hand.consumer,
                entry=a.hand.entry.name,
                run=a.hand.entry.run,
                step=a.step,
                message=a.hand.entry.message,
                token=a.token,
                outcome=outcome,
                may_replay=may_replay,
                delay_ms=delay_ms if outcome == "retrying" else 0,
                drain=drain and outcome == "retrying",
            )
            for a in attempts
        ]

        async def real() -> list[Answer]:
            return list(
                await asyncio.gather(*(self.stage.complete(a.hand, c) for a, c in zip(attempts, done, strict=True)))
            )

        text = ", ".join(f"{a.step} by {a.hand}" for a in attempts)
        text = f"{outcome} {text}{' drained' if drain else ''}"
        answers = self.ask(text, real, lambda: [steps.complete(self.store, c) for c in done])
        for attempt, answer in zip(attempts, answers, strict=True):
            self._listen(attempt.hand, answer)

    def _listen(self, hand: Hand, answer: Answer) -> None:
        if answer[1:2] in (("responsible",), ("owned",)):
            self.told.add(hand)

    # -- a worker that does its work

    @move(40, consumer=CONSUMER, pick=PICK, wishes=WISHES, outcome=OUTCOME)
    def go_on(self, consumer: str, pick: int, wishes: list[Wish], outcome: str) -> None:
        """A worker does one of the things that it would do next, if nothing went wrong."""
        running = [attempt for attempt in self.attempts if self._runs(attempt)]
        turns = [turn for turn in self.turns if self.held(turn.hand) and not self.is_over(turn.hand)]
        busy = {attempt.hand.entry.name for attempt in running} | {turn.hand.entry.name for turn in turns}
        todo = [partial(self._complete, [attempt], outcome, may_replay=True) for attempt in running]
        todo += [partial(self._commit_and_run, turn, wishes, "") for turn in turns if not turn.owned]
        todo += [partial(self._take_up, h) for h in self.hands if self.held(h) and h.entry.name not in busy]
        if any(not entry.holder for entry in self.store.entries.values()):
            todo.append(partial(self._read, consumer, 6))
        if todo:
            todo[pick % len(todo)]()

    def _take_up(self, hand: Hand) -> None:
        if self._may_load(hand):
            self._load(hand)
        elif hand.entry.run not in self.store.runs:
            self._move(hand, hand.entry, 1000, "move")
        else:
            self._claim([self._claim_of(hand, hand.entry.step, 4, True, True)], [hand])
