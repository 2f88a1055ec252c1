"""How does a random body run in virtual time, on asyncio's own loop and on ours?

A step or a timer takes as long as it says, and a hook's payloads arrive when its token says.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from redisworld import FatalError, Workflows, values
from redisworld.workflows import Workflow
from tests.constructs.random_bodies import LONGEST_MS, Node, Player
from tests.constructs.random_hooks import due_after
from tests.unit.replay_driver import START, Driver, Store

wf = Workflows()


@wf.step
async def work(label: int, delay_ms: int, fails: bool) -> int:
    return label


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, but when nothing is to do, the time of the next timer has come.

    Nor is there anything to do where a cancelled scope of anyio's keeps the loop busy until a task's clean-up ends.
    """

    _scheduled: list[Any]
    _ready: Any

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.busy = 0
        """Cycles in a row that had something to do."""

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        self.busy = self.busy + 1 if self._ready else 0
        if (not self._ready or self.busy > 1_000) and self._scheduled:
            self.now, self.busy = self._scheduled[0].when(), 0
        super()._run_once()  # type: ignore[misc]


class SequentialTask(asyncio.Task[Any]):
    """A task whose place in a set is that of its making, not of its address."""

    made = 0

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        SequentialTask.made += 1
        self._number = SequentialTask.made
        super().__init__(coro, **options)
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._number


def on_asyncio(body: Node, cancel_ms: int | None, play: type[Player] = Player) -> tuple[Player, set[int]]:
    """What the body saw, and the labels of the steps that began."""
    loop, began = VirtualLoop(), set[int]()
    loop.set_task_factory(lambda loop, coro, **options: SequentialTask(coro, loop=loop, **options))  # type: ignore[arg-type]
    loop.set_exception_handler(lambda loop, context: None)

    async def sleeping(label: int, delay_ms: int, fails: bool) -> int:
        began.add(label)
        await asyncio.sleep(delay_ms / 1_000)
        if fails:
            raise FatalError(f"{label} failed")
        return label

    player = play(sleeping, lambda: round(loop.now * 1_000))
    main = loop.create_task(player.play(body))
    if cancel_ms is not None:
        loop.call_later(cancel_ms / 1_000, main.cancel)
    loop.run_until_complete(asyncio.wait([main]))
    while left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=LONGEST_MS))
    loop.close()
    return player, began


class StillStore(Store):
    """A store in which time passes only as far as the next thing that happens outside the body."""

    tick_ms = 0


class Outside:
    """What happens outside a body on ours, and when (ms)."""

    def __init__(self, driver: Driver, cancel_ms: int | None) -> None:
        self._driver = driver
        self._ends: dict[str, int] = {}
        self._payloads: dict[str, list[tuple[int, int]]] = {}
        self._cancel_ms = cancel_ms
        self.began = set[int]()
        """The labels of the steps that began."""

    def happen(self) -> None:
        """Let the next thing happen: by the rules of design section 8, the body is woken by what it can see only."""
        store, now_ms = self._driver.store, self._driver.instance.now_ms
        moves: list[tuple[int, str, Callable[[], None]]] = []
        for id, (_, data) in store.open.items():
            if id not in self._ends:
                label, delay_ms, _ = values.decode(data).values()
                self._ends[id] = now_ms + delay_ms
                self.began.add(label)
            moves.append((self._ends[id], id, partial(self._driver.finish, id)))
        for id, due_ms in store.waits.items():
            moves.append((due_ms, id, partial(self._driver.finish, id)))
        for token in store.hooks.values():
            if token not in self._payloads:
                self._payloads[token] = [(now_ms + after, payload) for payload, after in enumerate(due_after(token), 1)]
            if self._payloads[token]:
                moves.append((self._payloads[token][0][0], token, partial(self._resume, token)))
        if self._cancel_ms is not None:
            moves.append((START + self._cancel_ms, "cancel", self._cancel))
        store.clock, _, move = min(moves, key=lambda move: move[:2])
        move()

    def _resume(self, token: str) -> None:
        _, payload = self._payloads[token].pop(0)
        self._driver.resume(token, payload)

    def _cancel(self) -> None:
        self._cancel_ms = None
        self._driver.store.cancel()
        self._driver.follow()


def on_ours(body: Node, cancel_ms: int | None, play: type[Player] = Player) -> tuple[Player, set[int], Driver]:
    """As ``on_asyncio``; and what its log can be replayed by."""
    players: list[Player] = []

    async def plays(body: Node) -> None:
        players.append(play(work, lambda: round(asyncio.get_running_loop().time() * 1_000) - START))
        await players[-1].play(body)

    driver = Driver(Workflow(plays), body, script=_end, store=StillStore())
    outside = Outside(driver, cancel_ms)
    while driver.instance.outcome is None:
        outside.happen()
    driver.instance.close()
    return players[0], outside.began, driver


def _end(name: str, label: int, delay_ms: int, fails: bool) -> Any:
    return FatalError(f"{label} failed") if fails else label
