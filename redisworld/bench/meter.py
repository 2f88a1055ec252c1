"""What did Redis do between two moments, by its own count?

``INFO commandstats`` counts a command that a script runs like one that a client sends, and the time of EVALSHA already
contains the time of the commands inside it. So only what clients send is added up here: commands that no script
runs, and of the others what this process itself has sent. A test compares the sum with MONITOR.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from redisworld.bench.results import PerStep
from redisworld.observe import Observation, RedisCalled, observing
from redisworld.world import World

_SCRIPT_CALLS = ("evalsha", "eval", "fcall")
_SENT_BY_CLIENTS = frozenset(
    (*_SCRIPT_CALLS, "xreadgroup", "xread", "xinfo", "ping", "subscribe", "unsubscribe", "client", "hello", "auth",
     "select", "script", "hscan", "zscan", "multi", "exec")
)  # fmt: skip
"""No script runs these (a container's name stands for all of its commands)."""
_FLOOR = frozenset(("xadd", "xreadgroup", "xack", "xdel"))
_OWN = {
    "read_row": ("hmget", "llen"),
    "read_log": ("lrange",),
    "read_hook": ("hmget",),
    "read_hook_state": ("hmget",),
}
"""Commands that scripts run too, by the operation of ``World`` that sends them."""


class Snapshot(msgspec.Struct, frozen=True):
    """Counters of the server, and commands of this process that scripts run too."""

    calls: dict[str, int]
    us: dict[str, int]
    bytes_in: int
    bytes_out: int
    cpu_us: float
    memory: int
    own: dict[str, int]


class Spent(msgspec.Struct, frozen=True):
    """What was spent between two snapshots."""

    commands: float
    script_calls: float
    redis_us: float
    bytes_in: float
    bytes_out: float
    cpu_us: float
    memory: int

    def per(self, count: float, digits: int = 3) -> PerStep:
        """A share of it."""
        return PerStep(
            commands=round(self.commands / count, digits),
            script_calls=round(self.script_calls / count, digits),
            redis_us=round(self.redis_us / count, digits),
            redis_cpu_us=round(self.cpu_us / count, digits),
            bytes=round((self.bytes_in + self.bytes_out) / count, 1),
            bytes_in=round(self.bytes_in / count, 1),
            bytes_out=round(self.bytes_out / count, 1),
        )


class Meter:
    """Takes snapshots; get one from ``metering``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own: Counter[str] = Counter()
        self._info = (0, 0)

    def observe(self, seen: Observation) -> None:
        """Listens for commands of this process that scripts run too."""
        if isinstance(seen, RedisCalled) and not seen.error:
            self._own.update(_OWN.get(seen.op, ()))

    async def calibrate(self) -> None:
        """Learn what a snapshot itself sends and gets, so that it is not measured."""
        snapshots = [await self.snapshot() for _ in range(4)]
        pairs = list(itertools.pairwise(snapshots))
        self._info = (
            min(after.bytes_in - before.bytes_in for before, after in pairs),
            min(after.bytes_out - before.bytes_out for before, after in pairs),
        )

    async def snapshot(self) -> Snapshot:
        """The counters now."""
        info: dict[str, Any] = await self._world.connection.run(
            "info", lambda: self._world.connection.commands.info("all")
        )
        stats = {name[8:]: value for name, value in info.items() if name.startswith("cmdstat_")}
        return Snapshot(
            calls={name: value["calls"] for name, value in stats.items()},
            us={name: value["usec"] for name, value in stats.items()},
            bytes_in=info["total_net_input_bytes"],
            bytes_out=info["total_net_output_bytes"],
            cpu_us=_cpu_us(info),
            # a busy client's buffers are given back seconds later, and would weigh more than the data
            memory=info["used_memory"] - info.get("mem_clients_normal", 0),
            own=dict(self._own),
        )

    def between(self, before: Snapshot, after: Snapshot, *, floor: bool = False) -> Spent:
        """What was spent; of the ``floor`` there are no scripts, and its four commands are what clients sent."""
        only = _SENT_BY_CLIENTS | (_FLOOR if floor else frozenset())
        commands = scripts = us = 0.0
        for name, after_calls in after.calls.items():
            calls = after_calls - before.calls.get(name, 0)
            spent = after.us[name] - before.us.get(name, 0)
            if name.partition("|")[0] in only:
                commands += calls
                us += spent
                scripts += calls if name in _SCRIPT_CALLS else 0
            elif own := after.own.get(name, 0) - before.own.get(name, 0):
                commands += own
                us += spent * own / max(own, calls)
        return Spent(
            commands=commands,
            script_calls=scripts,
            redis_us=us,
            bytes_in=after.bytes_in - before.bytes_in - self._info[0],
            bytes_out=after.bytes_out - before.bytes_out - self._info[1],
            cpu_us=after.cpu_us - before.cpu_us,
            memory=after.memory - before.memory,
        )


def _cpu_us(info: dict[str, Any]) -> float:
    """CPU time of the thread that runs commands; of the whole server where it does not tell its threads apart."""
    thread = "_main_thread" if "used_cpu_user_main_thread" in info else ""
    return float(info[f"used_cpu_user{thread}"] + info[f"used_cpu_sys{thread}"]) * 1e6


@asynccontextmanager
async def metering(world: World) -> AsyncIterator[Meter]:
    """A meter of the Redis behind ``world``; it counts whatever reaches that server, also from others."""
    meter = Meter(world)
    with observing(meter.observe):
        await meter.calibrate()
        yield meter
