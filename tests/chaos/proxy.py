"""How does a test hurt the bytes between a worker and Redis: lose a reply, lose a request, cut, delay, swallow?

A TCP proxy in a thread with an event loop of its own. It knows no protocol: a fault is armed with bytes that the
request must contain, e.g. the hash of a script (``script``) or the name of a command.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

from redisworld import scripts

_CHUNK = 1 << 20


def script(name: str) -> bytes:
    """What a call of this script contains, once Redis has its text; see ``preload``."""
    return scripts.load(name).sha.encode()


def preload(raw: redis.Redis) -> None:
    """Give Redis all scripts, so that each call of one is exactly one EVALSHA."""
    for name in scripts.names():
        raw.script_load(scripts.load(name).text)


class _Fault:
    def __init__(self, needles: tuple[bytes, ...], kind: str, times: int) -> None:
        self.needles = needles
        self.kind = kind
        self.left = times
        self.hits = 0

    def takes(self, data: bytes) -> bool:
        if self.left <= 0 or not all(needle in data for needle in self.needles):
            return False
        self.left -= 1
        self.hits += 1
        return True


class _Pair:
    """One client connection and its way to Redis."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.mute = ""  # what becomes of the replies from now on: "reply", "silence"
        self.tail = b""

    def reset(self) -> None:
        """RST to the client, nothing more to either side."""
        for writer in (self.client, self.server):
            if writer is None:
                continue
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Stands before one Redis; ``url`` is what the worker gets."""

    def __init__(self, upstream_socket: str) -> None:
        self._upstream = upstream_socket
        self._loop = asyncio.new_event_loop()
        self._pairs: set[_Pair] = set()
        self._faults: list[_Fault] = []
        self._hole = False
        self.latency_s = 0.0
        self.accepted = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    @property
    def url(self) -> str:
        """What a worker connects to."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return len(self._pairs)

    def lose_reply(self, *needles: bytes, times: int = 1) -> _Fault:
        """The next request with these bytes reaches Redis; its reply is lost and the connection reset."""
        return self._arm("reply", needles, times)

    def lose_request(self, *needles: bytes, times: int = 1) -> _Fault:
        """The next request with these bytes never reaches Redis, and its connection is reset."""
        return self._arm("request", needles, times)

    def lose_answer(self, *needles: bytes, times: int = 1) -> _Fault:
        """The next *reply* with these bytes is lost, and the connection reset: for blocking reads."""
        return self._arm("answer", needles, times)

    def swallow_reply(self, *needles: bytes, times: int = 1) -> _Fault:
        """As ``lose_reply``, but nobody is told: the client has to give up by itself."""
        return self._arm("silence", needles, times)

    def disarm(self) -> None:
        """Forget the faults that have not happened yet."""
        self._faults.clear()

    def reset_all(self) -> None:
        """RST on every connection."""
        self._call(lambda: [pair.reset() for pair in list(self._pairs)])

    def swallow_all(self) -> None:
        """From now on bytes vanish, on old connections and new ones, and no RST tells."""
        self._hole = True

    def heal(self) -> None:
        """New connections work again; the old ones were lost for good and are reset."""
        self._hole = False
        self.reset_all()

    def close(self) -> None:
        """End the proxy and all its connections."""
        self.reset_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _arm(self, kind: str, needles: tuple[bytes, ...], times: int) -> _Fault:
        fault = _Fault(needles, kind, times)
        self._faults.append(fault)
        return fault

    def _call(self, what: object) -> None:
        done = threading.Event()

        def call() -> None:
            what()  # type: ignore[operator]
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(10)

    def _main(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK))
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer)
        self._pairs.add(pair)
        self.accepted += 1
        try:
            with suppress(OSError, asyncio.CancelledError):
                upstream, pair.server = await asyncio.open_unix_connection(self._upstream, limit=_CHUNK)
                back = asyncio.ensure_future(self._replies(pair, upstream))
                try:
                    await self._requests(pair, reader)
                finally:
                    back.cancel()
        finally:
            self._pairs.discard(pair)
            for end in (pair.client, pair.server):
                if end is not None:
                    end.transport.abort()

    async def _requests(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        assert pair.server is not None
        while data := await reader.read(_CHUNK):
            if self._hole:
                continue
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            seen = pair.tail + data
            fault = next((fault for fault in list(self._faults) if fault.kind != "answer" and fault.takes(seen)), None)
            pair.tail = b"" if fault else data[-64:]
            if fault is not None and fault.kind == "request":
                pair.reset()
                return
            if fault is not None:
                pair.mute = fault.kind
            pair.server.write(data)
            await pair.server.drain()

    async def _replies(self, pair: _Pair, upstream: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await upstream.read(_CHUNK):
                if self._hole:
                    continue
                if pair.mute:
                    if pair.mute == "silence":
                        continue
                    pair.reset()
                    return
                if any(fault.kind == "answer" and fault.takes(data) for fault in list(self._faults)):
                    pair.reset()
                    return
                pair.client.write(data)
                await pair.client.drain()
        pair.reset()


@contextmanager
def proxy(upstream_url: str) -> Iterator[Proxy]:
    """A proxy before the server behind ``unix://…``."""
    standing = Proxy(upstream_url.removeprefix("unix://"))
    try:
        yield standing
    finally:
        standing.close()
