"""What is a scene? A moment in Redis, the one script call to look at, and the words it must answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import msgspec

from redisworld.scripts import Script
from tests.scripts.driver import Consumer


class Call(msgspec.Struct, frozen=True):
    """One script call: KEYS[1] and the arguments."""

    script: str
    key: str
    args: tuple[Any, ...]


Ask = Callable[[], Awaitable[object]]
"""A call of a World method, not made yet."""

Build = Callable[[Consumer, Consumer], Awaitable[Ask | Call]]


class Scene(msgspec.Struct, frozen=True):
    """``build`` brings Redis to the moment and hands back the call.

    ``again`` are the words that the same call answers when it is asked again; empty: the same reply, byte for byte.
    """

    name: str
    script: str
    word: str
    detail: str
    again: str
    build: Build


SCENES: list[Scene] = []


def scene(script: str, answer: str, *, again: str = "", name: str = "") -> Callable[[Build], Build]:
    """Add a scene, named after its function: the call answers ``word`` or ``word detail``."""

    def add(build: Build) -> Build:
        word, _, detail = answer.partition(" ")
        sentence = (name or build.__name__).replace("_", " ")
        SCENES.append(Scene(sentence, script, word, detail, again, build))
        return build

    return add


class _Sent(Exception):
    def __init__(self, call: Call) -> None:
        super().__init__(call.script)
        self.call = call


async def call_of(scene: Scene, a: Consumer, b: Consumer) -> Call:
    """Build the scene; the call that it is about, not made."""
    ask = await scene.build(a, b)
    if isinstance(ask, Call):
        return ask

    async def keep(script: Script, key: str, args: list[Any], **_: object) -> Any:
        raise _Sent(Call(script.name, key, tuple(args)))

    with mock.patch.object(a.world.connection, "script", keep), mock.patch.object(b.world.connection, "script", keep):
        try:
            await ask()
        except _Sent as sent:
            if sent.call.script == scene.script:
                return sent.call
    raise AssertionError(f"scene {scene.name!r} does not call {scene.script}")
