"""Which node serves a key, and what is believed after a redirection?"""

from __future__ import annotations

import pytest
from redis.exceptions import AskError, ClusterDownError, MovedError

from redisworld.keys import Partition, absent
from redisworld.world.addresses import nodes_named, url_at
from redisworld.world.routed import key_in
from redisworld.world.topology import Topology, slot_of

A, B, C = ("a", 1), ("b", 2), ("c", 3)
PARTITION = Partition("default", 0)


def told() -> Topology:
    """A has slots up to 8,000 and the replica C; B has those above 8,000."""
    topology = Topology([("seed", 9)])
    topology.learn([[0, 8_000, [b"a", 1, b"id", []], [b"c", 3]], [8_001, 16_000, [b"b", 2]]], ("seed", 9))
    return topology


def key_at(low: int, high: int) -> str:
    return next(key for key in (f"k{n}" for n in range(10_000)) if low <= slot_of(key) <= high)


@pytest.mark.parametrize(
    ("key", "slot"),  # CLUSTER KEYSLOT of a real Redis
    [
        ("foo", 12_182),
        (b"foo", 12_182),
        ("{foo}bar", 12_182),
        ("x{foo}{bar}", 12_182),
        ("{}foo", 9_500),
        ("{foo", 13_308),
    ],
)
def test_a_slot_is_that_of_the_first_hash_tag_that_is_not_empty(key: str | bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_a_key_that_never_exists_lies_in_the_slot_of_the_other() -> None:
    assert slot_of(absent(PARTITION.stats)) == slot_of(PARTITION.stats)
    assert absent(PARTITION.stats) != PARTITION.stats


def test_each_key_goes_to_the_primary_of_its_slot_and_none_to_any() -> None:
    topology = told()
    assert topology.primary_of(key_at(0, 8_000)) == A
    assert topology.primary_of(key_at(8_001, 16_000)) == B
    assert {topology.primary_of(None) for _ in range(100)} == {A, B}
    assert set(topology.everybody()) == {A, B, C, ("seed", 9)}


def test_a_slot_that_nobody_serves_is_asked_for_again() -> None:
    topology = told()
    assert not topology.in_doubt
    with pytest.raises(ClusterDownError, match="serves slot"):
        topology.primary_of(key_at(16_001, 16_383))
    assert topology.in_doubt
    with pytest.raises(ClusterDownError):
        topology.learn([], A)


def test_moved_is_for_good_and_ask_for_one_call() -> None:
    topology, key = told(), key_at(0, 8_000)
    assert topology.redirected(AskError(f"{slot_of(key)} b:2"), A) == B
    assert (topology.primary_of(key), topology.in_doubt) == (A, False)
    assert topology.redirected(MovedError(f"{slot_of(key)} b:2"), A) == B
    assert (topology.primary_of(key), topology.in_doubt) == (B, True)


@pytest.mark.parametrize("nothing", [None, b"", "", b"?"])
def test_a_node_without_a_name_has_that_of_who_tells_of_it(nothing: object) -> None:
    topology = Topology([])
    topology.learn([[0, 16_383, [nothing, 7]]], ("here", 6))
    assert topology.primary_of("x") == ("here", 7)
    assert topology.redirected(MovedError("1 :8"), ("here", 6)) == ("here", 8)
    assert topology.redirected(MovedError("1 ::1:8"), ("here", 6)) == ("::1", 8)


def test_keys_are_grouped_by_node_and_those_that_are_none_join_one_group() -> None:
    low, high = key_at(0, 8_000), key_at(8_001, 16_000)
    assert told().grouped([None, low, high, low]) == [[1, 3, 0], [2]]
    assert told().grouped([None]) == [[0]]
    assert told().grouped([]) == []


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (("HMGET", "k", "f"), "k"),
        (("XINFO GROUPS", "k"), "k"),
        (("XGROUP CREATE", "k", "workers", "0"), "k"),
        (("XREAD", b"COUNT", b"1", b"STREAMS", "k", "0"), "k"),
        (("XREADGROUP", "GROUP", "g", "c", "STREAMS", b"k", ">"), b"k"),
        (("EVALSHA", "sha", 2, "k", "other", "arg"), "k"),
        (("TIME",), None),
        (("CONFIG GET", "save"), None),
    ],
)
def test_the_key_of_a_command_is_where_redis_py_puts_it(args: tuple[object, ...], key: object) -> None:
    assert key_in(args) == key


def test_a_url_of_nodes_names_each_and_that_of_one_keeps_user_and_options() -> None:
    url = "rediss+cluster://u:p%40@a:1,[::1]:2,c?ssl_cert_reqs=none"
    assert nodes_named(url) == [("a", 1), ("::1", 2), ("c", 6379)]
    assert url_at(url, ("::1", 2)) == "rediss://u:p%40@[::1]:2?ssl_cert_reqs=none"
    assert url_at("redis://a:1/0", B) == "redis://b:2"
    assert nodes_named("redis://a:1") == []
