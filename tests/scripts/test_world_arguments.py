"""What does World do with arguments that make no sense? It refuses them by name and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from redisworld import InvalidInput, MalformedMessage
from tests.scripts.driver import RUN, Consumer, end, inline, step, step_message
from tests.scripts.test_fences import put_step

pytestmark = pytest.mark.anyio

BAD_IDS = ["", "a b", "a\nb", "a|b"]
MANY = "9" * 20

Ask = Callable[[Consumer, str], Awaitable[object]]

RUN_IDS: dict[str, Ask] = {
    "create_run": lambda a, bad: a.world.create_run(bad, "wf", b"\x90"),
    "cancel": lambda a, bad: a.world.cancel(bad),
    "run_started": lambda a, bad: a.world.events.run_started(bad),
    "attr_set": lambda a, bad: a.world.events.attr_set(bad, {"a": "1"}),
    "claim of a token": lambda a, bad: a.world.hooks.claim(bad, "h1", "token"),
}
IDS: dict[str, Ask] = {
    "workflow": lambda a, bad: a.world.create_run("r2", bad, b"\x90"),
    "step": lambda a, bad: a.world.events.step_created(RUN, step_message(bad)),
    "step name": lambda a, bad: a.world.events.step_created(RUN, step_message("s9", name=bad)),
    "wait": lambda a, bad: a.world.events.wait_created(RUN, bad, 5),
    "wait to complete": lambda a, bad: a.world.events.wait_completed(RUN, bad),
    "wait to cancel": lambda a, bad: a.world.events.wait_cancelled(RUN, bad),
    "hook": lambda a, bad: a.world.hooks.claim(RUN, bad, "token"),
    "patch": lambda a, bad: a.world.events.patched(RUN, bad),
    "hook to dispose": lambda a, bad: a.world.events.hook_disposed(RUN, bad),
}
NUMBERS: dict[str, Ask] = {
    "due": lambda a, bad: a.world.events.wait_created(RUN, "w9", bad),  # type: ignore[arg-type]
    "limit of a promotion": lambda a, bad: a.world.upkeep.promote(a.partition, bad),  # type: ignore[arg-type]
    "limit of a reap": lambda a, bad: a.world.upkeep.reap(a.partition, bad),  # type: ignore[arg-type]
    "count of a reclaim": lambda a, bad: a.world.deliveries.reclaim((a.partition, "steps"), "0-0", bad),  # type: ignore[arg-type]
}
CASES = [
    *[(name, ask, bad) for name, ask in RUN_IDS.items() for bad in BAD_IDS],
    *[(name, ask, bad) for name, ask in IDS.items() for bad in BAD_IDS],
    *[(name, ask, bad) for name, ask in NUMBERS.items() for bad in ("", "-1", "x", "1.5", MANY)],
]


@pytest.mark.parametrize(("ask", "bad"), [pytest.param(ask, bad, id=f"{name}-{bad!r}") for name, ask, bad in CASES])
async def test_an_argument_that_makes_no_sense_is_refused_and_nothing_is_written(
    a: Consumer, ask: Ask, bad: str
) -> None:
    await put_step(a, "pending")
    before = await a.dump()

    with pytest.raises((InvalidInput, MalformedMessage), match=r"argument|cannot be used"):
        await ask(a, bad)

    assert await a.dump() == before


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("field", ["run_id", "step_id", "token"])
async def test_a_claim_that_makes_no_sense_is_broken_and_its_neighbour_starts(
    a: Consumer, field: str, bad: str
) -> None:
    delivery = (await put_step(a, "pending")).delivery

    good, broken = await asyncio.gather(a.claim(delivery), a.claim(delivery, **{field: bad}))

    assert (good.outcome, broken.outcome) == ("started", "broken")
    assert f"argument {field.removesuffix('_id')} " in broken.claim.detail


@pytest.mark.parametrize(
    "changes", [{"outcome": "done"}, {"delay_ms": -1}, {"step_id": "a|b"}, {"target": "dead"}, {"cause": "x"}]
)
async def test_an_outcome_that_makes_no_sense_is_broken_and_writes_nothing(
    a: Consumer, changes: dict[str, str | int]
) -> None:
    item = a.completion(await put_step(a, "running"), "retrying")
    before = await a.dump()

    recorded = await a.world.deliveries.complete(msgspec.structs.replace(item, **changes))

    assert recorded.outcome == "broken"
    assert await a.dump() == before


@pytest.mark.parametrize(("target", "delay_ms"), [("steps", -1), ("dead", 0), ("steps gpu", 5)])
async def test_a_move_that_makes_no_sense_keeps_the_delivery(a: Consumer, target: str, delay_ms: int) -> None:
    delivery = (await put_step(a, "pending")).delivery

    with pytest.raises(MalformedMessage, match=r"argument (delay|target) "):
        await a.move(delivery, target=target, delay_ms=delay_ms)

    assert await a.holds(delivery)


@pytest.mark.parametrize(
    "item",
    [
        step("a|b"),
        step("s 2"),
        step("s2", "a|b"),
        step("s2", name="two words"),
        step("s2", target="dead"),
        inline("s2", "a|b"),
        ["wait", "a b", 5],
        ["wait", "w1", -5],
        ["seal", "g1", "some"],
        ["attr", "a1", "3", b""],
        end("run_paused"),
    ],
    ids=str,
)
async def test_a_pass_with_one_item_that_makes_no_sense_writes_none(a: Consumer, item: list[str | bytes | int]) -> None:
    turn = await a.begin()
    before = await a.dump()

    with pytest.raises(MalformedMessage, match="argument"):
        await a.commit(turn, step("s1"), item)

    assert await a.dump() == before
