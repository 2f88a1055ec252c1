"""What happens around the workers? Clients, operators, foreigners, lost leases, copies, the clock."""

from __future__ import annotations

import msgspec

from tests.model import hooks, look, passes
from tests.model.model import Entry, Run
from tests.model.passes import Wish
from tests.model.script import move, one_of
from tests.model.stage import Hand
from tests.model.table import KEPT, PICK, NothingToDo, Table

RETENTION_MS = 7 * 24 * 3_600_000

STEPS, WAITS, GROUPS = ("s1", "s2", "s3", "s4", "s5"), ("t1", "t2"), ("", "g1", "f1", "-")
HOOKS = {"h1": "k1", "h2": "k2", "h3": "k1"}
"""Hook -> its token; two hooks of a run, and the hooks of all runs, want the same ones."""
CONSUMER = one_of("ab")
RUN = one_of(["r1", *look.RUNS])
STEP = one_of(STEPS)
SINGLE = one_of(
    [Wish("start", ""), Wish("end", "completed"), Wish("end", "failed"), *(Wish("step", id) for id in STEPS)]
    + [Wish(op, id, due=100) for op in ("wait", "waited", "unwait") for id in WAITS]
    + [Wish(op, id, token=token) for op in ("hook", "dispose") for id, token in HOOKS.items()]
    + [Wish("attr", "c1"), Wish("step", "s1", name="other")]
)
OUTSIDE = one_of(["cancel", "cancel", "reap", "reap after days", "terminate", "start"])
GIVE_UP = one_of(["move", "move", "recover", "bury", "bury and fail"])


class Surroundings(Table):
    """Everything but the work."""

    # -- runs

    @move(4, trouble=True, consumer=CONSUMER, run=RUN, how=OUTSIDE)
    def act_from_outside(self, consumer: str, run: str, how: str) -> None:
        """A client or an operator does something, or the retention is over."""
        known = sorted(self.store.runs)
        if how == "start" or run not in known:
            self.start(consumer, run)
        elif how in ("cancel", "terminate"):
            self.cancel(consumer, run, terminate=how == "terminate")
        else:
            if how == "reap after days" and self.store.runs[run].terminal:
                self.stage.clock.now = self.store.now = self.store.now + RETENTION_MS
            self.reap(consumer)

    def start(self, consumer: str, run: str) -> None:
        self.ask(
            f"start {run}",
            lambda: self.stage.create_run(consumer, run),
            lambda: passes.create_run(self.store, run),
        )

    def cancel(self, consumer: str, run: str, *, terminate: bool) -> None:
        self.ask(
            f"{'terminate' if terminate else 'cancel'} {run}",
            lambda: self.stage.cancel(consumer, run, terminate),
            lambda: passes.cancel(self.store, run, terminate=terminate),
        )

    def reap(self, consumer: str) -> None:
        self.ask("reap", lambda: self.stage.reap(consumer), lambda: self.store.reap(RETENTION_MS), timed=True)
        self.ask("release", lambda: self.stage.release(consumer), lambda: hooks.release(self.store), timed=True)

    @move(1, run=RUN)
    def cancel_a_run_that_may_not_exist(self, run: str) -> None:
        self.cancel("a", run, terminate=False)

    # -- deliveries

    @move(4, consumer=CONSUMER, most=one_of(range(1, 7)))
    def read(self, consumer: str, most: int) -> None:
        self._read(consumer, most)

    def _read(self, consumer: str, most: int) -> None:
        if all(entry.holder for entry in self.store.entries.values()):
            raise NothingToDo
        for stream in look.STREAMS:
            deliveries = self.stage.run(self.stage.deliver(consumer, stream, most))
            entries = self.store.deliver(consumer, stream, most)
            assert len(deliveries) == len(entries)
            self.hands += [Hand(consumer, *pair) for pair in zip(deliveries, entries, strict=True)]
        self.hands = self.hands[-KEPT:]
        self.happen(f"read by {consumer}")

    @move(5, trouble=True, consumer=CONSUMER, pick=PICK)
    def lose_a_lease(self, consumer: str, pick: int) -> None:
        entry = self.choose(pick, [entry for entry in self.store.entries.values() if entry.holder], lambda _: True)
        delivery = self.stage.run(self.stage.take(consumer, entry.holder, entry))
        self.hands = [*self.hands[-KEPT + 1 :], Hand(consumer, delivery, self.store.take(consumer, entry.name))]
        self.store.counts["messages_reclaimed"] += 1
        assert delivery.deliveries == self.store.entries[entry.name].deliveries
        self.happen(f"lose_a_lease of {entry.name}: {entry.holder} to {consumer}")

    @move(4, trouble=True, pick=PICK, run=RUN, step=STEP, foreign=one_of([False, False, True]))
    def add_a_message(self, pick: int, run: str, step: str, foreign: bool) -> None:
        """A second entry of a message that somebody has, or a step message of a foreign producer."""
        if foreign or not self.hands:
            self.stage.add_step_message(run, step)
            self.store.publish("steps", "step", run, step=step, message=step)
            self.happen(f"add_a_message for {step} of {run}")
            return
        hand = self.choose(pick, self.hands, self.held)
        self.stage.add(hand)
        entry = hand.entry
        self.store.publish(entry.stream, entry.kind, entry.run, step=entry.step, message=entry.message)
        self.happen(f"duplicate {hand}")

    @move(4, trouble=True, pick=PICK, how=GIVE_UP, delay_ms=one_of([0, 100, 1000]))
    def give_a_delivery_up(self, pick: int, how: str, delay_ms: int) -> None:
        hand = self.choose(pick, self.hands, self.held)
        if how == "recover":
            self._recover(pick, delay_ms)
        elif how == "move":
            self._move(hand, hand.entry, delay_ms, how)
        elif self.is_over(hand):  # what a prologue does that has found the run finished or gone
            self.ask(
                f"settle {hand}",
                lambda: self.stage.settle(hand),
                lambda: (self.store.settle(hand.consumer, hand.entry.name),),
            )
        else:
            code = "MAX_DELIVERIES_EXCEEDED" if how == "bury and fail" else ""
            self.ask(
                f"bury {hand} {code}",
                lambda: self.stage.bury(hand, code),
                lambda: self.store.bury(hand.consumer, hand.entry.name, code),
            )

    def _recover(self, pick: int, delay_ms: int) -> None:
        """A replay that diverged goes back as a wake of its own."""
        turn = self.choose(pick, [turn for turn in self.turns if self.held(turn.hand)], lambda _: True)
        self.turns = [t for t in self.turns if t is not turn]
        entry = turn.hand.entry
        fresh = entry.message if entry.kind == "workflow" else f"r-{self.token(turn.hand.consumer)}"
        self._move(turn.hand, Entry("workflows#", "workflow", entry.run, "", fresh), delay_ms, "recover")

    def _move(self, hand: Hand, to: Entry, delay_ms: int, text: str) -> None:
        self.ask(
            f"{text} {hand} to {to.stream} in {delay_ms} ms",
            lambda: self.stage.move(hand, to, delay_ms),
            lambda: self.store.move(hand.consumer, hand.entry.name, to, delay_ms),
        )

    # -- time

    @move(4, trouble=True, ms=one_of([1, 100, 1000, -50]))
    def tick(self, ms: int) -> None:
        self.stage.clock.now = self.store.now = self.store.now + ms
        if self.last is not None and self.last.timed:
            self.last = None
        self.story.append(f"tick {ms} ms")
        self.reached["tick"] += 1

    @move(6, consumer=CONSUMER, pick=PICK)
    def promote(self, consumer: str, pick: int) -> None:
        if not self.store.delayed:
            raise NothingToDo
        if pick < 128:  # in time
            self.stage.clock.now = self.store.now = max(self.store.now, min(d.due for d in self.store.delayed.values()))
        self.ask("promote", lambda: self.stage.promote(consumer), self.store.promote, timed=True)

    # -- hooks and single events

    @move(
        4,
        consumer=CONSUMER,
        token=one_of(look.TOKENS),
        id=one_of(["i1", "i2", "i3"]),
        payload=one_of([b"a", b"a", b"b"]),
    )
    def resume(self, consumer: str, token: str, id: str, payload: bytes) -> None:
        r = hooks.Resume(token=token, payload=payload, id=id)
        text = f"resume {token} as {id} with {payload!r}"
        self.ask(text, lambda: self.stage.resume(consumer, r), lambda: hooks.resume(self.store, r))

    @move(5, trouble=True, consumer=CONSUMER, run=RUN, wish=SINGLE)
    def create_an_event(self, consumer: str, run: str, wish: Wish) -> None:
        wish = msgspec.structs.replace(wish, due=self.store.now + wish.due)
        if wish.name != "work" and wish.id not in self.store.runs.get(run, Run("")).steps:
            raise NothingToDo  # it would be created under that name
        self.ask(
            f"event {wish.op} {wish.id} of {run}",
            lambda: self.stage.create_event(consumer, run, wish),
            lambda: hooks.create_event(self.store, run, wish),
            also=(("conflict", ""), ("conflict", wish.id)),
        )

    @move(1, trouble=True, events=one_of([10, 20]))
    def lower_the_ceiling(self, events: int) -> None:
        self.stage.lower_the_ceiling(events)
        self.store.ceiling = events
        self.happen(f"lower_the_ceiling to {events} events")
