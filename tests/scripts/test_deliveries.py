"""Who may settle, keep, take over, move and bury a delivery? (design section 11)"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import anyio
import msgspec
import pytest

from redisworld import messages
from redisworld.keys import GROUP
from redisworld.world import Renewal, Renewed, Sweep
from tests.scripts.driver import RUN, Consumer, end, inline, step

pytestmark = pytest.mark.anyio


async def idle_ms(a: Consumer, stream: str = "steps") -> dict[str, int]:
    entries = await a.redis.xpending_range(a.partition.tag + stream, "workers", "-", "+", count=100)
    return {entry["message_id"].decode(): entry["time_since_delivered"] for entry in entries}


@pytest.fixture
def renewal(a: Consumer) -> Iterator[Renewal]:
    renewal = Renewal(a.world.connection, a.world.consumer)
    yield renewal
    renewal.close()


# -- leases


async def test_a_renewal_resets_the_idle_time_and_leaves_the_delivery_count(a: Consumer, renewal: Renewal) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    await a.age(delivery)

    assert renewal.renew(a.partition, [delivery]) == Renewed()

    assert (await idle_ms(a))[delivery.entry_id] < 10_000
    assert await a.pending(delivery) == (a.world.consumer, 1)


async def test_a_renewal_does_not_steal_back_what_another_took_over(a: Consumer, b: Consumer, renewal: Renewal) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"), step("s3"))
    await b.take(deliveries["s1"])
    await a.world.deliveries.settle(deliveries["s2"])

    renewed = renewal.renew(a.partition, list(deliveries.values()))

    assert renewed == Renewed(lost=[deliveries["s1"], deliveries["s2"]])
    assert await b.holds(deliveries["s1"])


async def test_a_renewal_tells_of_runs_that_were_cancelled(a: Consumer, renewal: Renewal) -> None:
    cancelled = await a.dispatch(step("s1"))
    completed = await a.dispatch(step("s1", run="other"), run="other")
    await a.finish(how="cancelled")
    await a.finish("other")
    deliveries = [*completed.values(), *cancelled.values()]

    assert renewal.renew(a.partition, deliveries) == Renewed(cancelled=list(cancelled.values()))


async def test_a_delivery_given_back_comes_again_with_its_bytes(a: Consumer, renewal: Renewal) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    renewal.give_back(delivery)

    again = (await a.steps_delivered())["s1"]
    assert again.fields == delivery.fields
    assert await a.pending(delivery) is None


async def test_a_first_message_given_back_still_starts_its_run(a: Consumer, renewal: Renewal) -> None:
    await a.start()
    (delivery,) = await a.read("workflows")

    renewal.give_back(delivery)

    (again,) = await a.read("workflows")
    assert again.fields["msg"] == delivery.fields["msg"]
    assert (await a.load(again)).loaded.outcome == "loaded"


# -- only the holder


@pytest.mark.parametrize("act", ["settle", "move", "bury", "claim"])
async def test_who_does_not_hold_a_delivery_cannot_touch_it(a: Consumer, b: Consumer, act: str) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    await b.take(delivery)
    before = await a.dump()

    if act == "settle":
        assert await a.world.deliveries.settle(delivery) is False
    elif act == "move":
        assert await a.move(delivery) is False
    elif act == "bury":
        assert (
            await a.world.deliveries.bury(delivery, run_id=RUN, reason="max_deliveries", detail="", code="X") is False
        )
    else:
        assert (await a.claim(delivery)).outcome == "stale"

    assert await a.dump() == before


async def test_a_load_without_the_delivery_settles_nothing(a: Consumer, b: Consumer) -> None:
    turn = await a.begin()
    await b.take(turn.delivery)
    await b.finish()

    assert (await a.load(turn.delivery)).loaded.outcome == "gone"
    assert await b.holds(turn.delivery)


# -- duplicates


async def test_a_second_entry_of_a_message_is_stale_while_the_first_lives(a: Consumer, b: Consumer) -> None:
    first = await a.claim((await a.dispatch(step("s1")))["s1"])
    second = await b.duplicate(first.delivery)

    assert (await b.claim(second)).outcome == "stale"
    assert await b.pending(second) is None
    assert (await a.complete(first)).outcome == "completed"


@pytest.mark.parametrize("gone", ["acknowledged and deleted", "acknowledged", "deleted"])
async def test_a_second_entry_takes_over_when_the_first_is_gone(a: Consumer, b: Consumer, gone: str) -> None:
    first = await a.claim((await a.dispatch(step("s1")))["s1"])
    second = await b.duplicate(first.delivery)
    key = a.partition.steps()
    if "acknowledged" in gone:
        await a.redis.xack(key, "workers", first.delivery.entry_id)
    if "deleted" in gone:
        await a.redis.xdel(key, first.delivery.entry_id)

    assert (await b.claim(second)).claim.attempt == 2
    assert (await a.complete(first)).outcome == "stale"


async def test_a_second_entry_in_another_stream_is_stale_while_the_first_lives(a: Consumer, b: Consumer) -> None:
    first = await a.claim((await a.dispatch(step("s1")))["s1"])
    second = await b.duplicate(first.delivery, "steps:gpu")

    assert (await b.claim(second)).outcome == "stale"


async def test_a_message_moved_to_another_stream_after_a_crash_is_not_mistaken_for_a_duplicate(
    a: Consumer, b: Consumer
) -> None:
    # given two steps dispatched by one commit to two streams, where their entries have the same id; both run
    await a.dispatch(step("s1", target="steps:gpu"), step("s2"))
    on_gpu = (await a.steps_delivered(stream="steps:gpu"))["s1"]
    entries = await a.redis.xpending_range(a.partition.steps(), "workers", "-", "+", count=9)
    same_id = msgspec.structs.replace(
        on_gpu,
        stream="steps",
        fields={**on_gpu.fields, "step": b"s2", "msg": step("s2")[5]},  # type: ignore[dict-item]
    )
    assert [entry["message_id"].decode() for entry in entries] == [on_gpu.entry_id]
    assert [(await a.claim(d)).outcome for d in (on_gpu, same_id)] == ["started", "started"]

    # when the worker of the first dies, and its message is re-routed to the other stream
    taken = await b.take(on_gpu)
    await b.move(taken, target="steps")
    again = (await b.steps_delivered())["s1"]

    # then it starts there
    answer = await b.claim(again)
    assert (answer.outcome, answer.claim.attempt) == ("started", 2)


# -- reclaim


async def test_a_reclaim_takes_what_has_aged_and_reports_its_deliveries(a: Consumer, b: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"))
    await a.age(deliveries["s1"])

    sweep = await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)

    assert (sweep.cursor, sweep.quiet_ms) == ("0-0", 0)
    assert [(d.text("step"), d.deliveries, d.fields) for d in sweep.taken] == [("s1", 2, deliveries["s1"].fields)]
    assert await b.holds(sweep.taken[0])
    assert await a.holds(deliveries["s2"])


async def test_a_reclaim_carries_its_cursor_past_a_window_of_young_entries(a: Consumer, b: Consumer) -> None:
    # given many young deliveries before an old one: a window of count 1 looks at ten entries
    deliveries = await a.dispatch(*(step(f"s{n:02}") for n in range(35)))
    await a.age(deliveries["s34"])

    sweep, calls = Sweep("0-0"), 0
    while not sweep.taken and calls < 10:
        sweep = await b.world.deliveries.reclaim((b.partition, "steps"), sweep.cursor, 1)
        calls += 1

    assert ([d.text("step") for d in sweep.taken], calls) == (["s34"], 4)


async def test_a_reclaim_passes_over_entries_that_were_deleted(a: Consumer, b: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"))
    for delivery in deliveries.values():
        await a.age(delivery)
    await a.redis.xdel(a.partition.steps(), deliveries["s1"].entry_id)

    sweep = await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)

    assert [d.text("step") for d in sweep.taken] == ["s2"]


async def test_only_the_holder_of_the_ticket_sweeps_a_stream(a: Consumer, b: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    assert await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10) == Sweep("0-0")
    await a.age(delivery)

    sweep = await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)
    assert (sweep.busy, sweep.taken) == (True, ())
    assert await a.holds(delivery)
    longest = a.world.settings.reclaim_every_ms * 6 / 5  # it may be full by now, and not come again
    assert 0 < await a.redis.pttl(a.partition.reclaim_ticket("steps")) <= sweep.quiet_ms <= longest

    await a.redis.delete(a.partition.reclaim_ticket("steps"))  # as it expires
    assert (await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)).taken


async def test_nobody_needs_to_sweep_for_a_lease_where_nothing_is_pending(a: Consumer, b: Consumer) -> None:
    """What is delivered from then on is stale in a lease at the earliest."""
    await a.redis.xgroup_create(a.partition.steps(), GROUP, id="0", mkstream=True)
    lease_ms = a.world.settings.lease_ms

    assert await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10) == Sweep("0-0", quiet_ms=lease_ms)
    other = await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)

    assert other.busy
    assert lease_ms - 5_000 < other.quiet_ms <= lease_ms


def _crc64(data: bytes) -> int:
    """That of Redis (Jones), which ends a DUMP."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


async def delivered_ahead(a: Consumer, key: str, ahead_ms: int) -> None:
    """The pending entries of a stream as they are when the clock has gone back: delivered later than now."""
    dumped = (await a.redis.dump(key))[:-8]
    [group] = (await a.redis.xinfo_stream(key, full=True))["groups"]
    for _, _, at, _ in group["pending"]:
        assert struct.pack("<q", at) in dumped
        dumped = dumped.replace(struct.pack("<q", at), struct.pack("<q", at + ahead_ms))
    await a.redis.restore(key, 0, dumped + struct.pack("<Q", _crc64(dumped)), replace=True)


async def test_a_reclaim_takes_in_a_lease_what_a_dead_worker_holds_also_when_the_clock_of_redis_has_gone_back(
    a: Consumer, b: Consumer
) -> None:
    """It looked fresh until the time of its delivery had come again; as long, the dead one held the ticket."""
    key, hour_ms, lease_ms = a.partition.workflows(), 3_600_000, 200
    await a.redis.xgroup_create(key, GROUP, id="0", mkstream=True)
    await a.world.deliveries.reclaim((a.partition, "workflows"), "0-0", 10)
    seconds, _ = await a.redis.time()
    await a.redis.execute_command("XSETID", key, f"{seconds * 1_000 + hour_ms}-0")  # as entries of that hour leave it
    await a.start()
    [lost] = await a.read("workflows")
    await delivered_ahead(a, key, hour_ms)
    await a.redis.pexpire(a.partition.reclaim_ticket("workflows"), hour_ms)

    sweep = Sweep("0-0")
    with anyio.fail_after(10):
        while not sweep.taken:
            sweep = await b.world.deliveries.reclaim((b.partition, "workflows"), "0-0", 10, lease_ms=lease_ms)
            await anyio.sleep(lease_ms / 5_000)

    assert [delivery.entry_id for delivery in sweep.taken] == [lost.entry_id]


async def test_a_reclaim_on_a_stream_that_is_gone_makes_it_again(a: Consumer) -> None:
    await a.dispatch(step("s1"))
    await a.redis.delete(a.partition.steps())

    assert await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10) == Sweep("0-0")
    assert len(await a.redis.xinfo_groups(a.partition.steps())) == 1


async def test_a_claim_of_a_reclaimed_delivery_is_the_next_attempt(a: Consumer, b: Consumer) -> None:
    first = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.age(first.delivery)
    (taken,) = (await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)).taken

    assert (await b.claim(taken)).claim.attempt == 2
    assert (await a.complete(first)).outcome == "stale"


# -- consumers


async def test_a_consumer_that_holds_something_is_not_removed(a: Consumer, b: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    assert await b.world.upkeep.remove_consumer((a.partition, "steps"), a.world.consumer) is False
    assert await a.holds(delivery)


async def test_a_consumer_that_holds_nothing_is_removed(a: Consumer, b: Consumer) -> None:
    await a.world.deliveries.settle((await a.dispatch(step("s1")))["s1"])

    assert await b.world.upkeep.remove_consumer((a.partition, "steps"), a.world.consumer) is True
    assert await a.redis.xinfo_consumers(a.partition.steps(), "workers") == []


# -- move


async def test_a_moved_message_waits_in_its_target_with_the_bytes_given(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    assert await a.move(delivery, target="steps:gpu")

    moved = (await a.steps_delivered(stream="steps:gpu"))["s1"]
    assert moved.fields == delivery.fields
    assert (await a.claim(moved)).outcome == "started"


async def test_a_responsible_message_moved_under_a_new_id_stays_responsible(a: Consumer) -> None:
    turn = await a.begin()

    await a.move(turn.delivery, new_id="recovery-1")

    assert (await a.row()).wake == "recovery-1"


async def test_a_message_that_is_not_responsible_moves_without_becoming_so(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])

    await a.move(attempt.delivery, new_id="other")

    assert (await a.row()).wake == ""


async def test_an_owner_moved_under_a_new_id_still_owns_its_step(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, inline("s1", a.world.next_token()))

    await a.move(turn.delivery, new_id="recovery-1")

    (delivery,) = await a.read("workflows")
    loaded = await a.world.deliveries.load(delivery, RUN, "recovery-1")
    assert (loaded.outcome, loaded.owned) == ("loaded", "s1")
    assert (await a.claim(delivery, step_id="s1", message_id="recovery-1")).claim.attempt == 2


async def test_an_owner_moved_under_its_own_id_still_owns_its_step(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, inline("s1", a.world.next_token()))

    await a.move(turn.delivery)

    (delivery,) = await a.read("workflows")
    assert (await a.load(delivery)).loaded.owned == "s1"
    assert (await a.claim(delivery, step_id="s1")).claim.attempt == 2


async def test_a_move_for_a_run_that_is_not_there_creates_no_row(a: Consumer) -> None:
    delivery = await a.publish("s1", run="nobody")

    assert await a.move(delivery, new_id="s1b")
    assert not await a.redis.exists(a.key("nobody"))


# -- bury


async def test_a_dead_letter_keeps_the_original_and_says_why(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="nobody knows work")

    ((_, letter),) = await a.redis.xrange(a.partition.dead)
    original = {k.removeprefix(b"original:").decode(): v for k, v in letter.items() if k.startswith(b"original:")}
    assert original == delivery.fields
    assert messages.decode(original["msg"]).message_id == "s1"
    assert (letter[b"reason"], letter[b"detail"], letter[b"kind"]) == (b"unknown_name", b"nobody knows work", b"step")
    assert (letter[b"stream"], letter[b"entry"], letter[b"deliveries"]) == (b"steps", delivery.entry_id.encode(), b"1")
    assert letter[b"at"] == str(a.clock.now).encode()
    assert await a.pending(delivery) is None


async def test_a_burial_without_a_code_leaves_the_run_open(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    before = await a.written()

    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="")

    row, log = await a.written()
    assert isinstance(row, dict)
    (letter,) = await a.redis.xrange(a.partition.dead)
    assert row.pop(b"parked") == letter[0]
    assert (row, log) == before


async def test_a_burial_with_a_code_fails_the_run_in_the_same_script(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    await a.world.deliveries.bury(
        delivery, run_id=RUN, reason="max_deliveries", detail="", code="MAX_DELIVERIES_EXCEEDED", payload=b"p"
    )

    row = await a.row()
    assert (row.status, row.code, row.finished_event) == ("failed", "MAX_DELIVERIES_EXCEEDED", row.log_length)
    assert ((await a.log())[-1].kind, (await a.log())[-1].payload) == ("run_failed", b"p")
    assert await a.redis.pttl(a.key()) > 0


async def test_a_burial_does_not_fail_a_run_that_has_ended(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    await a.finish()
    before = await a.written()

    assert await a.world.deliveries.bury(delivery, run_id=RUN, reason="max_deliveries", detail="", code="X")
    assert await a.written() == before


@pytest.mark.parametrize("fields", [{"odd": "x"}, {"msg": b"\xff\x00", "kind": "nonsense"}])
async def test_bytes_that_nobody_can_read_are_buried_as_they_are(a: Consumer, fields: dict[str, object]) -> None:
    await a.redis.xadd(a.partition.steps(), fields)
    (delivery,) = await a.read("steps")

    assert await a.world.deliveries.bury(delivery, run_id="", reason="undecodable", detail="")

    ((_, letter),) = await a.redis.xrange(a.partition.dead)
    assert letter[b"kind"] == b"unknown"
    assert {k: v for k, v in letter.items() if k.startswith(b"original:")} == {
        f"original:{k}".encode(): v if isinstance(v, bytes) else str(v).encode() for k, v in fields.items()
    }


async def test_a_finished_runs_messages_are_settled_as_they_come(a: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"))
    await a.later_pass(end())

    assert {(await a.claim(d)).outcome for d in deliveries.values()} == {"gone"}
    assert await a.redis.xlen(a.partition.steps()) == 0
