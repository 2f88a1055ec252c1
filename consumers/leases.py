"""How does a delivery stay ours while its body runs, and how is it given away when this process is stuck?

Renewal runs in a thread with a connection of its own, so that a body which blocks the event loop does not lose its
lease. The thread also watches the loop: what has not started when the loop stands still goes back to the others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import msgspec

from redisworld import clock
from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.facts import fact, named
from redisworld.keys import Partition
from redisworld.observe import LeaseLost, observe
from redisworld.world import Delivery, Renewal, World

_JOIN_S = 1.0
"""The event loop waits no longer for the thread, which may be waiting for a Redis that does not answer."""


class _Hold(msgspec.Struct):
    delivery: Delivery
    engaged: bool = False
    renew_until: float | None = None
    lost: bool = False

    def given_up(self, now: float) -> bool:
        """Whether its body goes on although its time is over: nobody renews it any more."""
        return self.renew_until is not None and now >= self.renew_until


class LeaseKeeper:
    """Holds the leases of this process. A context manager; its thread lives as long as the context.

    ``cancelled`` is called on the event loop, at each renewal, for each delivery whose run has been cancelled.
    """

    def __init__(self, world: World, cancelled: Callable[[Delivery], None]) -> None:
        self._world = world
        self._cancelled = cancelled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._faults = world.connection.faults
        self._lease = world.settings.lease_ms / 1000
        self._blocked_limit = world.settings.max_blocked_loop_ms / 1000
        self._holds: dict[tuple[str, str, str], _Hold] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticked = clock.monotonic()

    def __enter__(self) -> LeaseKeeper:
        self._loop = asyncio.get_running_loop()
        # made here: a worker without a client for this must not begin
        renewal = Renewal(self._world.connection, self._world.consumer)
        self._thread = threading.Thread(target=self._run, args=[renewal], name="redisworld-leases", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=_JOIN_S)

    def tick(self) -> None:
        """The event loop says that it moves."""
        self._ticked = clock.monotonic()

    @property
    def stalled_s(self) -> float:
        """How long the event loop has not moved."""
        return clock.monotonic() - self._ticked

    def hold(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Keep deliveries; those that this process did not keep already: its own reclaim may find some."""
        fresh, now = [], clock.monotonic()
        with self._lock:
            for delivery in deliveries:
                known = self._holds.get(delivery.key)
                if known is None or known.lost or known.given_up(now):
                    # what was lost to another worker and came back, or came back because nobody has renewed it, is
                    # new, whatever its old body still does
                    self._holds[delivery.key] = _Hold(delivery)
                    fresh.append(delivery)
        return fresh

    def engage(self, delivery: Delivery) -> bool:
        """Work on it begins, and it is not given back any more: an attempt would be charged that nobody made.

        False where it is known to be somebody else's by now.
        """
        with self._lock:
            if (hold := self._own(delivery)) is None or hold.lost:
                return False
            hold.engaged = True
            return True

    def limit(self, delivery: Delivery, timeout_ms: int) -> None:
        """A body with a timeout starts; renewal ends when that is over, whatever the body does."""
        with self._lock:
            if hold := self._own(delivery):
                hold.renew_until = clock.monotonic() + timeout_ms / 1000

    def unlimit(self, delivery: Delivery) -> None:
        """Its body has ended; the delivery is kept for what follows."""
        with self._lock:
            if hold := self._own(delivery):
                hold.renew_until = None

    def release(self, delivery: Delivery) -> None:
        """The delivery is settled, or given up."""
        with self._lock:
            if self._own(delivery):
                del self._holds[delivery.key]

    def _own(self, delivery: Delivery) -> _Hold | None:
        """The hold of this very delivery, not of a later one of the same entry."""
        hold = self._holds.get(delivery.key)
        return hold if hold is not None and hold.delivery.deliveries == delivery.deliveries else None

    def _run(self, renewal: Renewal) -> None:
        pause = self._lease / 3
        try:
            while not self._stop.wait(pause):
                pause = self._lease / 10  # sooner when it fails: a lease outlives two failures
                try:
                    self.renew(renewal)
                    pause = self._lease / 3
                except RedisUnavailable as error:
                    self._faults.warn("redis", "leases not renewed, trying again", error=error)
                except Exception as error:  # the top of a loop: without it no lease of this process is renewed again
                    what = "leases not renewed, trying again"
                    self._faults.warn("leases", what, level=logging.ERROR, trace=error, error=named(error))
        finally:
            renewal.close()

    def renew(self, renewal: Renewal) -> None:
        """One round of renewals, and of giving back when the loop stands still. Raises RedisUnavailable."""
        now, stalled = clock.monotonic(), self.stalled_s
        with self._lock:
            holds = [hold for hold in self._holds.values() if not hold.lost]
        for partition in self._world.partitions:
            there = [hold for hold in holds if hold.delivery.partition == partition]
            try:
                self._renew_in(partition, there, renewal, now, stalled)
            except MalformedMessage as error:  # a key there is not ours: the leases of the others go on
                self._faults.warn(
                    "leases", "leases of a partition not renewed", partition=partition.number, error=error
                )

    def _renew_in(self, partition: Partition, holds: list[_Hold], renewal: Renewal, now: float, stalled: float) -> None:
        mine: dict[tuple[str, str, str], _Hold] = {}
        for hold in holds:
            if not hold.engaged and stalled > self._lease / 3:
                renewal.give_back(hold.delivery)
                self._mark_lost(hold)
            elif self._renewable(hold, now, stalled):
                mine[hold.delivery.key] = hold
        renewed = renewal.renew(partition, [hold.delivery for hold in mine.values()])
        for delivery in renewed.lost:
            self._mark_lost(mine[delivery.key])
        for delivery in renewed.cancelled:
            self._tell_cancelled(delivery)

    def _tell_cancelled(self, delivery: Delivery) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._cancelled, delivery)

    def _renewable(self, hold: _Hold, now: float, stalled: float) -> bool:
        if hold.renew_until is not None:
            return not hold.given_up(now)
        return stalled < self._blocked_limit

    def _mark_lost(self, hold: _Hold) -> None:
        with self._lock:
            # settled between the snapshot and now is no loss
            if self._holds.get(hold.delivery.key) is not hold:
                return
            hold.lost = True
        delivery = hold.delivery
        observe(LeaseLost(delivery.entry_id))
        fact(logging.DEBUG, "lease lost", run=delivery.text("run"), entry=delivery.entry_id)
