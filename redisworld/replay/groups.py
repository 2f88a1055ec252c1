"""Which open steps can the body observe one by one, and which only as a join? (design section 8, "Join groups")

The children of one ``asyncio.gather`` or one ``TaskGroup`` are observed together: only the last completion, or the
first failure, lets the body go on. asyncio registers a join through ``add_done_callback`` of its children; what it
registers tells the join. Anything not recognised counts as observed one by one: that costs wakes, never one lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any

from redisworld.replay.calls import StepCall
from redisworld.replay.commands import UNOBSERVED, WAKES, GroupMode

_GATHER = next(
    (
        const
        for const in asyncio.gather.__code__.co_consts
        if isinstance(const, CodeType)
        and const.co_name == "_done_callback"
        and {"outer", "return_exceptions"} <= set(const.co_freevars)
    ),
    None,
)
"""The callback that each gather makes for its children."""
_TASK_GROUP = asyncio.TaskGroup._on_task_done


class Join:
    """One gather or TaskGroup with the bare steps it observes. ``key`` is what their observers have in common."""

    def __init__(
        self, key: object, mode: GroupMode, first: StepCall[Any], outer: Callable[[], asyncio.Future[Any] | None]
    ) -> None:
        self.key = key
        self.mode = mode
        self.id = f"g{first.number}" + (f".{len(first.joins)}" if first.joins else "")
        """Named after its first member and how many joins that has, so that it is the same in every replay, and no
        other's: one that counted the steps of two joins would be silent until both have their results."""
        self.members: dict[int, StepCall[Any]] = {}
        """By number, like all calls here: to hash a call is Python."""
        self.shared = False
        """Whether it ever had two members at once: a join of one is no group, and a group stays one to its end."""
        self._outer = outer
        self._watched = False

    def over(self) -> bool:
        """Whether the join has its result, so that its remaining members are observed by nobody."""
        outer = self._outer()
        return outer is not None and outer.done()

    def watch(self, ended: Callable[[Join], None]) -> None:
        """Call ``ended`` once when the join has its result; a gather can have it from a child that is no step."""
        if not self._watched and (outer := self._outer()) is not None:
            self._watched = True
            outer.add_done_callback(lambda _: ended(self))


class Groups:
    """The assignments of the open steps, and how they differ from what the store holds (the baseline)."""

    def __init__(self) -> None:
        self._joins: dict[object, Join] = {}
        # Only what changed is looked at again: 10,000 open steps must not cost 10,000 looks for each completion.
        self._changed: dict[int, StepCall[Any]] = {}
        self._open: dict[int, StepCall[Any]] = {}
        self._baseline: dict[int, str] = {}
        self._pending: dict[int, str] = {}
        self._modes: dict[str, GroupMode] = {}

    def opened(self, call: StepCall[Any]) -> None:
        """The body asked for the step."""
        self._open[call.number] = self._changed[call.number] = call

    def closed(self, call: StepCall[Any]) -> None:
        """The step's completion was delivered."""
        number = call.number
        self._open.pop(number, None)
        self._changed.pop(number, None)
        self._baseline.pop(number, None)
        self._pending.pop(number, None)
        for join in call.joins:
            join.members.pop(number, None)
            if not join.members:
                # A body of months must not keep every gather it ever made, with its results.
                del self._joins[join.key]
                self._modes.pop(join.id, None)
        call.joins = ()

    def changed(self, call: StepCall[Any]) -> None:
        """Something about who observes the step is different now."""
        if call.number in self._open:
            self._changed[call.number] = call

    def observed(self, call: StepCall[Any], observer: Callable[..., object]) -> object | None:
        """The step's task got an observer: what it has in common with the others of its join, or None."""
        self.changed(call)
        # a gather gives all its children one callback, and to look into a function is an audited event
        key = observer if type(observer) is FunctionType and observer in self._joins else _join_key(observer)
        if key is not None and not call.settled:
            self._join(key, call, observer)
        return key

    def _join(self, key: object, call: StepCall[Any], observer: Callable[..., object]) -> None:
        join = self._joins.get(key)
        if join is None:
            join = self._joins[key] = _make_join(key, observer, call)
        if call.number in join.members:
            return
        join.members[call.number] = call
        call.joins += (join,)
        if len(join.members) == 2 and not join.shared:
            join.shared = True
            self._look_again(join)

    def settle(self) -> list[tuple[StepCall[Any], str]]:
        """The open steps, in the order asked for, whose assignment the store does not hold, with that assignment."""
        known: dict[object, str] = {}
        for number, call in self._changed.items():
            assignment = self._assign(call, known)
            if self._baseline.get(number) == assignment:
                self._pending.pop(number, None)
            else:
                self._pending[number] = assignment
        self._changed.clear()
        return [(self._open[number], self._pending[number]) for number in sorted(self._pending)]

    def assignment(self, call: StepCall[Any]) -> str:
        """How the step is observed, as of the last ``settle``."""
        return self._pending.get(call.number, self._baseline.get(call.number, WAKES))

    def mode(self, group: str) -> GroupMode | None:
        """The mode of a group, None for ``""`` and ``"-"``."""
        return self._modes.get(group)

    def committed(self) -> None:
        """The store holds the current assignments."""
        self.settle()
        self._baseline |= self._pending
        self._pending.clear()

    def unknown(self, calls: Iterable[StepCall[Any]]) -> None:
        """The store does not hold these steps, so it holds no assignments of them."""
        if self._baseline:
            for call in calls:
                if self._baseline.pop(call.number, None) is not None:
                    self._changed[call.number] = call

    def _assign(self, call: StepCall[Any], known: dict[object, str]) -> str:
        """``known`` has the assignments by joins that this settlement has come to."""
        if call.abandoned:
            return UNOBSERVED
        if call.task is None:
            return WAKES
        observers = call.task.observers
        if not observers:
            return UNOBSERVED
        first = observers[0][1]
        if first is None or (len(observers) > 1 and any(other is not first for _, other in observers)):
            return WAKES
        if (assignment := known.get(first)) is None:
            assignment = known[first] = self._assign_join(self._joins[first])
        return assignment

    def _assign_join(self, join: Join) -> str:
        join.watch(self._look_again)
        if join.over():
            return UNOBSERVED
        if not join.shared:
            return WAKES
        self._modes[join.id] = join.mode
        return join.id

    def _look_again(self, join: Join) -> None:
        for member in join.members.values():
            self.changed(member)


def _join_key(observer: Callable[..., object]) -> object | None:
    """What the observers of all children of one join have in common, or None when it is no join we know."""
    if isinstance(observer, MethodType):
        return observer.__self__ if observer.__func__ is _TASK_GROUP else None
    return observer if isinstance(observer, FunctionType) and observer.__code__ is _GATHER else None


def _make_join(key: object, observer: Callable[..., object], first: StepCall[Any]) -> Join:
    if not isinstance(observer, FunctionType):
        return Join(key, "fail_fast", first, lambda: None)
    cells = dict(zip(observer.__code__.co_freevars, observer.__closure__ or (), strict=True))
    mode: GroupMode = "all" if cells["return_exceptions"].cell_contents else "fail_fast"
    return Join(key, mode, first, lambda: cells["outer"].cell_contents)
