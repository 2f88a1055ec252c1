"""Does doctor name each fault that is planted, mend what it says it mends, and leave a healthy system alone?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import redis

from redisworld import Settings, World
from redisworld.cli import main
from redisworld.errors import NamespaceMismatch
from redisworld.keys import GROUP, Partition, meta, partition_of
from redisworld.state import WorkerState
from redisworld.world import Outgoing
from redisworld.world.examination import examine
from redisworld.world.findings import KINDS, Finding
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.harness import Consumers, connected, working
from tests.integration.cli_process import environment
from tests.integration.planting import PARTITION, Plant, bury_step, drained, plant, status_of

DURABLE = ("--ignore", "persistence")  # the server of the tests keeps nothing


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


def doctor(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings."""
    code = main(["doctor", "--json", "--url", url, *DURABLE, *arguments])
    shown = capsys.readouterr()
    assert shown.out, shown.err
    findings: list[dict[str, Any]] = json.loads(shown.out)["findings"]
    return code, findings


def codes(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["code"] for finding in findings]


def everything(raw: redis.Redis) -> dict[bytes, bytes]:
    """All of Redis, byte for byte, without what only tells time."""
    return {key: raw.dump(key) for key in raw.scan_iter()}


# -- plants: each strands something as a person would


async def wake_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    for entry, _ in c.raw.xrange(PARTITION.workflows()):
        c.raw.xdel(PARTITION.workflows(), entry)


async def step_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.chain, 1, run_id="r")
    await c.wake()
    for entry, _ in c.raw.xrange(PARTITION.steps()):
        c.raw.xdel(PARTITION.steps(), entry)


async def group_destroyed(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    c.raw.xgroup_destroy(PARTITION.workflows(), GROUP)


async def entry_of_a_delivery_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    delivery = await c.take("workflows")
    assert delivery is not None
    c.raw.xclaim(PARTITION.workflows(), GROUP, "dead", 0, [delivery.entry_id], idle=10**8, justid=True)
    c.raw.xdel(PARTITION.workflows(), delivery.entry_id)


async def acknowledged_by_hand(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    delivery = await c.take("workflows")
    assert delivery is not None
    c.raw.xack(PARTITION.workflows(), GROUP, delivery.entry_id)


async def timer_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    c.raw.delete(PARTITION.delayed)


async def retry_without_body(c: Consumers) -> None:
    await delayed_retry(c)
    c.raw.delete(PARTITION.delayed_body)


async def body_without_retry(c: Consumers) -> None:
    await delayed_retry(c)
    c.raw.delete(PARTITION.delayed)


async def delayed_retry(c: Consumers) -> None:
    await c.world.start(conf_app.chain, 1, run_id="r")
    await c.wake()
    delivery = await c.take("steps")
    assert delivery is not None
    again = Outgoing.again(delivery, body=delivery.fields["msg"], message_id=delivery.text("step"))
    await c.world.deliveries.move(delivery, again, old_id=again.id, target="steps", delay_ms=3_600_000)


async def row_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    await c.wake()
    c.raw.delete(PARTITION.run("r"), PARTITION.log("r"), PARTITION.steps())
    await c.world.queue.ensure_groups([c.stream("steps")])


async def row_alone_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    c.raw.delete(PARTITION.run("r"))


async def listing_deleted(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    c.raw.zrem(PARTITION.index("created"), "r")
    c.raw.zrem(PARTITION.index("status:running"), "r")


async def listed_wrong(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    c.raw.zrem(PARTITION.index("status:running"), "r")


async def row_expires(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    c.raw.pexpire(PARTITION.run("r"), 10**8)


async def hook_without_pointer(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    await c.wake()
    await c.world.events.hook_created("r", "h1", "order:42")
    c.raw.delete(PARTITION.hook("order:42"))


async def pointer_without_hook(c: Consumers) -> None:
    c.raw.hset(PARTITION.hook("order:42"), mapping={"run": "nobody", "hook": "h1"})


async def never_reaped(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    await c.world.cancel("r", terminate=True)
    c.raw.delete(PARTITION.workflows())
    c.raw.zadd(PARTITION.expiring, {"r": 5})
    await c.world.queue.ensure_groups([c.stream("workflows")])


async def lease_ended(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    delivery = await c.take("workflows")
    assert delivery is not None
    c.raw.xclaim(PARTITION.workflows(), GROUP, "dead", 0, [delivery.entry_id], idle=10**8, justid=True)


async def nobody_reads(c: Consumers) -> None:
    c.raw.xadd(PARTITION.steps(), {"kind": "step", "run": "x", "msg": b"?"}, id="5-1")


async def overdue(c: Consumers) -> None:
    c.raw.zadd(PARTITION.delayed, {"wait nobody w1": 5})


async def row_garbled(c: Consumers) -> None:
    await c.world.start(conf_app.chain, 1, run_id="r")
    await c.wake()
    c.raw.hset(PARTITION.run("r"), "s:x", "rubbish")


async def meta_deleted(c: Consumers) -> None:
    for run_id in ("r", *(f"r{number}" for number in range(20))):
        await c.world.start(conf_app.pair, run_id=run_id)
    c.raw.delete(meta("default"))


async def other_partition(c: Consumers) -> None:
    c.raw.hset(Partition("default", 5).stats, "runs_created", 1)


async def key_of_another(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    c.raw.delete(PARTITION.stats)
    c.raw.set(PARTITION.stats, "theirs")


MENDED = {
    meta_deleted: ("meta_lost", ()),
    wake_deleted: ("wake_lost", ()),
    step_deleted: ("step_lost", ("--app", "tests.apps.conf_app:wf")),
    group_destroyed: ("group_missing", ()),
    acknowledged_by_hand: ("settled_by_hand", ()),
    entry_of_a_delivery_deleted: ("deleted_delivery", ()),
    timer_deleted: ("timer_missing", ()),
    body_without_retry: ("body_without_delayed", ()),
    retry_without_body: ("delayed_without_body", ("--app", "tests.apps.conf_app:wf")),
    listing_deleted: ("listing", ("--deep",)),
    listed_wrong: ("listing", ()),
    row_deleted: ("listing", ()),
    row_expires: ("expires", ()),
    hook_without_pointer: ("hook_pointer", ()),
    pointer_without_hook: ("dangling_pointer", ("--deep",)),
    never_reaped: ("not_reaped", ()),
}
"""What doctor mends: its code, and the options that are needed."""

TOLD = {
    lease_ended: "stale_delivery",
    nobody_reads: "no_worker",
    overdue: "overdue",
    row_garbled: "unreadable",
    row_alone_deleted: "unreadable",
    other_partition: "partitions",
    key_of_another: "foreign_key",
    bury_step: "dead_letters",
}
"""What doctor only tells."""


@pytest.mark.parametrize("planting", MENDED)
def test_a_planted_fault_is_named_nothing_is_changed_and_fix_mends_it(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, planting: Plant
) -> None:
    code, options = MENDED[planting]
    plant(redis_url, raw, planting, max_inline_steps=0)
    before = everything(raw)

    found, findings = doctor(capsys, redis_url, *options)

    assert found == 1
    assert code in codes(findings)
    assert everything(raw) == before
    [finding] = [finding for finding in findings if finding["code"] == code]
    assert finding["where"]
    assert finding["remedy"].startswith(("redisworld doctor --fix", "start workers"))

    found, findings = doctor(capsys, redis_url, "--fix", *options)
    while any(finding["mended"] for finding in findings):  # a mended member shows what it hid
        assert all(finding["mended"] for finding in findings), findings
        found, findings = doctor(capsys, redis_url, "--fix", *options)

    assert (found, findings) == (0, [])
    if planting is not hook_without_pointer and raw.hget(PARTITION.run("r"), "status") in (b"pending", b"running"):
        drained(redis_url, raw)
        assert status_of(redis_url, "r") == "completed"
        invariants.check(raw, conf_app.wf, settled=False)


@pytest.mark.parametrize("planting", TOLD)
def test_what_only_people_can_mend_is_told_and_stays(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, planting: Plant
) -> None:
    plant(redis_url, raw, planting, max_inline_steps=0)
    before = everything(raw)

    found, findings = doctor(capsys, redis_url, "--fix")

    assert found == 1
    [finding] = [finding for finding in findings if finding["code"] == TOLD[planting]]
    assert finding["where"]
    assert finding["mended"] is None
    assert everything(raw) == before


def test_a_partition_count_that_the_runs_do_not_tell_is_asked_for(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def one_run(c: Consumers) -> None:
        await c.world.start(conf_app.pair, run_id="r")
        c.raw.delete(meta("default"))

    plant(redis_url, raw, one_run)
    before = everything(raw)

    found, [finding] = doctor(capsys, redis_url, "--fix")
    assert (found, finding["code"], finding["mended"]) == (1, "meta_lost", None)
    assert "its runs fit 1 to " in finding["what"]
    assert "--partitions <count>" in finding["remedy"]
    found, [finding] = doctor(capsys, redis_url, "--fix", "--partitions", wrong_count("r"))
    assert (found, finding["mended"]) == (1, None)
    assert "do not fit" in finding["what"]
    assert everything(raw) == before
    found, [finding] = doctor(capsys, redis_url, "--fix", "--partitions", "1")
    assert (found, finding["mended"]) == (0, "wrote it again, with 1 partition")
    assert raw.hget(meta("default"), "partitions") == b"1"


def wrong_count(run_id: str) -> str:
    """A partition count under which this run would not lie in partition 0."""
    return next(str(count) for count in range(2, 256) if partition_of(run_id, count))


def test_a_meta_hash_that_is_lost_while_one_looks_is_found_too(redis_url: str, raw: redis.Redis) -> None:
    async def lose(world: World) -> None:
        await world.start(conf_app.pair, run_id="r")
        raw.delete(meta("default"))

    found = found_by(redis_url, lose)

    assert "meta_lost" in [finding.code for finding in found]
    assert raw.exists(meta("default")) == 0, "a look writes nothing"


def test_a_client_does_not_make_a_namespace_anew_that_has_lost_its_meta_hash(redis_url: str, raw: redis.Redis) -> None:
    """With another count it would start runs where no worker reads."""
    plant(redis_url, raw, meta_deleted)

    async def connect() -> None:
        async with World.connect(settings=Settings(url=redis_url)):
            pass

    with pytest.raises(NamespaceMismatch, match=r"has lost rw:default:meta.*redisworld doctor --fix"):
        anyio.run(connect)
    assert raw.exists(meta("default")) == 0


def test_a_lost_step_is_not_sent_into_a_queue_that_nobody_named(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, step_deleted, max_inline_steps=0)

    found, [finding] = doctor(capsys, redis_url, "--fix")

    assert (found, finding["code"], finding["mended"]) == (1, "step_lost", None)
    assert "--app app:wf" in finding["remedy"]
    assert raw.xlen(PARTITION.steps()) == 0


def test_a_parked_run_names_its_letter(capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis) -> None:
    plant(redis_url, raw, bury_step, max_inline_steps=0)

    _, findings = doctor(capsys, redis_url, "--fix")

    assert codes(findings) == ["dead_letters", "parked"]
    [(letter, _)] = raw.xrange(PARTITION.dead)
    assert f"0/{letter.decode()}" in findings[1]["what"]


def test_a_row_of_thousands_of_steps_is_read_in_pages(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def many(c: Consumers) -> None:
        await c.world.start(conf_app.wide, 900, run_id="r")
        await c.wake()
        entries = raw.xrange(PARTITION.steps())
        raw.xdel(PARTITION.steps(), entries[10][0], entries[800][0])

    plant(redis_url, raw, many, max_inline_steps=0)

    _, findings = doctor(capsys, redis_url)

    assert codes(findings) == ["step_lost", "step_lost"]


# -- the server


@pytest.fixture
def configured(raw: Any) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the session's server, and puts it back."""
    changed: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        changed[name] = raw.config_get(name)[name]
        raw.config_set(name, value)

    yield change
    for name, value in changed.items():
        raw.config_set(name, value)


async def nothing(_: Consumers) -> None:
    """Only makes the namespace."""


def test_an_eviction_policy_that_deletes_runs_is_told(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, configured: Callable[[str, str], None]
) -> None:
    plant(redis_url, raw, nothing)
    configured("maxmemory-policy", "allkeys-lru")

    _, [finding] = doctor(capsys, redis_url)

    assert finding["code"] == "eviction"
    assert "allkeys-lru" in finding["what"]


def test_a_redis_that_keeps_nothing_is_told_and_snapshots_are_enough(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, configured: Callable[[str, str], None]
) -> None:
    plant(redis_url, raw, nothing)

    assert main(["doctor", "--url", redis_url]) == 1
    assert "neither the append-only file nor snapshots are on" in capsys.readouterr().out
    configured("save", "3600 1")
    assert main(["doctor", "--url", redis_url]) == 0
    assert capsys.readouterr().out == "healthy: nothing stands still\n"


def found_by(url: str, change: Callable[[World], Awaitable[None]]) -> list[Finding]:
    """The findings of a World that was changed."""

    async def run() -> list[Finding]:
        async with World.connect(settings=Settings(url=url)) as world:
            await change(world)
            return [finding async for finding in examine(world)]

    return anyio.run(run)


def test_an_old_redis_and_a_clock_that_is_wrong_are_told(redis_url: str) -> None:
    async def old_and_late(world: World) -> None:
        async def info() -> dict[str, Any]:
            return {"redis_version": "6.0.16", "aof_enabled": 1}

        async def time_of_redis() -> tuple[int, int]:
            return int(time.time()) + 90, 0

        world.connection.commands.info = info
        world.connection.commands.time = time_of_redis

    findings = found_by(redis_url, old_and_late)

    assert [finding.code for finding in findings] == ["redis_version", "clock"]
    assert "6.0.16" in findings[0].what
    assert "-90" in findings[1].what or "-89" in findings[1].what


def test_another_partition_count_than_the_namespace_has_is_refused(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, nothing)

    assert main(["doctor", "--url", redis_url, "--partitions", "8"]) == 2
    assert "has 1 partitions, but this process is set to 8" in capsys.readouterr().err
    raw.delete(meta("default"))
    assert main(["doctor", "--url", redis_url]) == 1
    assert "there is no namespace 'default'" in capsys.readouterr().err


# -- healthy


def test_a_healthy_busy_system_has_no_finding(redis_url: str, raw: redis.Redis) -> None:
    """Runs in every state with workers at work, looked at again and again while they go on."""

    async def run() -> list[Finding]:
        found: list[Finding] = []
        runs: list[str] = []
        async with connected(redis_url, raw) as consumers, working(consumers):
            for number in range(8):
                for workflow, arguments in (
                    (conf_app.pair, ()),
                    (conf_app.wide, (30,)),
                    (conf_app.chain, (20,)),
                    (conf_app.napped, (0.2,)),
                    (conf_app.napped, (60,)),
                ):
                    await consumers.world.start(workflow, *arguments, run_id=f"{workflow.name}-{number}-{len(runs)}")
                    runs.append(workflow.name)
                    found += [f async for f in examine(consumers.world, deep=number % 4 == 0)]
            for _ in range(5):
                found += [f async for f in examine(consumers.world, deep=True)]
        return found

    assert [finding for finding in anyio.run(run) if finding.code != "persistence"] == []


def test_a_run_that_waits_at_a_hook_is_healthy(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def hooked(c: Consumers) -> None:
        await c.world.start(conf_app.napped, 60, run_id="r")
        await c.wake()
        await c.world.events.hook_created("r", "h1", "order:42")
        await c.world.events.hook_created("r", "h2", "order:43")
        await c.world.events.hook_disposed("r", "h2")

    plant(redis_url, raw, hooked)

    assert doctor(capsys, redis_url, "--deep") == (0, [])


@pytest.mark.parametrize("name", ["dead", "delayed", "delayed:body", "expiring", "index:created", "index:status:failed",
                                  "nudge", "releases", "stats", "steps", "workflows"])  # fmt: skip
def test_a_key_of_another_type_is_named_and_the_other_partitions_are_looked_at(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, name: str
) -> None:
    """Where it was, doctor itself used to end with what Redis answered."""

    async def run() -> None:
        async with World.connect(settings=Settings(url=redis_url, partitions=2)) as world:
            raw.set(world.partitions[0].tag + name, "theirs")
            raw.xadd(world.partitions[1].dead, {"reason": "undecodable"})

    anyio.run(run)

    found, findings = doctor(capsys, redis_url)

    assert found == 1
    [finding] = [finding for finding in findings if finding["code"] == "foreign_key"]
    assert finding["where"] == [f"rw:{{default:0}}:{name}"]
    assert "is a string, and has to be a " in finding["what"]
    assert "dead_letters" in codes(findings)


@pytest.mark.parametrize("name", ["workers", "streams"])
def test_a_list_of_another_type_is_named(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, name: str
) -> None:
    """`workers` ended with a line that sent people to doctor, which knew nothing of it."""
    plant(redis_url, raw, bury_step, max_inline_steps=0)
    raw.delete(key := f"rw:{{default}}:{name}")
    raw.set(key, "theirs")

    found, findings = doctor(capsys, redis_url)

    assert found == 1
    [finding] = [finding for finding in findings if finding["code"] == "foreign_key"]
    assert finding["where"] == [key]
    assert "dead_letters" in codes(findings)
    raw.delete(key)


def test_workers_with_different_leases_are_told(redis_url: str) -> None:
    async def beat_with(world: World) -> None:
        for consumer, lease_ms in (("pod-a:1:x", 30_000), ("pod-b:1:y", 5_000), ("pod-c:1:z", 30_000)):
            now_ms = await world.connection.time_ms()
            beat = WorkerState(
                consumer=consumer,
                state="ready",
                streams=("steps",),
                started_at=now_ms,
                beat_at=now_ms,
                lease_ms=lease_ms,
            )
            await world.heartbeats.beat(beat, ())

    [finding] = [finding for finding in found_by(redis_url, beat_with) if finding.code == "leases"]

    assert "5000 ms (as of pod-b:1:y), 30000 ms (as of pod-" in finding.what


def test_every_kind_of_finding_is_planted_here() -> None:
    planted = {code for code, _ in MENDED.values()} | set(TOLD.values())

    assert planted | {"redis_version", "clock", "leases", "eviction", "persistence", "parked"} == set(KINDS)
    assert {code for code, _ in MENDED.values()} == {code for code, kind in KINDS.items() if kind.fixed}


def test_the_text_names_key_reason_and_remedy(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, wake_deleted)

    assert main(["doctor", "--url", redis_url, *DURABLE]) == 1
    text = capsys.readouterr().out

    assert text.splitlines() == [
        "wake_lost",
        "  run r waits for wake start, which is nowhere",
        "    key     rw:{default:0}:run:r",
        "  why     the run has something to see and no message will tell a worker so",
        "  remedy  redisworld doctor --fix; a running worker finds it too, within minutes",
        "",
        "1 finding",
    ]


def test_an_unknown_code_to_ignore_is_refused(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    assert main(["doctor", "--url", redis_url, "--ignore", "flu"]) == 2
    assert "must be one of redis_version, eviction" in capsys.readouterr().err
