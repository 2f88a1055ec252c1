"""What can happen in a state, and what is the state after it?

Free actions are progress: whoever waits long enough sees them happen. The others use up a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from redisworld.keys import GROUP
from redisworld.scripts import Script
from redisworld.world.replies import items_of
from tests.explorer import hands
from tests.explorer.model import RUN, TOKEN, Hand, Held, Outside, Scenario, Worker
from tests.explorer.store import PARTITION, Command, Entry, Store, Stored, View


class Action(NamedTuple):
    """Something that can happen: a command, or nothing that Redis notices.

    ``then`` takes Redis' reply and what stands in Redis after it.
    """

    label: str
    free: bool
    command: Command | None
    then: Callable[[Any, Stored], Outside]


class Actions:
    """All actions of a scenario with these scripts, real or broken."""

    def __init__(self, store: Store, scenario: Scenario, scripts: dict[str, Script]) -> None:
        self._store = store
        self._scenario = scenario
        self._scripts = scripts

    def of(self, view: View, state: Outside) -> Iterator[Action]:
        """Everything that can happen in this state, free actions first."""
        for index, worker in enumerate(state.workers):
            if len(worker.hands) < self._scenario.slots:
                yield from self._take(view, state, index)
            for hand in worker.hands:
                yield from self._call(view, state, index, hand)
        yield from self._timers(view, state)
        yield from self._people(view, state)
        if state.budget.crashes:
            yield from self._crashes(state)

    # -- workers

    def _may_replay(self, index: int) -> bool:
        return index >= self._scenario.helpers

    def _take(self, view: View, state: Outside, index: int) -> Iterator[Action]:
        worker = state.workers[index]
        streams = ("steps", "workflows") if self._may_replay(index) else ("steps",)
        for stream in streams:
            key = PARTITION.tag + stream
            if any(entry.stream == stream and entry.holder == "" for entry in view.entries):
                read = ("XREADGROUP", "GROUP", GROUP, worker.name, "COUNT", 1, "STREAMS", key, ">")
                yield self._taking(state, index, f"{worker.name} reads {stream}", True, read, stream)
                if state.budget.lost:
                    lost = state._replace(budget=state.budget.less("lost"))
                    yield Action(f"{worker.name} reads {stream}, reply lost", False, read, lambda *_, s=lost: s)
            for entry in view.entries:
                if entry.stream != stream or entry.holder in ("", "?"):
                    continue
                worked_on = any(
                    hand.held.entry == entry.id and hand.held.stream == stream
                    for other in state.workers
                    if other.name == entry.holder
                    for hand in other.hands
                )
                if worked_on and (entry.holder == worker.name or not state.budget.steals):
                    continue
                claim = ("XCLAIM", key, GROUP, worker.name, 0, entry.id)
                where = state._replace(budget=state.budget.less("steals")) if worked_on else state
                what = f"steals from {entry.holder}" if worked_on else "reclaims"
                label = f"{worker.name} {what} {_brief(entry)} of {stream}"
                yield self._taking(where, index, label, not worked_on, claim, stream)

    def _taking(self, state: Outside, index: int, label: str, free: bool, command: Command, stream: str) -> Action:
        def then(reply: Any, after: Stored) -> Outside:
            entry_id = (reply[0][1] if isinstance(reply[0][1][0], list) else reply)[0][0].decode()
            entry = next(item for item in after.view.entries if item.id == entry_id and item.stream == stream)
            hand = hands.first(_held(entry), state.now, _fresh_token(after, state), self._scenario, after.view)
            return self._goes_on(state, index, state.workers[index].hands, None, hand)

        return Action(label, free, command, then)

    def _call(self, view: View, state: Outside, index: int, hand: Hand) -> Iterator[Action]:
        worker, scenario = state.workers[index], self._scenario
        script, args = hands.call(hand, worker.name, state.now, view, scenario, self._may_replay(index))
        command = self._store.script(self._scripts[script], *args)
        batch = script in ("claim_many", "complete_many")
        others = tuple(other for other in worker.hands if other is not hand)

        def then(reply: Any, after: Stored) -> Outside:
            if hand.does == "move":
                return _with_hands(state, index, others)
            answer, token = items_of(reply)[0] if batch else reply, _fresh_token(after, state)
            if hands.robbed(hand, answer, view):
                raise hands.Unexpected(f"{hands.short(hand.step)} was taken from a delivery that lives")
            following = hands.after(hand, answer, after.view, scenario, token)
            return self._goes_on(state, index, others, hand, following)

        label = f"{worker.name} {_doing(hand)}"
        yield Action(label, True, command, then)
        if state.budget.lost:
            again = hand._replace(asked=True) if state.budget.drains else hand
            lost = _with_hands(state._replace(budget=state.budget.less("lost")), index, (*others, again))
            yield Action(f"{label}, reply lost", False, command, lambda *_: lost)
        back = hands.hand_back(hand, worker.name, state.now)
        if state.budget.drains and not hand.asked and back is not None:
            drained = _with_hands(state._replace(budget=state.budget.less("drains")), index, others)
            yield Action(
                f"{worker.name} hands back {_doing(hand)}",
                False,
                self._store.script(self._scripts[back[0]], *back[1]),
                lambda *_: drained,
            )

    def _goes_on(
        self, state: Outside, index: int, others: tuple[Hand, ...], before: Hand | None, after: Hand | None
    ) -> Outside:
        """The hand after its call in place of the one before; a job takes the body that waits, or leaves one."""
        worker = state.workers[index]
        if after is None:
            worker = worker._replace(hands=others)
        elif after.does == "keep":
            worker = worker._replace(hands=others, body=(after.prefix, after.points) if self._scenario.sticky else None)
        elif after.does == "load" and worker.body and (before is None or hands.begins_job(before)):
            prefix, points = worker.body
            worker = worker._replace(hands=(*others, after._replace(prefix=prefix, points=points)), body=None)
        else:
            worker = worker._replace(hands=(*others, after))
        return state._replace(workers=(*state.workers[:index], worker, *state.workers[index + 1 :]))

    def _crashes(self, state: Outside) -> Iterator[Action]:
        crashed = state._replace(budget=state.budget.less("crashes"))
        for index, worker in enumerate(state.workers):
            if worker.hands:
                workers = (*state.workers[:index], Worker(worker.name), *state.workers[index + 1 :])
                dead = crashed._replace(workers=workers)
                yield Action(f"{worker.name} crashes", False, None, lambda *_, s=dead: s)

    # -- the clock and people

    def _timers(self, view: View, state: Outside) -> Iterator[Action]:
        if not view.delayed:
            return
        due = view.delayed[0][1]
        if due > state.now:
            later = state._replace(now=due)
            yield Action(f"time passes to +{due - state.now}ms", True, None, lambda *_: later)
            return
        promote = self._store.script(self._scripts["promote_due"], state.now, 100)
        yield Action("timers: promote", True, promote, lambda *_: state)

    def _people(self, view: View, state: Outside) -> Iterator[Action]:
        budget = state.budget
        if budget.hook and (hook := _open_hook(view)):
            script = self._scripts["resume_hook"]
            resume = self._store.script(script, state.now, RUN, hook, TOKEN, "once", "0", b"\x01", 1_000_000, 1_000_000)
            yield from self._asking("resume", True, resume, state, "hook")
        if budget.cancel:
            mode = budget.cancel
            cancel = self._store.script(self._scripts["cancel_run"], state.now, RUN, mode, b"\xa0", 1_000_000)
            yield from self._asking(mode, False, cancel, state, "cancel")

    def _asking(self, what: str, free: bool, command: Command, state: Outside, budget: str) -> Iterator[Action]:
        done = state._replace(budget=state.budget.less(budget))
        yield Action(f"somebody asks to {what}", free, command, lambda *_: done)
        if state.budget.lost:
            lost = state._replace(budget=state.budget.less("lost"))
            yield Action(f"somebody asks to {what}, reply lost", False, command, lambda *_: lost)


def _open_hook(view: View) -> str:
    return next((name[2:].decode() for name, hook in view.row.items() if name[:2] == b"h:" and hook == b"open"), "")


def _with_hands(state: Outside, index: int, held: tuple[Hand, ...]) -> Outside:
    workers = list(state.workers)
    workers[index] = workers[index]._replace(hands=held)
    return state._replace(workers=tuple(workers))


def _fresh_token(after: Stored, state: Outside) -> str:
    """The first token that neither the row nor a worker knows."""
    used = {hand.token[1:].rstrip("i") for worker in state.workers for hand in worker.hands}
    number = 1
    while (text := str(number)) in used or text in after.tokens:
        number += 1
    return "t" + text


def _held(entry: Entry) -> Held:
    fields = dict(zip(entry.fields[::2], entry.fields[1::2], strict=True))
    message, brief = hands.decoded(fields[b"msg"])
    published = int(fields.get(b"at", b"0"))
    return Held(entry.stream, entry.id, message, brief, published, entry.deliveries)


def _brief(entry: Entry) -> str:
    return hands.decoded(entry.fields[entry.fields.index(b"msg") + 1])[1]


def _doing(hand: Hand) -> str:
    step = f" {hands.short(hand.step)}" if hand.step else ""
    extra = " inline" if hand.inline else ""
    if hand.does == "commit":
        extra = f" {hand.replayed_to}->{hand.prefix}"
    return f"{hand.does}{step}{extra} under {hand.held.brief}"
