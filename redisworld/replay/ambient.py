"""What do clocks, random numbers, UUIDs and lists of tasks give in a body? The same in every replay."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import sys
import time
import uuid
import warnings
from asyncio import events
from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Final, TypeVar, cast

from redisworld.replay.body import Body
from redisworld.replay.forbidden import refusal
from redisworld.replay.loop import ReplayLoop
from redisworld.replay.reach import acting_body, refused
from redisworld.replay.standins import Replaced, replace, stand_in

D = TypeVar("D", bound=datetime)

_NS_PER_MS: Final = 1_000_000
_US_PER_S: Final = 1_000_000
_GREGORIAN_TO_EPOCH: Final = 0x01B21DD213814000
"""The epoch in the time of a version 1 UUID: tenths of microseconds since 1582-10-15 (RFC 9562, section 5.1)."""

_UTCNOW_WARNING: Final = (
    "datetime.datetime.utcnow() is deprecated and scheduled for removal in a future version. Use timezone-aware "
    "objects to represent datetimes in UTC: datetime.datetime.now(datetime.UTC)."
)


def install_time(replaced: Replaced) -> None:
    """Let ``time`` and ``datetime`` give body time in a body."""
    seconds = ("time", "monotonic", "perf_counter")
    clocks = {name: stand_in(time, name, _seconds, plain=True) for name in seconds}
    clocks |= {f"{name}_ns": stand_in(time, f"{name}_ns", _ns, plain=True) for name in seconds}
    for name in ("process_time", "thread_time", "process_time_ns", "thread_time_ns"):
        clocks[name] = stand_in(time, name, refused(f"time.{name}()"), plain=True)
    clocks |= {name: stand_in(time, name, inside) for name, inside in _CALENDAR.items() if hasattr(time, name)}
    replace(time, clocks, replaced)
    # now() reads the clock in C; today() calls time.time, which is a stand-in by now.
    _replace_method(datetime, "now", _datetime_now)
    _replace_method(datetime, "utcnow", _datetime_utcnow)


RENEWED: Final = (datetime, date)
"""Classes with methods of ours."""


def install_chance(replaced: Replaced) -> None:
    """Let ``os.urandom``, ``random``, ``secrets`` and ``uuid`` give the run's own values in a body."""
    inst = random._inst
    entropy = {"urandom": stand_in(os, "urandom", _urandom)}
    if hasattr(os, "getrandom"):
        entropy["getrandom"] = stand_in(os, "getrandom", lambda body, size, flags=0: _urandom(body, size))
    replace(os, entropy, replaced)
    names = ("random", "getrandbits", "seed", "getstate", "setstate")
    replace(random, {name: stand_in(random, name, _by_name(name), plain=name == "random") for name in names}, replaced)
    # All other functions of the module are methods of this one object, bound long ago in any number of places.
    inst.__class__ = _ProcessRandom
    _seed_unseeded()
    replace(
        uuid,
        {
            "uuid1": stand_in(uuid, "uuid1", _uuid1),
            "getnode": stand_in(uuid, "getnode", refused("uuid.getnode()"), plain=True),
        },
        replaced,
    )


def install_tasks(replaced: Replaced) -> None:
    """Let ``asyncio.all_tasks`` tell a body its own tasks, those of bare steps too, which asyncio is not told of: that
    would take longer than anything else of their making.
    """
    listing = stand_in(asyncio, "all_tasks", _all_tasks)
    for module in (asyncio, asyncio.tasks):
        replace(module, {"all_tasks": listing}, replaced)


# --- time ----------------------------------------------------------------------------------------------------


def _seconds(body: Body) -> float:
    return body.loop.now_ms / 1_000


def _ns(body: Body) -> int:
    return body.loop.now_ms * _NS_PER_MS


def _calendar(name: str) -> Callable[..., Any]:
    original = getattr(time, name)

    def inside(body: Body, moment: float | None = None) -> Any:
        return original(_seconds(body) if moment is None else moment)

    return inside


def _of_struct(name: str, *, leading: int) -> Callable[..., Any]:
    """For functions that take a struct_time last: ``asctime(t)``, ``strftime(format, t)``."""
    original, localtime = getattr(time, name), time.localtime

    def inside(body: Body, *args: Any) -> Any:
        return original(*args, localtime(_seconds(body))) if len(args) == leading else original(*args)

    return inside


def _clock(unit: Callable[[Body], float], name: str) -> Callable[..., Any]:
    stable = {getattr(time, clock) for clock in ("CLOCK_REALTIME", "CLOCK_MONOTONIC") if hasattr(time, clock)}

    def inside(body: Body, clock: int) -> float:
        if clock not in stable:
            raise refusal(f"time.{name}() of that clock")
        return unit(body)

    return inside


_CALENDAR: Final[dict[str, Callable[..., Any]]] = {
    **{name: _calendar(name) for name in ("localtime", "gmtime", "ctime")},
    "asctime": _of_struct("asctime", leading=0),
    "strftime": _of_struct("strftime", leading=1),
    "clock_gettime": _clock(_seconds, "clock_gettime"),
    "clock_gettime_ns": _clock(_ns, "clock_gettime_ns"),
}

_real_now: Final = datetime.__dict__["now"]
_real_utcnow: Final = datetime.__dict__["utcnow"]
_real_time_ns: Final = time.time_ns
_running_loop: Final = events._get_running_loop


def _datetime_now(cls: type[D], tz: tzinfo | None = None) -> D:
    if type(_running_loop()) is ReplayLoop and (body := acting_body()) is not None:
        return cls.fromtimestamp(_seconds(body), tz)
    return cast("D", _real_now(cls, tz))


def _datetime_utcnow(cls: type[D]) -> D:
    body = acting_body()
    if sys.version_info < (3, 12):
        if body is None:
            return cast("D", _real_utcnow(cls))
    else:
        # The original would name this line, not the caller's.
        warnings.warn(_UTCNOW_WARNING, DeprecationWarning, stacklevel=2)
    micros = (_real_time_ns() if body is None else _ns(body)) // 1_000
    moment = cls.fromtimestamp(micros // _US_PER_S, UTC)
    return moment.replace(microsecond=micros % _US_PER_S, tzinfo=None)


def _replace_method(kind: type, name: str, function: Callable[..., Any]) -> None:
    # A class written in C refuses setattr, and a subclass in its place would not be the class that others imported
    # before and compare with. Its dict behind the read-only view is an ordinary one; the interpreter has to be told
    # that it changed, or it goes on with the method it remembers for this class and its subclasses.
    function.__name__, function.__qualname__ = name, f"{kind.__name__}.{name}"
    function.__doc__ = getattr(kind, name).__doc__
    gc.get_referents(kind.__dict__)[0][name] = classmethod(function)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


# --- chance --------------------------------------------------------------------------------------------------


def _urandom(body: Body, size: int) -> bytes:
    return body.entropy.randbytes(size)


def _by_name(name: str) -> Callable[..., Any]:
    def inside(body: Body, *args: Any, **kwargs: Any) -> Any:
        return getattr(body.chance, name)(*args, **kwargs)

    return inside


# Looked up here, not through super(): every number that a step draws passes here.
_real_random: Final = random.Random.random
_real_getrandbits: Final = random.Random.getrandbits


class _ProcessRandom(random.Random):
    """The generator behind the functions of ``random``: in a body it draws from the body's, and keeps its state."""

    def random(self) -> float:
        if type(_running_loop()) is ReplayLoop and (body := acting_body()) is not None:
            return body.chance.random()
        return _real_random(self)

    def getrandbits(self, k: int, /) -> int:
        if type(_running_loop()) is ReplayLoop and (body := acting_body()) is not None:
            return body.chance.getrandbits(k)
        return _real_getrandbits(self, k)

    @property
    def gauss_next(self) -> float | None:
        """The second number of the pair that gauss() draws."""
        return _gauss_space(self).get("gauss_next")

    @gauss_next.setter
    def gauss_next(self, value: float | None) -> None:
        _gauss_space(self)["gauss_next"] = value


def _gauss_space(generator: random.Random) -> dict[str, Any]:
    body = acting_body()
    return vars(generator if body is None else body.chance)


def _seed_unseeded() -> None:
    """Seed ``random.Random()`` in a body from the run: it would ask the system, in C."""
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None and (body := acting_body()) is not None:
            a = body.entropy.getrandbits(256)
        original(self, a, version)

    seed.__qualname__, seed.__doc__ = original.__qualname__, original.__doc__
    random.Random.seed = seed  # type: ignore[method-assign]


def _uuid1(body: Body, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    if node is None:
        node = body.entropy.getrandbits(48) | (1 << 40)  # the multicast bit: no hardware address
    if clock_seq is None:
        clock_seq = body.entropy.getrandbits(14)
    # Body time stands still between events; the count keeps two from being the same.
    moment = body.loop.now_ms * 10_000 + body.count_uuid1() + _GREGORIAN_TO_EPOCH
    fields = (moment & 0xFFFFFFFF, (moment >> 32) & 0xFFFF, (moment >> 48) & 0x0FFF)
    return uuid.UUID(fields=(*fields, (clock_seq >> 8) & 0x3F, clock_seq & 0xFF, node), version=1)


# --- tasks ---------------------------------------------------------------------------------------------------


_real_all_tasks: Final = asyncio.all_tasks


def _all_tasks(body: Body, loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    return body.all_tasks() if loop is None or loop is body.loop else _real_all_tasks(loop)
