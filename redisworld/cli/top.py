"""What does ``redisworld top`` do? It shows a namespace live: runs, rates, streams and workers on one screen."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redisworld.cli.commands import add_verb
from redisworld.cli.options import duration_ms
from redisworld.cli.plain import as_json
from redisworld.cli.top_screen import as_object, as_text
from redisworld.errors import InvalidInput, RedisUnavailable
from redisworld.state import State
from redisworld.world import World, read_state, redacted

_ALTERNATE, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_SMALL = (80, 24)
_LEAST_MS = 10


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "top", _top, prepare=_check,
        does="Show a namespace live: runs, rates, streams and workers; q or Ctrl-C ends it.",
        example="redisworld top --once",
        json="print one JSON object a line instead, for each look",
    )  # fmt: skip
    parser.add_argument("--every", metavar="DURATION", type=duration_ms, default=2_000,
                        help="how often to look, and what the rates are taken over (default: 2s)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="one screen and no more, as where stdout is no terminal")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.every < _LEAST_MS:
        raise InvalidInput(f"--every must be at least {_LEAST_MS}ms: each look is some commands of Redis")


async def _top(world: World, arguments: argparse.Namespace) -> None:
    world.connection.hurry()  # a Redis that is down is told on the screen, not waited for
    live = sys.stdout.isatty() and not arguments.once and not arguments.json
    quit_ = asyncio.Event()
    with _screen(quit_) if live else _signals(quit_):
        before: State | None = None
        while not quit_.is_set():
            try:
                now = await read_state(world)
            except RedisUnavailable as error:
                if not live:
                    raise
                _draw(str(error).splitlines())
            else:
                if live:
                    _draw(as_text(now, before, url=redacted(world.settings.url), size=shutil.get_terminal_size(_SMALL)))
                elif before is not None:
                    _print(world, now, before, arguments)
                    if arguments.once or not arguments.json:
                        return
                before = now
            await _pause(quit_, arguments.every)


def _print(world: World, now: State, before: State, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(as_json(as_object(now, before)), flush=True)
    else:
        print("\n".join(as_text(now, before, url=redacted(world.settings.url), size=_SMALL)))


async def _pause(quit_: asyncio.Event, ms: int) -> None:
    try:
        async with asyncio.timeout(ms / 1000):
            await quit_.wait()
    except TimeoutError:
        return


def _draw(lines: list[str]) -> None:
    sys.stdout.write(_HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in lines[:-1]))
    sys.stdout.write(f"{lines[-1]}{_REST_OF_LINE}{_REST_OF_SCREEN}")
    sys.stdout.flush()


@contextmanager
def _signals(quit_: asyncio.Event) -> Iterator[None]:
    """Ctrl-C is how one leaves: no failure."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, quit_.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def _screen(quit_: asyncio.Event) -> Iterator[None]:
    """A screen of its own, and keys as they are pressed; what was there before comes back whatever happens."""
    log, quiet = logging.getLogger("redisworld"), logging.NullHandler()
    log.addHandler(quiet)  # a line of the log would tear the screen
    sys.stdout.write(_ALTERNATE)
    try:
        with _signals(quit_), _keys(quit_):
            yield
    finally:
        sys.stdout.write(_BACK)
        sys.stdout.flush()
        log.removeHandler(quiet)


@contextmanager
def _keys(quit_: asyncio.Event) -> Iterator[None]:
    """Set ``quit_`` at the key q, where stdin is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def pressed() -> None:
        if os.read(stdin, 1) in (b"q", b"Q", b""):
            quit_.set()

    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    loop.add_reader(stdin, pressed)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
