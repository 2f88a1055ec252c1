"""What do clocks, zones and chance give in a body? (A16, A28)"""

from __future__ import annotations

import itertools
import os
import random as stdlib_random
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from redisworld import Workflows, sleep
from redisworld.replay import Instance, install
from redisworld.workflows import Workflow
from tests.unit.replay_driver import START, Driver

install()

wf = Workflows()
SOON = datetime.fromtimestamp(START / 1_000, UTC) + timedelta(seconds=3)
NEW_YORK, KOLKATA = ZoneInfo("America/New_York"), ZoneInfo("Asia/Kolkata")


@wf.step
async def takes(value: str) -> str:
    return value


def due(until: Any) -> int:
    """When a body that sleeps until then is woken, in epoch milliseconds."""

    async def body() -> None:
        await sleep(until)

    [wait] = Driver(Workflow(body)).store.waits.values()
    return wait


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_a_moment_is_the_same_in_every_zone_and_on_every_host(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A16, 1 to 3 and 5: a naive one is refused; the two 01:30 of an autumn night are an hour apart."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert due(SOON) == due(SOON.astimezone(KOLKATA)) == due(SOON.astimezone(NEW_YORK)) == START + 3_000
        night = datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK)
        assert due(night.replace(fold=1)) - due(night) == 3_600_000
        assert "without a zone" in _refused(datetime.fromtimestamp(START / 1_000 + 3))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_moment_that_has_passed_goes_on_at_once_and_needs_no_wait() -> None:
    """A16, 4: the case wants wait_created and wait_completed; ours writes neither, for nothing waits."""

    async def body() -> str:
        await sleep(SOON - timedelta(seconds=13))
        return "on"

    driver = Driver(Workflow(body))
    assert driver.run() == "on"
    assert driver.store.log == []


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e12])
def test_what_is_no_duration_is_refused(seconds: float) -> None:
    """A16: never stored."""
    assert _refused(seconds)


def _refused(until: Any) -> str:
    async def body() -> None:
        await sleep(until)

    driver = Driver(Workflow(body))
    assert not driver.store.waits
    error = driver.run()
    assert error.type.endswith("InvalidInput"), error
    return str(error.message)


AMBIENT: dict[str, Callable[[], object]] = {
    "uuid.uuid4": uuid.uuid4,
    "uuid.uuid1": uuid.uuid1,
    "random.random": stdlib_random.random,
    "random.Random": lambda: stdlib_random.Random().random(),
    "secrets.token_hex": lambda: secrets.token_hex(8),
    "os.urandom": lambda: os.urandom(8).hex(),
    "time.time": time.time,
    "time.monotonic": time.monotonic,
    "datetime.now": lambda: datetime.now(UTC),
}


@pytest.mark.parametrize("name", AMBIENT)
def test_ambient_chance_and_time_repeat_in_a_replay_or_are_refused_by_name(name: str) -> None:
    """A28."""
    first, second = (_asked(AMBIENT[name]) for _ in range(2))
    assert first == second or name.rpartition(".")[2] in first


def test_today_is_the_day_of_the_body() -> None:
    """A28."""
    assert _asked(date.today) == _asked(SOON.date)


def test_a_replay_that_drew_otherwise_is_never_mixed_up_in_silence() -> None:
    """A28: what the log has and what the code did differ by an argument, and the run fails saying so."""

    async def body() -> str:
        return await takes(str(next(draws)))

    draws = itertools.count()  # what no guard sees: the application's own state
    driver = Driver(Workflow(body))
    with pytest.raises(Exception, match="the code asked for it with"):
        driver.cold(1, None)


def _asked(call: Callable[[], object]) -> str:
    async def body() -> str:
        return await takes(str(call()))

    time.sleep(0.002)
    instance = Instance(run_id="r", workflow=Workflow(body), input=b"\x80", at=START)
    instance.start()
    asked = repr(instance.commands())
    instance.close()
    return asked
