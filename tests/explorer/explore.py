"""What is there to find in all orders of the calls? A breadth-first search over states, and a count of its paths."""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from typing import NamedTuple

import msgspec

from redisworld import messages, scripts
from redisworld.errors import ReplayDivergence
from redisworld.events import RunCreated
from redisworld.messages import RunInput, WorkflowMessage
from redisworld.scripts import Script
from redisworld.settings import SPEC_VERSION
from tests.explorer import canonical, checks
from tests.explorer.actions import Action, Actions
from tests.explorer.bodies import app
from tests.explorer.hands import Unexpected
from tests.explorer.model import NOW, RUN, Outside, Scenario, Worker
from tests.explorer.store import Refused, Store, Stored

_AT_ONCE = 64
"""States whose calls go to Redis in one round trip."""


class Found(NamedTuple):
    """A state that must not be, and the shortest schedule that leads to it."""

    what: str
    schedule: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"{n:3}. {line}" for n, line in enumerate(self.schedule, 1))])


class Report(NamedTuple):
    """What one exploration has seen. ``schedules``: paths from the start to a state of rest."""

    scenario: str
    states: int
    transitions: int
    schedules: int
    rests: int
    seconds: float
    violation: Found | None
    complete: bool = True


class _Node(NamedTuple):
    number: int
    stored: Stored
    state: Outside


def real_scripts() -> dict[str, Script]:
    """The scripts as they are."""
    return {name: scripts.load(name) for name in scripts.names()}


def explore(
    store: Store, scenario: Scenario, using: dict[str, Script] | None = None, *, most_states: int | None = None
) -> Report:
    """Visit every state; stop at the first violation, which breadth-first is one with the shortest schedule."""
    return _Search(store, scenario, using or real_scripts(), most_states).run()


class _Search:
    def __init__(self, store: Store, scenario: Scenario, using: dict[str, Script], most_states: int | None) -> None:
        self._store, self._scenario, self._scripts, self._most = store, scenario, using, most_states
        self._actions = Actions(store, scenario, using)
        self._numbers: dict[bytes, int] = {}
        self._came_from: list[tuple[int, str, object]] = []
        self._edges: list[array[int]] = []
        self._frontier: deque[_Node] = deque()
        self._rests: set[int] = set()
        self._transitions = 0
        self._ended_early = False

    def run(self) -> Report:
        collects = gc.isenabled()
        gc.disable()  # hundreds of thousands of objects, none of them garbage
        try:
            return self._run()
        finally:
            if collects:
                gc.enable()

    def _run(self) -> Report:
        began = time.perf_counter()
        violation: Found | None = None
        self._start()
        while self._frontier and violation is None and (self._most is None or len(self._numbers) < self._most):
            nodes = [self._frontier.popleft() for _ in range(min(_AT_ONCE, len(self._frontier)))]
            violation = self._expand_all(nodes)
        complete = not self._frontier and violation is None
        schedules = 0
        if complete:
            schedules, cycle = _paths(self._edges, self._rests)
            if cycle is not None:
                violation = Found("the schedule goes round for ever", self._path(cycle))
            elif self._scenario.early and not self._ended_early:
                violation = Found("the run never ends before its slowest step", ())
        return Report(
            self._scenario.name,
            len(self._numbers),
            self._transitions,
            schedules,
            len(self._rests),
            time.perf_counter() - began,
            violation,
            complete,
        )

    def _start(self) -> None:
        self._store.begin(hooks=bool(self._scenario.budget.hook))
        input = app.workflows[self._scenario.workflow].signature.encode_call((), {})
        message = WorkflowMessage(
            message_id="start", run_id=RUN, workflow_name=self._scenario.workflow, reason="start",
            run_input=RunInput(input),
        )  # fmt: skip
        created = msgspec.msgpack.encode(RunCreated(input))
        command = self._store.script(
            self._scripts["start_many"],
            NOW, RUN, self._scenario.workflow, "", "", SPEC_VERSION, RUN, created, messages.encode(message), 0, "",
        )  # fmt: skip
        workers = tuple(Worker(name) for name in ("wA", "wB", "wC")[: self._scenario.workers])
        self._visit(self._store.first(command), Outside(NOW, workers, self._scenario.budget), -1, "", None)

    def _visit(self, stored: Stored, state: Outside, parent: int, label: str, reply: object) -> int:
        """The number of a state."""
        key = canonical.key(stored, state, self._scenario.helpers)
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = self._numbers[key] = len(self._numbers)
        self._came_from.append((parent, label, reply))
        self._edges.append(array("l"))
        self._frontier.append(_Node(number, stored, state))
        return number

    def _expand_all(self, nodes: list[_Node]) -> Found | None:
        plans: list[tuple[_Node, list[Action]]] = []
        for node in nodes:
            try:
                plans.append((node, list(self._actions.of(node.stored.view, node.state))))
            except ReplayDivergence as error:
                return Found(f"divergence: {error}", self._path(node.number))
        self._store.make((node.stored, action.command) for node, plan in plans for action in plan if action.command)
        for node, plan in plans:
            if violation := self._expand(node, plan):
                return violation
        return None

    def _expand(self, node: _Node, plan: list[Action]) -> Found | None:
        edges = self._edges[node.number]
        for action in plan:
            child, violation = self._take(node, action)
            if violation:
                return violation
            edges.append(child)
        if not any(action.free for action in plan):
            self._rests.add(node.number)
            if wrong := checks.at_rest(node.stored.view, self._scenario):
                return Found(f"at rest: {wrong}", self._path(node.number))
        return None

    def _take(self, node: _Node, action: Action) -> tuple[int, Found | None]:
        self._transitions += 1
        try:
            reply, stored = self._store.after(node.stored, action.command) if action.command else (None, node.stored)
            state = action.then(reply, stored)
        except (Refused, Unexpected, ReplayDivergence) as error:
            return -1, Found(f"unexpected: {error}", (*self._path(node.number), action.label))
        number = self._visit(stored, state, node.number, action.label, reply)
        if stored.wrong is None:
            stored.wrong = checks.in_every_state(stored.view)
            self._ended_early = self._ended_early or checks.ended_early(stored.view)
        return number, Found(stored.wrong, self._path(number)) if stored.wrong else None

    def _path(self, number: int) -> tuple[str, ...]:
        lines: list[str] = []
        while number > 0:
            number, label, reply = self._came_from[number]
            lines.append(label if reply is None else f"{label} => {_shown(reply)}")
        return tuple(reversed(lines))


def _paths(edges: list[array[int]], rests: set[int]) -> tuple[int, int | None]:
    """The number of paths from the first state to a state of rest; or a state on a cycle, where there is one."""
    ways: list[int | None] = [None] * len(edges)
    open_: set[int] = set()
    stack = [0]
    while stack:
        number = stack[-1]
        if ways[number] is not None:
            stack.pop()
        elif number in open_:
            ways[number] = sum(ways[child] or 0 for child in edges[number]) + (number in rests)
            open_.discard(number)
            stack.pop()
        else:
            open_.add(number)
            for child in edges[number]:
                if child in open_:
                    return 0, child
                if ways[child] is None:
                    stack.append(child)
    return ways[0] or 0, None


def _shown(reply: object) -> str:
    """An answer in a line: its words, without log elements and messages."""
    if isinstance(reply, list):
        if reply and isinstance(reply[0], list):
            return _shown(reply[0])
        return " ".join(
            item.decode("utf-8", "replace") if isinstance(item, bytes) else "…" if item is not None else "-"
            for item in reply[:4]
            if not isinstance(item, bytes) or len(item) < 40
        )
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
