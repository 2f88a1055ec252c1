"""How does a body wait for somebody outside? With a hook: a named place that takes payloads by its token."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from redisworld import values
from redisworld.errors import HookConflict, HookDisposed
from redisworld.replay.commands import CreateHook

T = TypeVar("T")


class HookHost(Protocol):
    """Who a hook tells what the body does with it: the body's inside."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the body's loop."""

    def dispose_hook(self, asked: AskedHook) -> None:
        """The body needs the hook no more."""


class AskedHook:
    """A hook the body asked for: what has arrived for it, and who waits."""

    def __init__(self, host: HookHost, *, number: int, id: str, token: str, metadata: bytes) -> None:
        self.number = number
        self.id = id
        self.token = token
        self.metadata = metadata
        self.disposed = False
        self.holder: str | None = None
        """Whose the token is: ``""`` this hook's, else the run that holds it; None before that is known."""
        self._host = host
        self._payloads: deque[bytes] = deque()
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._askers: list[asyncio.Future[None]] = []

    def __str__(self) -> str:
        return f"a hook with token {self.token!r}"

    def command(self) -> CreateHook:
        """The command that creates it."""
        return CreateHook(self.id, self.token, self.metadata, awaited=any(not f.done() for f in self._askers))

    # -- what the log says

    def decided(self, holder: str) -> None:
        """Whose the token is."""
        self.holder = holder
        _wake_all(self._askers)
        if holder:
            _wake_all(self._receivers)

    def received(self, payload: bytes) -> None:
        """Somebody resumed it."""
        if self.disposed:
            return
        self._payloads.append(payload)
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                receiver.set_result(None)
                return

    # -- what the body does

    async def payload(self) -> bytes:
        """The next payload. Raises HookConflict, and HookDisposed when there will be none."""
        while not self._payloads:
            if self.holder:
                raise HookConflict(self.token, self.holder)
            if self.disposed:
                raise HookDisposed(self.token)
            receiver = self._host.create_future()
            self._receivers.append(receiver)
            try:
                await receiver
            except BaseException:
                if receiver.done() and not receiver.cancelled() and self._payloads:
                    self._pass_on()  # it was told, and is cancelled before it could take the payload
                raise
            finally:
                if receiver in self._receivers:
                    self._receivers.remove(receiver)
        return self._payloads.popleft()

    async def conflict(self) -> str | None:
        """The run that holds the token instead, None when this hook does."""
        if self.holder is None:
            asker = self._host.create_future()
            self._askers.append(asker)
            await asker
        return self.holder or None

    def dispose(self) -> None:
        """Take no more payloads."""
        if self.disposed:
            return
        self.disposed = True
        self._payloads.clear()
        _wake_all(self._receivers)
        self._host.dispose_hook(self)

    def _pass_on(self) -> None:
        for receiver in self._receivers:
            if not receiver.done():
                receiver.set_result(None)
                return


class Hook(Generic[T]):
    """A hook in a workflow body. ``await`` it for one payload, iterate over it for all, or ``async with`` it.

    ``token`` is what others resume it by. It is disposed of when an ``async with`` ends or ``dispose()`` is called, and
    with the run; its token is free then. Awaiting raises HookConflict where another run's hook holds the token,
    HookDisposed after ``dispose()``, and InvalidValue for a payload that does not fit its type.
    """

    def __init__(self, asked: AskedHook, type: Any) -> None:
        self._asked = asked
        self._type = type

    @property
    def token(self) -> str:
        """What others resume it by."""
        return self._asked.token

    @property
    def hook_id(self) -> str:
        """The correlation id in the log."""
        return self._asked.id

    def __hash__(self) -> int:
        # A body may keep hooks in a set; by address its order would change from process to process.
        return self._asked.number

    def __repr__(self) -> str:
        return f"<hook {self.token!r}>"

    def __await__(self) -> Generator[Any, Any, T]:
        return self._next().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._next()
        except HookDisposed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()

    async def get_conflict(self) -> str | None:
        """The id of the run whose hook holds the token, or None when it is ours: claims the token and nothing else."""
        return await self._asked.conflict()

    def dispose(self) -> None:
        """Take no more payloads and free the token; whoever iterates is done. A repeat changes nothing."""
        self._asked.dispose()

    async def _next(self) -> T:
        payload: T = values.decode_foreign(
            await self._asked.payload(), self._type, where=f"the payload of hook {self.token!r}"
        )
        return payload


def _wake_all(waiters: deque[asyncio.Future[None]] | list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
