"""Do all keys of a run share one hash slot, under names an operator can guess?"""

from __future__ import annotations

from collections import Counter

import pytest
from redis.crc import key_slot

from redisworld import keys
from redisworld.keys import Partition, partition_of

SHOP = Partition(namespace="shop", number=3)


@pytest.mark.parametrize(
    ("text", "crc16"),
    # The check value of CRC-16/XMODEM, and `CLUSTER KEYSLOT foo` and `… somekey` of a real Redis.
    [("123456789", 0x31C3), ("", 0), ("foo", 12182), ("somekey", 11058)],
)
def test_the_partition_is_made_with_the_crc16_of_redis_cluster(text: str, crc16: int) -> None:
    assert partition_of(text, 16_384 if crc16 != 0x31C3 else 65_536) == crc16


@pytest.mark.parametrize("run_id", ["publish-cat", "größe", "a" * 500, "x:y/z"])
def test_our_crc16_agrees_with_the_slot_redis_py_computes(run_id: str) -> None:
    assert partition_of(run_id, 16_384) == key_slot(run_id.encode())


def test_runs_spread_evenly_over_partitions() -> None:
    counts = Counter(partition_of(f"order-{number}", 4) for number in range(10_000))

    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 2_300


def test_one_partition_takes_every_run() -> None:
    assert {partition_of(f"order-{number}", 1) for number in range(100)} == {0}


def every_key(partition: Partition, run_id: str) -> list[str]:
    return [
        partition.steps(),
        partition.steps("gpu"),
        partition.steps("gpu", "blue"),
        partition.workflows(),
        partition.workflows("blue"),
        partition.delayed,
        partition.delayed_body,
        partition.dead,
        partition.run(run_id),
        partition.log(run_id),
        partition.index("created"),
        partition.expiring,
        partition.stats,
        partition.nudge,
        partition.reclaim_ticket("steps"),
    ]


@pytest.mark.parametrize("run_id", ["r1", "{other}", "}{", "a:b", "rw:{shop:1}:run:r1"])
def test_all_keys_of_a_partition_lie_in_one_slot_whatever_the_run_id(run_id: str) -> None:
    slots = {key_slot(key.encode()) for key in every_key(SHOP, run_id)}

    assert slots == {key_slot(b"shop:3")}


def test_no_two_keys_of_a_partition_have_the_same_name() -> None:
    names = every_key(SHOP, "r1")

    assert len(set(names)) == len(names)


def test_keys_read_as_the_design_writes_them() -> None:
    assert SHOP.run("r1") == "rw:{shop:3}:run:r1"
    assert SHOP.log("r1") == "rw:{shop:3}:run:r1:log"
    assert SHOP.steps() == "rw:{shop:3}:steps"
    assert SHOP.steps("gpu") == "rw:{shop:3}:steps:gpu"
    assert SHOP.steps("gpu", "blue") == "rw:{shop:3}:steps:gpu@blue"
    assert SHOP.steps(deployment="blue") == "rw:{shop:3}:steps@blue"
    assert SHOP.workflows("blue") == "rw:{shop:3}:workflows@blue"
    assert SHOP.delayed_body == "rw:{shop:3}:delayed:body"
    assert SHOP.index("status:running") == "rw:{shop:3}:index:status:running"
    assert keys.meta("shop") == "rw:shop:meta"
    assert keys.worker_key("shop", "h:1:a") == "rw:{shop}:worker:h:1:a"
    assert keys.listed_workers("shop") == "rw:{shop}:workers"
    assert keys.listed_streams("shop") == "rw:{shop}:streams"


def test_the_heartbeats_of_a_namespace_lie_in_one_slot_so_that_one_command_reads_them_all() -> None:
    names = [keys.worker_key("shop", "h:1:a"), keys.worker_key("shop", "{other}:2:b"), keys.listed_workers("shop")]

    assert {key_slot(name.encode()) for name in names} == {key_slot(b"shop")}


def test_scripts_take_a_stream_by_its_name_within_the_partition() -> None:
    assert SHOP.short(SHOP.steps("gpu", "blue")) == "steps:gpu@blue"
    assert SHOP.tag + SHOP.short(SHOP.workflows()) == SHOP.workflows()
