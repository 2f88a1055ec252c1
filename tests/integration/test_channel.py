"""One connection that calls share: order, replies nobody waits for, and what is left when it is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import redis as sync_redis
import redis.asyncio as aioredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, ResponseError

from redisworld.world.channel import Channel

ECHO = "return ARGV[1]"
KEPT = ("CLIENT", "ID")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def channel(redis_url: str) -> AsyncIterator[Channel]:
    client = aioredis.Redis.from_url(redis_url)
    channel = Channel(client.connection_pool)
    yield channel
    channel.close()
    await client.aclose()


async def test_calls_at_once_share_a_connection_and_each_gets_its_own_reply(channel: Channel) -> None:
    echoed = [channel.call("EVAL", ECHO, 0, f"{n}", timeout=5) for n in range(500)]
    assert await asyncio.gather(*echoed) == [f"{n}".encode() for n in range(500)]
    ids = await asyncio.gather(*(channel.call(*KEPT, timeout=5) for _ in range(20)))
    assert len(set(ids)) == 1


async def test_an_error_reply_is_that_of_its_call_and_the_connection_goes_on(channel: Channel) -> None:
    here = await channel.call(*KEPT, timeout=5)
    answers = await asyncio.gather(
        channel.call("EVALSHA", "0" * 40, 0, timeout=5),
        channel.call("EVAL", ECHO, 0, "yes", timeout=5),
        channel.call("EVAL", "return redis.error_reply('MINE it is')", 0, timeout=5),
        return_exceptions=True,
    )
    assert isinstance(answers[0], NoScriptError)
    assert answers[1] == b"yes"
    assert isinstance(answers[2], ResponseError)
    assert await channel.call(*KEPT, timeout=5) == here


async def test_a_reply_whose_caller_has_gone_is_nobody_elses(channel: Channel) -> None:
    first = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "first", timeout=5))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "second", timeout=5))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"second"
    assert first.cancelled()


async def test_a_large_reply_and_a_large_command_come_whole(channel: Channel) -> None:
    big = b"x" * 3_000_000
    echoed = [channel.call("EVAL", ECHO, 0, big, timeout=20), channel.call("EVAL", ECHO, 0, b"small", timeout=20)]
    assert await asyncio.gather(*echoed) == [big, b"small"]


async def test_after_a_call_without_an_answer_in_time_the_next_one_has_a_new_connection(
    channel: Channel, redis_url: str
) -> None:
    here = await channel.call(*KEPT, timeout=5)
    blocked = asyncio.ensure_future(channel.call("BLPOP", "nothing", 0, timeout=0.2))
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "behind", timeout=5))
    with pytest.raises(TimeoutError):
        await blocked
    with pytest.raises(RedisConnectionError, match="not answered in time"):
        await behind
    assert await channel.call(*KEPT, timeout=5) != here
    with sync_redis.Redis.from_url(redis_url) as raw:
        assert raw.info("clients")["blocked_clients"] == 0, "Redis does not go on waiting for nobody"


async def test_each_call_has_its_own_time_though_one_timer_looks_after_all(channel: Channel, redis_url: str) -> None:
    raw = sync_redis.Redis.from_url(redis_url)
    assert await channel.call("EVAL", ECHO, 0, "quick", timeout=0.05) == b"quick"
    await asyncio.sleep(0.1)  # its time is over, and it has its answer
    gone = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "gone", timeout=0.05))
    await asyncio.sleep(0)
    gone.cancel()
    raw.execute_command("CLIENT", "PAUSE", 5_000, "ALL")
    try:
        patient = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "patient", timeout=60))
        hasty = asyncio.ensure_future(channel.call("EVAL", ECHO, 0, "hasty", timeout=0.3))
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await hasty
        assert 0.25 < asyncio.get_running_loop().time() - began < 4
        with pytest.raises(RedisConnectionError, match="not answered in time"):
            await patient
    finally:
        raw.execute_command("CLIENT", "UNPAUSE")
    assert await channel.call("EVAL", ECHO, 0, "again", timeout=5) == b"again"


async def test_a_killed_connection_is_told_to_all_who_wait_and_made_again(channel: Channel, redis_url: str) -> None:
    here = await channel.call(*KEPT, timeout=5)
    waiting = [asyncio.ensure_future(channel.call("BLPOP", "nothing", 0, timeout=5)) for _ in range(3)]
    await asyncio.sleep(0.05)
    with sync_redis.Redis.from_url(redis_url) as raw:
        raw.client_kill_filter(_id=here)
    lost = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in lost] == [RedisConnectionError] * 3
    assert await channel.call(*KEPT, timeout=5) != here


async def test_what_is_no_redis_at_all_is_an_invalid_response() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"CLIENT") or b"HELLO" in line:
                writer.write(b"+OK\r\n")
            if b"PING" in line:
                writer.write(b"!!! not a reply\r\n")
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = await asyncio.start_server(babble, sock=listening.dup())
    client = aioredis.Redis(port=port, protocol=2)
    channel = Channel(client.connection_pool)
    with pytest.raises(InvalidResponse):
        await channel.call("PING", timeout=5)
    channel.close()
    await client.aclose()
    server.close()
    await server.wait_closed()


async def test_a_closed_channel_leaves_no_connection(channel: Channel, redis_url: str) -> None:
    here = await channel.call(*KEPT, timeout=5)
    channel.close()
    with sync_redis.Redis.from_url(redis_url) as raw:
        for _ in range(100):
            if here not in {int(client["id"]) for client in raw.client_list()}:
                return
            await asyncio.sleep(0.02)
    raise AssertionError("the connection is still there")
