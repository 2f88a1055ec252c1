"""How is Redis put into a state, and what is its state after a call?

A state is the DUMP of the keys that scripts read. Left out are keys that are only written: counters, indexes, nudges.
A call is made once in each state of Redis: entry ids are repeatable, so equal calls in equal states end alike.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import hiredis

from redisworld.keys import GROUP, Partition
from redisworld.scripts import Script
from tests.explorer.model import RUN, TOKEN

PARTITION = Partition("x", 0)
KEYS = tuple(
    key.encode()
    for key in (
        PARTITION.run(RUN),
        PARTITION.log(RUN),
        PARTITION.steps(),
        PARTITION.workflows(),
        PARTITION.delayed,
        PARTITION.delayed_body,
        PARTITION.dead,
        PARTITION.hooks(RUN),
        PARTITION.run(RUN) + ":resumes",
        PARTITION.hook(TOKEN),
        PARTITION.releases,
    )
)

_USUAL = ROW, LOG, STEPS, WAKES, DELAYED, BODIES, DEAD = tuple(range(7))
_OF_HOOKS = HOOKS, RESUMES, POINTER, RELEASES = tuple(range(7, 11))
_TOUCHED = {
    "claim_many": (ROW, LOG, STEPS, WAKES),
    "load_run": (ROW, LOG, STEPS, WAKES),
    "complete_many": _USUAL,
    "promote_due": _USUAL,
    "move_message": _USUAL,
    "stage_hook": (ROW, HOOKS),
    "claim_token": (POINTER,),
}
"""Which keys a script may change, where that is not all of them; the others are neither read back nor put back."""

_FUTURE = "9000000000000-0"
"""An entry id later than all that the server's clock would give: ids count up from here, the same in every schedule."""
_TOKEN = re.compile(r"\bt(\d+)i?\b")

Command = tuple[str | bytes | int, ...]
Dumps = tuple[bytes | None, ...]
Parts = tuple[Any, ...]
"""What stands in each key: a dict, log elements, entries, members with due times, bodies, a number of dead letters."""
Call = tuple["Stored", Command]


class Entry(NamedTuple):
    """A message in a stream. ``holder`` is "" while it is undelivered, "?" when it is neither that nor pending."""

    stream: str
    id: str
    fields: tuple[bytes, ...]
    holder: str
    deliveries: int


class View(NamedTuple):
    """What stands in Redis."""

    row: dict[bytes, bytes]
    log: tuple[bytes, ...]
    entries: tuple[Entry, ...]
    delayed: tuple[tuple[bytes, int, bytes], ...]
    """Member, due time, and the message, empty for a timer."""
    dead: int
    hooks: tuple[tuple[bytes, bytes], ...]
    """Fields of the hashes that belong to hooks."""


class Stored:
    """A state of Redis; there is one object for each."""

    def __init__(self, dumps: Dumps, parts: Parts, view: View) -> None:
        self.dumps = dumps
        self.parts = parts
        self.view = view
        self.tokens = frozenset(_TOKEN.findall(b"|".join(view.row.values()).decode()))
        """The numbers of the tokens that the row names."""
        self._puts: list[bytes | None] = [None] * len(KEYS)
        self.after: dict[Command, tuple[Any, Stored]] = {}
        self.shape: tuple[bytes, tuple[bytes, ...]] | None = None
        """What ``canonical`` knows of it."""
        self.wrong: str | None = None
        """What ``checks`` found in it, None before it has looked."""

    def put(self, key: int) -> bytes:
        """The command that puts a key into this state, packed."""
        packed = self._puts[key]
        if packed is None:
            dump = self.dumps[key]
            command: Command = ("DEL", KEYS[key]) if dump is None else ("RESTORE", KEYS[key], 0, dump, "REPLACE")
            packed = self._puts[key] = _packed(command)
        return packed


class Refused(Exception):
    """Redis answered with an error: a bug of a script, or of the explorer."""


class Store:
    """One connection to a private server. A context manager."""

    def __init__(self, socket_path: Path) -> None:
        self._path = str(socket_path)
        self._now: Dumps = (None,) * len(KEYS)
        self._loaded: dict[str, bytes] = {}
        self._touched: dict[object, tuple[int, ...]] = {}
        self._states: dict[object, Stored] = {}

    def __enter__(self) -> Store:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self._path)
        self._reader = hiredis.Reader()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, *commands: Command) -> list[Any]:
        """Send commands in one write and read all replies. Raises Refused."""
        replies = self._exchange([_packed(command) for command in commands], len(commands))
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(str(reply))
        return replies

    def _exchange(self, packed: list[bytes], count: int) -> list[Any]:
        self._socket.sendall(b"".join(packed))
        reader = self._reader
        replies: list[Any] = []
        while len(replies) < count:
            reply = reader.gets()
            if reply is False:
                reader.feed(self._socket.recv(1 << 16))
            else:
                replies.append(reply)
        return replies

    def script(self, script: Script, *args: str | bytes | int) -> Command:
        """The command that runs a script."""
        if script.sha not in self._loaded:
            (self._loaded[script.sha],) = self.ask(("SCRIPT", "LOAD", script.text))
            self._touched[self._loaded[script.sha]] = _TOUCHED.get(script.name, self._keys)
        return ("EVALSHA", self._loaded[script.sha], 1, PARTITION.stats, *args)

    def begin(self, *, hooks: bool) -> None:
        """Empty Redis, for a scenario with hooks or without: their keys cost time."""
        self._keys = _USUAL + _OF_HOOKS if hooks else _USUAL
        self._loaded.clear()
        self.ask(("FLUSHALL",))
        for key in (KEYS[STEPS], KEYS[WAKES]):
            self.ask(("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"), ("XSETID", key, _FUTURE))
        self._states.clear()
        self._now = (None,) * len(KEYS)

    def first(self, command: Command) -> Stored:
        """The state after a first call on an empty Redis."""
        looks = [look for key in self._keys for look in _LOOK[key]]
        return self._read(None, self._keys, self.ask(command, *looks)[1:])

    def after(self, before: Stored, command: Command) -> tuple[Any, Stored]:
        """The reply to a call in a state, and the state after it. Raises Refused."""
        if command not in before.after:
            self.make([(before, command)])
        reply, after = before.after[command]
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply))
        return reply, after

    def make(self, calls: Iterable[Call]) -> None:
        """Make all calls that have not been made yet, in one round trip, and keep their replies."""
        wanted = [(before, command) for before, command in dict.fromkeys(calls) if command not in before.after]
        packed: list[bytes] = []
        places: list[int] = []
        count = 0
        dirty: tuple[int, ...] = ()
        for before, command in wanted:
            for key, dump in enumerate(before.dumps):
                if dump is not self._now[key] or key in dirty:
                    packed.append(before.put(key))
                    count += 1
            places.append(count)
            dirty, self._now = self._changes(command), before.dumps
            look, looked = _looks(dirty)
            packed += (_packed(command), look)
            count += 1 + looked
        # what the last call has changed is put back before the next one
        self._now = tuple(b"" if key in dirty else dump for key, dump in enumerate(self._now))
        replies = self._exchange(packed, count)
        for (before, command), place in zip(wanted, places, strict=True):
            looks = replies[place + 1 : place + 1 + _looks(self._changes(command))[1]]
            before.after[command] = (replies[place], self._read(before, self._changes(command), looks))

    def _changes(self, command: Command) -> tuple[int, ...]:
        if command[0] == "EVALSHA":
            return self._touched[command[1]]
        return (STEPS,) if KEYS[STEPS].decode() in command else (WAKES,)

    def _read(self, before: Stored | None, keys: Sequence[int], looks: Sequence[Any]) -> Stored:
        """The state before, with what was found in the keys that may have changed."""
        dumps: list[bytes | None] = list(before.dumps if before else self._now)
        parts: list[Any] = list(before.parts) if before else [{}] * len(KEYS)
        found = iter(looks)
        for key in keys:
            dump, *content = (next(found) for _ in _LOOK[key])
            part = _PARSE[key](*content)
            if before is None or part != parts[key]:
                dumps[key], parts[key] = dump, part
        row, log, steps, wakes, delayed, bodies, dead, *of_hooks = parts
        hooks = tuple(item for part in of_hooks for item in part.items())
        key_of_state = (tuple(row.items()), log, steps, wakes, delayed, tuple(bodies.items()), dead, hooks)
        known = self._states.get(key_of_state)
        if known is None:
            due = tuple((member, at, bodies.get(member, b"")) for member, at in delayed)
            view = View(row, log, (*steps[1], *wakes[1]), due, dead, hooks)
            known = self._states[key_of_state] = Stored(tuple(dumps), tuple(parts), view)
        return known


def _packed(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub has tuples of one item only
    return packed


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(sorted(zip(flat[::2], flat[1::2], strict=True)))


def _entries(
    stream: str, entries: list[Any], pending: list[Any], groups: list[list[Any]]
) -> tuple[bytes, tuple[Entry, ...]]:
    """With the last id delivered: where that is another one, the ids to come are others too."""
    held, last, found = {item[0]: item for item in pending}, groups[0][7], []
    for entry, fields in entries:
        holder = held.get(entry)
        if holder is not None:
            found.append(Entry(stream, entry.decode(), tuple(fields), holder[1].decode(), min(holder[3], 2)))
        else:
            fresh = _order(entry) > _order(last)
            found.append(Entry(stream, entry.decode(), tuple(fields), "" if fresh else "?", 0))
    return last, tuple(found)


def _order(entry: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split(b"-"))


def _look_at_stream(key: bytes) -> tuple[Command, ...]:
    return ("XRANGE", key, "-", "+"), ("XPENDING", key, GROUP, "-", "+", 100), ("XINFO", "GROUPS", key)


_LOOK: tuple[tuple[Command, ...], ...] = (
    (("DUMP", KEYS[ROW]), ("HGETALL", KEYS[ROW])),
    (("DUMP", KEYS[LOG]), ("LRANGE", KEYS[LOG], 0, -1)),
    (("DUMP", KEYS[STEPS]), *_look_at_stream(KEYS[STEPS])),
    (("DUMP", KEYS[WAKES]), *_look_at_stream(KEYS[WAKES])),
    (("DUMP", KEYS[DELAYED]), ("ZRANGE", KEYS[DELAYED], 0, -1, "WITHSCORES")),
    (("DUMP", KEYS[BODIES]), ("HGETALL", KEYS[BODIES])),
    (("DUMP", KEYS[DEAD]), ("XLEN", KEYS[DEAD])),
    *((("DUMP", KEYS[key]), ("HGETALL", KEYS[key])) for key in _OF_HOOKS),
)


@cache
def _looks(keys: tuple[int, ...]) -> tuple[bytes, int]:
    """The commands that read these keys, packed, and how many they are."""
    commands = [look for key in keys for look in _LOOK[key]]
    return b"".join(_packed(command) for command in commands), len(commands)


_PARSE: tuple[Callable[..., Any], ...] = (
    _fields,
    tuple,
    partial(_entries, "steps"),
    partial(_entries, "workflows"),
    lambda flat: tuple((member, int(float(due))) for member, due in zip(flat[::2], flat[1::2], strict=True)),
    _fields,
    int,
    *[_fields] * len(_OF_HOOKS),
)
