"""Do the lists of the command line show everything once, page by page, and at a bounded cost? (case A46)"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisworld import InvalidInput, Settings, World
from redisworld.keys import Partition, partition_of
from redisworld.runs import Status
from redisworld.world import listing_hooks, listing_runs, waiting
from redisworld.world.listing_runs import page_of_runs
from tests.apps import shop_app
from tests.integration.cli_calls import answer, answer_json, called, refusal
from tests.integration.cli_process import environment, worker
from tests.integration.operations_scenes import SHOP, start, until_waits, until_worker_is_listed

_CONNECTING = {"hello", "client|setname", "client|setinfo", "ping", "info", "select"}
"""What every process asks once, whatever it is there for."""


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDISWORLD_URL", redis_url)


def started(url: str, count: int, *, at: Callable[[int], int] | None = None) -> list[str]:
    """So many pending runs of two workflows; ``at`` pins when the n-th is created."""

    async def begin() -> list[str]:
        async with World.connect(settings=Settings(url=url)) as world:
            for number in range(count):
                if at is not None:
                    world.clock = lambda number=number: at(number)  # type: ignore[misc]
                workflow, argument = (shop_app.remind, "x") if number % 5 else (shop_app.fulfil, str(number))
                await world.start(workflow, argument, run_id=f"r{number:04}")
        return [f"r{number:04}" for number in range(count)]

    return asyncio.run(begin())


def pages(capsys: pytest.CaptureFixture[str], *arguments: str, limit: int, after: Callable[[Any], str]) -> list[Any]:
    """All items of a list, asked for page by page."""
    found: list[Any] = []
    where: tuple[str, ...] = ()
    while True:
        code, out, err = called(capsys, *arguments, "--limit", str(limit), "--json", *where)
        assert code == 0, err
        page = json.loads(out)
        found += page
        if not err:
            return found
        assert len(page) == limit
        where = ("--after", after(page[-1]))


# -- everything once


@pytest.mark.parametrize("at", [None, lambda _: 1_700_000_000_000, lambda n: 1_700_000_000_000 + n // 9])
def test_runs_come_newest_first_each_once_whatever_the_size_of_a_page(
    capsys: pytest.CaptureFixture[str], redis_url: str, at: Callable[[int], int] | None
) -> None:
    ids = started(redis_url, 33, at=at)

    for limit in (1, 4, 10, 33, 50):
        found = pages(capsys, "run", "list", limit=limit, after=lambda run: str(run["run_id"]))
        assert sorted(run["run_id"] for run in found) == ids, limit
        assert [(-run["created_at"]) for run in found] == sorted(-run["created_at"] for run in found)


def test_runs_are_chosen_by_status_workflow_deployment_and_age(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    ids = started(redis_url, 11, at=lambda n: 1_700_000_000_000)
    start(redis_url, shop_app.remind, "x", run_id="young", deployment="v7")
    answer(capsys, "run", "cancel", "r0003")
    answer(capsys, "run", "terminate", "r0003", "--yes")

    def names(*options: str) -> list[str]:
        return sorted(run["run_id"] for run in answer_json(capsys, "runs", *options))

    assert names() == sorted([*ids, "young"])
    assert names("--status", "cancelled") == ["r0003"]
    assert names("--status", "open") == sorted({*ids, "young"} - {"r0003"})
    assert names("--workflow", "fulfil") == ["r0000", "r0005", "r0010"]
    assert names("--deployment", "v7") == names("--since", "1h") == ["young"]
    assert names("--status", "failed") == []
    assert answer(capsys, "run", "list", "--status", "failed") == "no runs\n"


def test_runs_are_found_by_their_attributes(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    ids = started(redis_url, 4)

    async def mark() -> list[str]:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            for number, run_id in enumerate(ids[:3]):
                await world.run(run_id).set_attributes({"order id": "a=1"}, stage=f"s{number % 2}")
            raw.hset(world.partition(ids[3]).run(ids[3]), "attributes", "no JSON of ours")
            page = await world.listing.runs(attributes={"order id": "a=1"}, limit=2)
            rest = await world.listing.runs(attributes={"order id": "a=1"}, limit=2, after=page.after)
            return [run.run_id for run in (*page.runs, *rest.runs)]

    assert asyncio.run(mark()) == [ids[2], ids[1], ids[0]]

    async def misread(**options: Any) -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.listing.runs(**options)

    for options, told in (
        ({"limit": 0}, "^limit=0: "),
        ({"limit": -1}, "^limit=-1: "),
        ({"limit": "5"}, "^limit='5': "),
        ({"since": "24h"}, "^since='24h': .* epoch ms"),
        ({"statuses": "failed"}, "^'f' is no status"),
        ({"after": "nobody"}, "^after='nobody': this run is not listed"),
    ):
        with pytest.raises(InvalidInput, match=told):
            asyncio.run(misread(**options))

    def names(*options: str) -> list[str]:
        return [run["run_id"] for run in answer_json(capsys, "runs", *options)]

    assert names("--attribute", "order id=a=1", "--attribute", "stage=s0") == [ids[2], ids[0]]
    assert names("--attribute", "order id=a", "--attribute", "stage=s0") == names("--attribute", "other=") == []
    assert answer_json(capsys, "runs", "--limit", "2")[1]["attributes"] == {"order id": "a=1", "stage": "s0"}
    assert refusal(capsys, "runs", "--attribute", "stage")[0] == 2
    assert refusal(capsys, "runs", "--attribute", "stage=s0", "--attribute", "stage=s1")[0] == 2


def test_a_row_that_cannot_be_read_hides_no_other_run(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    ids = started(redis_url, 4)
    row_of = {run_id: Partition("default", partition_of(run_id, 4)).run(run_id) for run_id in ids}
    raw.hset(row_of[ids[0]], "status", "odd")
    raw.hset(row_of[ids[1]], "created_at", "yesterday")
    raw.set(row_of[ids[2]], "theirs")

    listed = {run["run_id"]: run for run in answer_json(capsys, "runs")}

    assert {run_id: run["status"] for run_id, run in listed.items()} == dict.fromkeys(ids[:3]) | {ids[3]: "pending"}
    assert "'odd'" in listed[ids[0]]["unreadable"]
    assert "yesterday" in listed[ids[1]]["unreadable"]
    assert "WRONGTYPE" in listed[ids[2]]["unreadable"]
    assert answer(capsys, "runs").count("unreadable") == 3


@pytest.mark.parametrize("verb", [["show"], ["why"], ["cancel"], ["result"], ["export"], ["output"]])
@pytest.mark.parametrize("damage", ["status", "created_at", "type", "log"])
def test_a_damaged_run_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, verb: list[str], damage: str
) -> None:
    [run_id] = started(redis_url, 1)
    partition = Partition("default", partition_of(run_id, 4))
    if damage in ("status", "created_at"):
        raw.hset(partition.run(run_id), damage, "odd")
    else:
        raw.set(partition.run(run_id) if damage == "type" else partition.log(run_id), "theirs")
    if (verb, damage) == (["cancel"], "created_at"):
        return  # a cancel does not look at it

    code, line = refusal(capsys, "run", *verb, run_id)

    assert code == 1
    assert any(told in line for told in ("cannot be read", "is none", "not ours", "cannot work with")), line


def test_a_damaged_step_or_wait_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    [run_id] = started(redis_url, 1)
    row = Partition("default", partition_of(run_id, 4)).run(run_id)

    for field, state in (("s:s1", "odd"), ("s:s1", "pending|x|0|||||0|0|0|0"), ("s:s1", "pending|1")):
        raw.hset(row, field, state)
        for command in (("run", "show", run_id), ("run", "why", run_id), ("steps", run_id)):
            assert "no state of a step" in refusal(capsys, *command)[1]
    raw.hdel(row, "s:s1")
    raw.hset(row, "w:w1", "waiting|soon")
    assert "no state of a wait" in refusal(capsys, "run", "why", run_id)[1]


@pytest.mark.parametrize("score", ["-inf", "+inf", "1e300"])
def test_a_score_without_measure_stops_no_list(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, score: str
) -> None:
    ids = started(redis_url, 2)
    for run_id in ids:
        partition = Partition("default", partition_of(run_id, 4))
        raw.zadd(partition.index("created"), {run_id: score})
        raw.zadd(partition.delayed, {f"step {run_id} s1": score})

    for command in (["queues"], ["deployments"], ["top", "--once"], ["timers"], ["runs"], ["run", "why", ids[0]]):
        assert answer(capsys, *command)
    assert called(capsys, "runs", "--limit", "1", "--after", ids[0])[0] == 0


def test_a_filter_that_lets_few_through_ends_its_page_and_says_where_to_go_on(
    capsys: pytest.CaptureFixture[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(redis_url, 12)
    monkeypatch.setattr(listing_runs, "_LOOKED_AT", 5)
    monkeypatch.setattr(listing_runs, "_CHUNK", 5)

    code, out, err = called(capsys, "run", "list", "--workflow", "fulfil", "--json")

    assert (code, [run["run_id"] for run in json.loads(out)]) == (0, ["r0010"])
    assert err == "(more: --after r0007)\n"
    again = answer_json(capsys, "run", "list", "--workflow", "fulfil", "--after", "r0007")
    assert [run["run_id"] for run in again] == ["r0005"]


def test_a_run_that_is_reaped_while_it_is_listed_is_left_out(redis_url: str, raw: redis.Redis) -> None:
    started(redis_url, 3)

    async def list_() -> list[str]:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            raw.delete(world.partition("r0001").run("r0001"))
            page = await page_of_runs(world, statuses=(Status.PENDING,), limit=10)
            raw.delete(world.partition("r0001").log("r0001"))
        return [run.run_id for run in page.runs]

    assert asyncio.run(list_()) == ["r0002", "r0000"]


def test_timers_come_by_due_time_each_once(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    async def begin() -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            world.clock = lambda: 1_700_000_000_000
            for number in range(14):
                await world.start(shop_app.remind, "x", run_id=f"r{number}", delay=60 * (number // 3))

    asyncio.run(begin())

    for limit in (1, 3, 5, 20):
        found = pages(capsys, "timers", limit=limit, after=lambda due: f"{due['due_at']} {due['member']}")
        assert sorted(due["run_id"] for due in found) == sorted(f"r{number}" for number in range(3, 14))
        assert [due["due_at"] for due in found] == sorted(due["due_at"] for due in found)
    assert {due["what"] for due in found} == {"start"}
    for place in ("soon", "\u00b2 member", f"{10**20} member", "5"):
        code, line = refusal(capsys, "timers", "--after", place)
        assert (code, f"after={place!r} is no place in the list" in line) == (2, True)
    assert "nothing is due later" in answer(capsys, "timers", "--after", f"{10**14} \udcff")


def test_a_time_beyond_the_calendar_is_told_as_a_number(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    """What a runtime that counts in microseconds has written used to end the list with a traceback."""

    async def begin() -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.start(shop_app.remind, "x", run_id="r1")
            await world.events.wait_created("r1", "w1", 10**15 - 1)

    asyncio.run(begin())

    for command in (("timers",), ("run", "show", "r1"), ("run", "why", "r1")):
        assert "999999999999999 ms" in answer(capsys, *command), command


def test_hooks_and_steps_come_in_pages_too(
    capsys: pytest.CaptureFixture[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_hooks, "_CHUNK", 2)
    with worker(redis_url, app=SHOP):
        for number in range(5):
            start(redis_url, shop_app.fulfil, str(number), run_id=f"fulfil-{number}")
            until_waits(redis_url, f"fulfil-{number}", "hook")
        start(redis_url, shop_app.publish, "cat.png", run_id="publish")
        until_waits(redis_url, "publish")

    hooks = pages(capsys, "hooks", limit=2, after=lambda hook: str(hook["run_id"]))
    assert [hook["token"] for hook in hooks] == [f"order:{number}" for number in reversed(range(5))]
    assert [hook["token"] for hook in answer_json(capsys, "hook", "list", "--run", "fulfil-3")] == ["order:3"]
    steps = pages(capsys, "steps", "publish", limit=1, after=lambda step: str(step["id"]))
    assert [(step["name"], step["status"]) for step in steps] == [("resize", "completed")] * 2
    assert answer_json(capsys, "steps", "publish", "--status", "open") == []
    assert "after='s9': run 'publish' has no step 's9'" in refusal(capsys, "steps", "publish", "--after", "s9")[1]
    assert refusal(capsys, "steps", "nobody")[0] == 1


# -- the cost


_MOST_COMMANDS = {
    "run list --status running --limit 20": 50,
    "run list": 80,
    "run list --workflow fulfil --limit 20": 220,
    "run show r0299": 50,
    "run why r0299": 50,
    "run why r0295": 50,
    "steps r0299": 50,
    "hooks --limit 10": 220,
    "hooks --run r0295": 50,
    "timers --limit 20": 50,
    "workers": 50,
    "queues": 80,
    "deployments": 500,
}
"""With 4 partitions of 4 streams each, and 300 open runs. ``queues`` asks 2 to 4 things of each stream."""


def test_lists_cost_a_bounded_number_of_commands_and_scan_no_keys(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    raw.eval("for i = 1, 200000 do redis.call('SET', 'probe:foreign:' .. i, 'x') end", 0)
    with worker(redis_url, app=SHOP):
        started(redis_url, 300)
        until_waits(redis_url, "r0295", "hook")
        until_waits(redis_url, "r0299", "timer")
        until_worker_is_listed(redis_url, 1)
    raw.config_set("slowlog-log-slower-than", 500_000)  # a server that has to wait for its CPU is no slow command
    raw.slowlog_reset()

    for command, most in _MOST_COMMANDS.items():
        raw.config_resetstat()
        assert called(capsys, *command.split())[0] == 0
        calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in raw.info("commandstats").items()}
        ours = {name: count for name, count in calls.items() if name not in _CONNECTING and "config" not in name}
        assert not {"keys", "scan", "randomkey"} & ours.keys(), command
        assert sum(ours.values()) <= most, (command, ours)
    assert raw.slowlog_get() == []


# -- what they say


def test_a_state_that_nobody_is_in_is_said_so(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    started(redis_url, 0)

    assert answer(capsys, "run", "list") == "no runs\n"
    assert answer(capsys, "hooks") == "no hook is open\n"
    assert answer(capsys, "timers") == "nothing is due later\n"
    assert answer(capsys, "workers") == "no worker lives\n"
    assert answer(capsys, "dead") == "no dead letters\n"
    assert answer(capsys, "deployments").startswith("no deployments")
    for noun in ("run", "hook", "timers", "workers", "dead", "deployments"):
        assert answer_json(capsys, noun) == []


def test_queues_tell_partitions_apart_when_asked(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    started(redis_url, 20)

    together = {line["stream"]: line for line in answer_json(capsys, "queues")}
    apart = answer_json(capsys, "queues", "--by-partition")

    assert (together["workflows"]["unread"], together["workflows"]["workers"]) == (20, 0)
    assert together["workflows"]["partition"] is None
    assert sum(line["unread"] for line in apart if line["stream"] == "workflows") == 20
    assert {line["partition"] for line in apart} == {0, 1, 2, 3}


def test_a_deployment_is_served_when_live_workers_read_all_that_waits_in_its_streams(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1", deployment="v1", affinity=True)
    start(redis_url, shop_app.remind, "x", run_id="r2")
    with worker(redis_url, "--deployment", "v1", "--affinity", app=SHOP):
        until_worker_is_listed(redis_url, 1)
        until_waits(redis_url, "r1", "timer")
        start(redis_url, shop_app.remind, "x", run_id="r3", deployment="v2", affinity=True)

        found = {line["deployment"]: line for line in answer_json(capsys, "deployments")}

    assert {name: (line["served"], line["open_runs"], line["unread"]) for name, line in found.items()} == {
        "": (True, 1, 0),
        "v1": (True, 1, 0),
        "v2": (False, 1, 1),
    }


def test_why_counts_what_it_does_not_tell(
    capsys: pytest.CaptureFixture[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_TOLD", 1)
    with worker(redis_url, app=SHOP):
        start(redis_url, shop_app.publish, "cat.png", 3_600, run_id="publish")
        until_waits(redis_url, "publish", "step")

        told = answer_json(capsys, "run", "why", "publish")

    assert (len(told["waits_for"]), told["more"]) == (1, 1)
    assert told["waits_for"][0]["what"] == "step"
