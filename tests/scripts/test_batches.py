"""Is every item of a batch checked and answered on its own?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from redisworld.errors import MalformedMessage
from tests.scripts.driver import RUN, Attempt, Consumer, step

pytestmark = pytest.mark.anyio

Spoil = Callable[[str], Awaitable[None]]
RUNS = ["r1", "r2", "r3"]


async def three_runs(a: Consumer) -> list[Attempt]:
    """Three runs with one step each; their claims, not sent yet."""
    deliveries = [(await a.dispatch(step("s1", run=run), run=run))["s1"] for run in RUNS]
    return [Attempt(d, a.claim_item(d), None) for d in deliveries]  # type: ignore[arg-type]


async def scripts_called(a: Consumer) -> int:
    stats = (await a.redis.info("commandstats")) or {}
    return sum(int(stats.get(name, {}).get("calls", 0)) for name in ("cmdstat_evalsha", "cmdstat_eval"))


@pytest.fixture(params=["row of another type", "log of another type", "step state that cannot be read"])
def spoil(request: pytest.FixtureRequest, a: Consumer) -> Spoil:
    async def spoiler(run: str) -> None:
        if request.param.startswith("row"):
            await a.redis.set(a.key(run), "foreign")
        elif request.param.startswith("log"):
            await a.redis.set(a.partition.log(run), "foreign")
        else:
            await a.redis.hset(a.key(run), "s:s1", "nonsense")

    return spoiler


async def test_claims_of_different_runs_go_out_as_one_call(a: Consumer) -> None:
    attempts = await three_runs(a)
    await a.claim(attempts[0].delivery)  # the script is loaded now
    before = await scripts_called(a)

    answers = await asyncio.gather(*(a.world.deliveries.claim(x.item) for x in attempts))

    assert [answer.outcome for answer in answers] == ["started"] * 3
    assert await scripts_called(a) == before + 1


async def test_a_broken_claim_answers_broken_and_its_neighbours_start(a: Consumer, spoil: Spoil) -> None:
    attempts = await three_runs(a)
    await spoil("r2")

    answers = await asyncio.gather(*(a.world.deliveries.claim(x.item) for x in attempts))

    assert [answer.outcome for answer in answers] == ["started", "broken", "started"]
    assert [(await a.step("s1", run)).status for run in ("r1", "r3")] == ["running", "running"]
    assert await a.holds(attempts[1].delivery)


async def test_a_broken_completion_is_recorded_as_such_by_the_script_and_its_neighbours_complete(
    a: Consumer,
    spoil: Spoil,
) -> None:
    attempts = [await a.claim(x.delivery) for x in await three_runs(a)]
    await spoil("r2")

    await asyncio.gather(*(a.complete(x) for x in attempts), return_exceptions=True)

    assert [(await a.step("s1", run)).status for run in ("r1", "r3")] == ["completed", "completed"]
    assert await a.holds(attempts[1].delivery)


async def test_the_neighbours_of_a_broken_completion_hear_their_own_answers(a: Consumer, spoil: Spoil) -> None:
    attempts = [await a.claim(x.delivery) for x in await three_runs(a)]
    await spoil("r2")

    answers = await asyncio.gather(*(a.complete(x) for x in attempts), return_exceptions=True)

    assert [getattr(answer, "outcome", None) for answer in (answers[0], answers[2])] == ["completed", "completed"]
    assert isinstance(answers[1], MalformedMessage) or answers[1].outcome == "broken"  # type: ignore[union-attr]


async def test_a_join_group_that_cannot_be_read_costs_no_neighbour_its_outcome(a: Consumer) -> None:
    good = (await a.dispatch(step("s1", run="r1"), run="r1"))["s1"]
    bad = (await a.dispatch(step("s1", "g1", run="r2"), run="r2"))["s1"]
    attempts = [await a.claim(good, may_replay=False), await a.claim(bad)]
    await a.redis.hset(a.key("r2"), "g:g1", "nonsense")

    await asyncio.gather(*(a.complete(x, may_replay=False) for x in attempts), return_exceptions=True)

    assert (await a.step("s1", "r1")).status == "completed"


async def test_a_claim_in_a_batch_may_be_one_of_many_of_the_same_run(a: Consumer) -> None:
    deliveries = await a.dispatch(*(step(f"s{n}", "g1") for n in range(20)))

    attempts = await asyncio.gather(*(a.claim(d) for d in deliveries.values()))
    records = await asyncio.gather(*(a.complete(x) for x in attempts))

    assert [x.outcome for x in attempts] == ["started"] * 20
    assert [r.detail for r in records] == ["settled"] * 19 + ["responsible"]
    assert (await a.row()).log_length == len(await a.kinds()) == 2 + 3 * 20


async def test_a_claim_and_its_duplicate_in_one_batch_start_the_step_once(a: Consumer) -> None:
    first = (await a.dispatch(step("s1")))["s1"]
    second = await a.duplicate(first)

    answers = await asyncio.gather(a.claim(first), a.claim(second))

    assert [x.outcome for x in answers] == ["started", "stale"]
    assert (await a.step("s1")).attempt == 1


async def test_a_missing_step_created_twice_in_one_batch_is_created_once(a: Consumer) -> None:
    await a.dispatch(step("s0"))
    first = await a.publish("s1")
    second = await a.duplicate(first)

    answers = await asyncio.gather(*(a.claim(d, ensure=True, input=b"\x90") for d in (first, second)))

    assert [x.outcome for x in answers] == ["started", "stale"]
    assert (await a.kinds()).count("step_created") == 2


async def test_the_same_outcome_twice_in_one_batch_is_one_event(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])

    records = await asyncio.gather(a.complete(attempt), a.complete(attempt))

    assert [(r.outcome, r.detail) for r in records] == [("completed", "responsible")] * 2
    assert (await a.kinds()).count("step_completed") == 1


async def test_a_batch_over_64_items_is_cut_and_every_item_answered(a: Consumer) -> None:
    deliveries = await a.dispatch(*(step(f"s{n}", "g1") for n in range(150)))

    attempts = await asyncio.gather(*(a.claim(d) for d in deliveries.values()))

    assert {x.outcome for x in attempts} == {"started"}
    assert sorted(a.run_id for a in [x.item for x in attempts]) == [RUN] * 150


async def test_a_start_that_finds_no_other_on_its_way_goes_at_once_and_those_behind_it_together(a: Consumer) -> None:
    await a.world.create_run("first", "wf", b"")  # Redis knows the script from now on
    before = await scripts_called(a)

    started = await asyncio.gather(*(a.world.create_run(f"r{n}", "wf", b"") for n in range(100)))

    assert {outcome for outcome, _ in started} == {"created"}
    assert await scripts_called(a) - before == 3  # one, 64 and 35


@pytest.mark.parametrize("more", [0, 100], ids=["holding_just_the_batch", "holding_much_more"])
async def test_in_a_large_batch_only_what_was_taken_over_is_stale(a: Consumer, b: Consumer, more: int) -> None:
    deliveries = list((await a.dispatch(*(step(f"s{n:03}", "g1") for n in range(20 + more)))).values())[-20:]
    for delivery in deliveries[::5]:
        await b.take(delivery)

    attempts = await asyncio.gather(*(a.claim(d) for d in deliveries))

    assert [x.outcome for x in attempts] == ["stale", *["started"] * 4] * 4


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_in_a_large_batch_of_outcomes_what_was_taken_over_is_settled_once_and_starts_nothing(
    a: Consumer, b: Consumer, outcome: str
) -> None:
    """A usual completion settles the entry that the state names, whoever holds it by now; any other leaves it there."""
    deliveries = list((await a.dispatch(*(step(f"s{n:03}", "g1") for n in range(20)))).values())
    attempts = [await a.claim(d) for d in deliveries]
    taken = [await b.take(d) for d in deliveries[::5]]

    records = await asyncio.gather(*(a.complete(x, outcome) for x in attempts))

    assert {r.outcome for r in records} == {outcome}
    assert [r.detail for r in records] == ["settled"] * 19 + ["responsible"]
    assert [await b.holds(d) for d in taken] == [outcome == "failed"] * 4

    before = await a.log()
    claims = [(await b.claim(d)).claim for d in taken]

    assert [(claim.outcome, claim.detail) for claim in claims] == [("skipped", "settled")] * 4
    assert await a.log() == before
    assert await a.redis.xlen(a.partition.steps()) == 1, "that of the last completer"
    assert [await a.holds(d) for d in deliveries[-2:]] == [False, True]


async def test_a_last_completer_in_a_large_batch_that_lost_its_delivery_publishes_a_wake(
    a: Consumer, b: Consumer
) -> None:
    deliveries = list((await a.dispatch(*(step(f"s{n:03}", "g1") for n in range(20)))).values())
    attempts = [await a.claim(d) for d in deliveries]
    await b.take(deliveries[-1])

    records = await asyncio.gather(*(a.complete(x) for x in attempts))

    assert [r.detail for r in records] == ["settled"] * 19 + ["woken"]
    assert len(await a.wakes()) == 1


async def test_a_large_batch_asked_again_answers_the_same(a: Consumer) -> None:
    deliveries = list((await a.dispatch(*(step(f"s{n:03}", "g1") for n in range(20)))).values())
    items = [a.claim_item(d) for d in deliveries]
    first = await asyncio.gather(*(a.world.deliveries.claim(item) for item in items))
    before = await a.dump()

    assert await asyncio.gather(*(a.world.deliveries.claim(item) for item in items)) == first
    assert await a.dump() == before


async def test_a_large_batch_of_outcomes_asked_again_answers_the_same(a: Consumer) -> None:
    deliveries = list((await a.dispatch(*(step(f"s{n:03}", "g1") for n in range(20)))).values())
    attempts = [await a.claim(d) for d in deliveries]
    first = await asyncio.gather(*(a.complete(x) for x in attempts))
    before = await a.dump()

    assert await asyncio.gather(*(a.complete(x) for x in attempts)) == first
    assert await a.dump() == before


async def test_a_group_counted_down_by_two_runs_in_one_batch_is_counted_per_run(a: Consumer) -> None:
    deliveries = [await a.dispatch(step("s1", "g1", run=r), step("s2", "g1", run=r), run=r) for r in ("r1", "r2")]
    attempts = [await a.claim(d) for found in deliveries for d in found.values()]

    records = await asyncio.gather(*(a.complete(x) for x in attempts))

    assert [r.detail for r in records] == ["settled", "responsible"] * 2
