"""How many reads and script calls does a step cost? (design section 13)

Counted by Redis: MONITOR names the calls of clients, ``INFO commandstats`` counts them. The numbers are printed.
"""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from redisworld.events import EventKind
from redisworld.observe import RunFetched, StepClaimed
from tests.apps import conf_app
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect
from tests.conformance.harness import Calls, Consumers, monitored, working

pytestmark = pytest.mark.anyio

BRANCHES = 256


def evalshas(raw: redis.Redis) -> int:
    """EVALSHA calls so far, by Redis' own count."""
    return int(raw.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


async def finished(raw: redis.Redis, consumers: Consumers, run_id: str) -> None:
    """Wait for the end without reading the run's row."""
    ended = consumers.partition.index("status:completed")
    await eventually(lambda: raw.zscore(ended, run_id) is not None, what=f"{run_id} completed")


async def counted(url: str, raw: redis.Redis, consumers: Consumers, count: int, run_id: str) -> tuple[Calls, int]:
    """One fan-out on a running worker: what clients sent, and how many of those were EVALSHA."""
    before = evalshas(raw)
    with monitored(url) as calls:
        await consumers.world.start(conf_app.wide, count, run_id=run_id)
        await finished(raw, consumers, run_id)
    return calls, evalshas(raw) - before


async def test_c18_a_fan_out_of_256_reads_no_run_on_its_start_path_and_fetches_it_once(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """The reference allows one fetch for each completer that saw everything done. Ours names one last completer.

    None if the last to complete was the inline step: its worker has the run at hand.
    """
    async with connect(timer_poll_ms=500) as consumers:
        async with working(consumers):
            calls, _ = await counted(redis_url, raw, consumers, BRANCHES, "wide")
        assert await consumers.world.run("wide").result(timeout=5) == BRANCHES * (BRANCHES - 1)
        names = Counter(calls())
        log = consumers.log("wide")
        last = [event.id for event in log if event.kind is EventKind.STEP_COMPLETED][-1]
        inline = [step_id for seen in consumers.saw(StepClaimed) if seen.inline for _, step_id in seen.steps]
        fetched = 0 if [last] == inline else 1
        print(f"fan-out of {BRANCHES}: {dict(names)}")
        assert not {"HMGET", "HGET", "HGETALL"} & names.keys(), "a row was read outside the scripts"
        assert names["load_run"] == fetched
        assert names["LRANGE"] <= 1, "the log fits one page"
        assert [seen.reason for seen in consumers.saw(RunFetched)] == ["last_completer"] * fetched
        assert Counter(consumers.paths()) == {"run_context": BRANCHES - 1}
    invariants.check(raw, conf_app.wf)


async def test_batched_claims_and_completions_cost_half_a_script_call_per_queued_step_at_most(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    async with connect(timer_poll_ms=500) as consumers, working(consumers):
        calls, total = await counted(redis_url, raw, consumers, BRANCHES, "wide")
    names = Counter(calls())
    per_step = (names["claim_many"] + names["complete_many"]) / (BRANCHES - 1)
    print(f"claims and completions {per_step:.3f}, all EVALSHA {total / (BRANCHES - 1):.3f} per queued step")
    assert per_step <= 0.5
    assert total / (BRANCHES - 1) <= 0.5


async def test_a_queued_step_by_itself_costs_two_script_calls(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.wide, 12, run_id="wide")
        await consumers.wake()
        before = evalshas(raw)
        with monitored(redis_url) as calls:
            for _ in range(10):
                await consumers.step()
        assert calls("XREADGROUP") == ["claim_many", "complete_many"] * 10
        assert evalshas(raw) - before == 20
        await consumers.drain()
    invariants.check(raw, conf_app.wf)


async def test_a_sequential_inline_step_costs_one_script_call(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """The end of each goes with the pass that it leads to, and with the start of the next."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.chain, 50, run_id="chain")
        with monitored(redis_url) as calls:
            await consumers.wake()
        names = Counter(calls("XREADGROUP"))
        print(f"chain of 50: {dict(names)}, {names.total() / 50:.2f} calls per step")
        assert names == {"commit_pass": 50 + 1}
        assert await consumers.world.run("chain").result(timeout=5) == 50 * 49
    invariants.check(raw, conf_app.wf)


async def test_the_calls_of_a_branch_do_not_grow_with_the_number_of_branches(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """Commands of clients and scripts per branch at 1,024 against 64."""
    per_branch = {}
    for count in (64, 1_024):
        raw.flushall()
        async with connect(timer_poll_ms=500) as consumers, working(consumers):
            calls, _ = await counted(redis_url, raw, consumers, count, "wide")
        per_branch[count] = (len(calls()) + len(calls.lua)) / count
    print({count: round(number, 2) for count, number in per_branch.items()})
    assert per_branch[1_024] <= 1.1 * per_branch[64]
