"""What does an application capture before a worker guards it? Imported by the tests ahead of ``install``."""

# ruff: noqa: PLW0108  # a name has to be looked up at the call, as in an application
from __future__ import annotations

import datetime
import functools
import random as random_module
import time as time_module
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime as moment
from os import urandom
from random import choice, gauss, getrandbits, random, seed, shuffle
from secrets import token_hex
from time import monotonic, sleep, time
from typing import Any, ClassVar
from uuid import UUID, uuid1, uuid4

captured_now = moment.now


class Settings:
    """A class that keeps clocks as attributes."""

    clock: ClassVar[Callable[[], float]] = time_module.time
    chance: ClassVar[Callable[[], float]] = random_module.random
    now: ClassVar[Callable[[], moment]] = moment.now


class Moment(datetime.datetime):
    """A subclass, as of pendulum or pandas."""


@dataclass
class Order:
    """A value with made defaults."""

    at: float = field(default_factory=time_module.time)
    when: moment = field(default_factory=moment.now)
    id: UUID = field(default_factory=uuid4)


def stamp(clock: Callable[[], float] = time_module.time, *, draw: Callable[[], float] = random_module.random) -> Any:
    """Clocks and chance as defaults of parameters."""
    return clock(), draw()


def shuffled() -> list[int]:
    """A list in an order of chance."""
    items = list(range(20))
    shuffle(items)
    return items


def seeded() -> float:
    """A seed set through a captured name."""
    seed(5)
    return random()


def nap() -> None:
    """A blocking sleep."""
    sleep(0.001)


STABLE: dict[str, Callable[[], Any]] = {
    "time": lambda: time(),
    "monotonic": lambda: monotonic(),
    "now": lambda: captured_now(),
    "urandom": lambda: urandom(8),
    "random": lambda: random(),
    "getrandbits": lambda: getrandbits(64),
    "choice": lambda: choice(range(10**9)),
    "bound": functools.partial(random_module.uniform, 0, 1),
    "gauss": lambda: (gauss(0, 1), gauss(0, 1), gauss(0, 1)),
    "shuffle": shuffled,
    "token": lambda: token_hex(8),
    "uuid4": lambda: uuid4(),
    "uuid1": lambda: (uuid1(), uuid1()),
    "attribute": lambda: (Settings().clock(), Settings().chance(), Settings().now()),
    "subclass": lambda: (Moment.now(), Moment.today(), Moment.now(datetime.UTC)),
    "dataclass": lambda: Order(),
    "defaults": lambda: stamp(),
}
"""Each must be stable in a body, although all of it was captured early."""
