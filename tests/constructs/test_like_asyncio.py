"""Does a body see what it would see on asyncio's own loop, with steps that are coroutines?

The same random bodies run on both, in virtual time: a step or a timer takes as long as it says.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redisworld import FatalError, Workflows, values
from redisworld.replay import install
from redisworld.workflows import Workflow
from tests.constructs.random_anyio import AnyioPlayer, random_body_with_anyio
from tests.constructs.random_bodies import LONGEST_MS, Node, Player, random_body
from tests.unit.replay_driver import START, Driver, Store

install()

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
    """A store in which time passes only as far as the next step or timer ends."""

    tick_ms = 0


def on_ours(body: Node, cancel_ms: int | None, play: type[Player] = Player) -> tuple[Player, set[int], Driver]:
    """As ``on_asyncio``, by the rules of design section 8: the body is woken by what it can see, nothing else."""
    players: list[Player] = []

    def now_ms() -> int:
        return round(asyncio.get_running_loop().time() * 1_000) - START

    def end(name: str, label: int, delay_ms: int, fails: bool) -> Any:
        return FatalError(f"{label} failed") if fails else label

    async def plays(body: Node) -> None:
        players.append(play(work, now_ms))
        await players[-1].play(body)

    began, store = set[int](), StillStore()
    driver = Driver(Workflow(plays), body, script=end, store=store)
    due_ms: dict[str, int] = {"cancel": START + cancel_ms} if cancel_ms is not None else {}
    while driver.instance.outcome is None:
        for id, (_, data) in store.open.items():
            if id not in due_ms:
                label, delay_ms, _ = values.decode(data).values()
                due_ms[id] = driver.instance.now_ms + delay_ms
                began.add(label)
        upcoming = [id for id in (*store.open, "cancel") if id in due_ms]
        store.clock, next_id = min(
            [(due_ms[id], id) for id in upcoming] + [(due, id) for id, due in store.waits.items()]
        )
        if next_id == "cancel":
            del due_ms[next_id]
            store.cancel()
            driver.follow()
        else:
            driver.finish(next_id)
    driver.instance.close()
    return players[0], began, driver


@pytest.mark.parametrize("size", [3, 6, 12, 25])
@settings(max_examples=500)
@given(seed=st.integers(0, 2**32))
def test_a_random_body_sees_on_ours_what_it_sees_on_asyncio(size: int, seed: int) -> None:
    chance = Random(seed)
    body, cancel_ms = random_body(chance, size), chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    there, began_there = on_asyncio(body, cancel_ms)
    here, began_here, _ = on_ours(body, cancel_ms)

    in_order = not body.holds("group")  # which cancels its tasks in the order of a set
    assert here.seen(in_order=in_order) == there.seen(in_order=in_order)
    assert began_here <= began_there  # what a body gives up in the piece in which it asks for it never begins


@pytest.mark.parametrize("size", [3, 6, 12, 25])
@settings(max_examples=250)
@given(seed=st.integers(0, 2**32))
def test_a_random_body_with_anyio_sees_on_ours_what_it_sees_on_asyncio(size: int, seed: int) -> None:
    chance = Random(seed)
    body = random_body_with_anyio(chance, size)
    cancel_ms = chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    here, began_here, _ = on_ours(body, cancel_ms, AnyioPlayer)

    seen = here.seen(in_order=False)
    for _ in range(50):  # scopes and groups cancel in the order of a set, there by address: more than one may come out
        there, began_there = on_asyncio(body, cancel_ms, AnyioPlayer)
        if there.seen(in_order=False) == seen:
            break
    assert seen == there.seen(in_order=False)
    assert began_here <= began_there


@pytest.mark.parametrize("size", [3, 6, 12])
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_every_prefix_of_a_random_body_with_anyio_replays_cold_and_warm_to_the_same_commands(
    size: int, seed: int
) -> None:
    chance = Random(seed)
    body, cancel_ms = random_body_with_anyio(chance, size), chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    *_, driver = on_ours(body, cancel_ms, AnyioPlayer)

    driver.check_every_prefix()


def test_a_step_whose_task_is_cancelled_before_it_begins_never_begins() -> None:
    async def body() -> str:
        task = asyncio.create_task(work(1, 1, False))  # type: ignore[arg-type]
        task.cancel("changed my mind")
        try:
            await task
        except asyncio.CancelledError as error:
            await work(2, 1, False)
            return f"{error}, {task.cancelled()}"
        return "?"

    driver = Driver(Workflow(body))

    assert [values.decode(data)["label"] for _, data in driver.store.open.values()] == [2]
    assert driver.run() == "changed my mind, True"
    driver.check_every_prefix()
