"""How is one moment in Redis brought back as often as a test wants, without building it again?

A scene is built once with real consumers; what lies in Redis then is kept, with the one call that it is about.
Everything after that is plain Redis commands: put the keys back, call the script, look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from typing import Any

import redis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from redis.exceptions import NoScriptError, ResponseError

from redisworld import scripts
from tests.scripts.driver import NOW, Consumer, consumers
from tests.scripts.headers import header
from tests.scripts.scenes.scene import Call, Scene, call_of
from tests.scripts.shim import shimmed

Reply = list[Any]
State = dict[str, object]

_STATE = """
local found = {}
local function range(key, kind)
  if kind == 'hash' then return redis.call('HGETALL', key) end
  if kind == 'list' then return redis.call('LRANGE', key, 0, -1) end
  if kind == 'zset' then return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  if kind == 'set' then return redis.call('SMEMBERS', key) end
  if kind == 'string' then return redis.call('GET', key) end
  local groups = {}
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local pending = redis.call('XPENDING', key, group[2], '-', '+', 1000)
    for _, entry in ipairs(pending) do entry[3] = false end -- the idle time
    groups[#groups + 1] = {group[2], pending}
  end
  return {redis.call('XRANGE', key, '-', '+'), groups}
end
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  found[#found + 1] = {key, kind, range(key, kind), redis.call('PTTL', key) >= 0 and 1 or 0}
end
return found
"""


class Stage:
    """A scene that was built: what lies in Redis before the call, and the call."""

    def __init__(self, client: Any, scene: Scene, call: Call) -> None:
        self.client = client  # Any: redis-py types replies as bytes or text, present or not
        self.scene = scene
        self.call = call
        self.tag = call.key.removesuffix("stats")
        keys: list[bytes] = client.keys("*")
        self._keys = {key: (client.dump(key), max(client.pttl(key), 0)) for key in keys}
        self.initial = self.state()

    def put_back(self, *commands: Sequence[str | int]) -> None:
        """Bring Redis to the moment before the call, and change it by these commands."""
        pipeline = self.client.pipeline(transaction=False)
        pipeline.flushall()
        for key, (value, ttl) in self._keys.items():
            pipeline.restore(key, ttl, value)
        for command in commands:
            pipeline.execute_command(*command)
        pipeline.execute()

    def ask(self, *, later_ms: int = 0, text: str = "") -> Reply:
        """The script's reply to the call, made so much later; or the reply of another text in its place."""
        args = list(self.call.args)
        if later_ms and header(self.call.script).args[0] == "now":
            args[0] = int(args[0]) + later_ms
        return self.send(args, text=text)

    def send(self, args: Sequence[Any], *, text: str = "") -> Reply:
        """The script's reply to other arguments."""
        reply = self._run(text or scripts.load(self.call.script).text, self.call.key, *args)
        if not self.call.script.endswith("_many") or reply[:1] == [b"broken"]:
            return reply
        return [answer.split() if isinstance(answer, bytes) else answer for answer in reply]

    def _run(self, text: str, *keys_and_args: Any) -> Reply:
        try:
            reply: Reply = self.client.evalsha(_sha(text), 1, *keys_and_args)
        except NoScriptError:
            reply = self.client.eval(text, 1, *keys_and_args)
        return reply

    @cached_property
    def touched(self) -> list[str]:
        """The keys that the call touches, without the tag; raises for one that the header does not declare."""
        self.put_back()
        text = shimmed(self.call.script, scripts.load(self.call.script).text)
        return [key.decode() for key in self.ask(text=text)[1]]

    def answer(self, reply: Reply) -> tuple[str, str]:
        """Outcome and detail of a reply, or of the first answer of a batch."""
        answer = reply[0] if reply and isinstance(reply[0], list) else reply
        second = answer[1] if len(answer) > 1 else b""
        if not answer:
            return "", ""
        return answer[0].decode(), second.decode() if isinstance(second, bytes) else ""

    def outcome(self, args: Sequence[Any]) -> tuple[str, str]:
        """Outcome and detail; an error reply is the outcome ``error`` with its text."""
        try:
            return self.answer(self.send(args))
        except ResponseError as error:
            return "error", str(error)

    def play(self, args: Sequence[Any]) -> tuple[tuple[str, str], set[str]]:
        """The answer to these arguments as Redis is now, and the keys that the call has written."""
        before = self.state()
        outcome = self.outcome(args)
        return outcome, self.changed(before)

    def changed(self, before: State) -> set[str]:
        """The keys that are not as they were, without the tag."""
        after = self.state()
        found = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        return {key.removeprefix(self.tag) for key in found}

    def state(self) -> State:
        """Every key with type, value and whether it expires; what only counts calls or measures time is left out."""
        return {key.decode(): _shown(*rest) for key, *rest in self._run(_STATE, self.call.key) if _shown(*rest)}


@cache
def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _shown(kind: bytes, value: list[bytes], expires: int) -> object:
    if kind == b"set":
        return kind, sorted(value), expires
    if kind != b"hash":
        return kind, value, expires
    fields = dict(zip(value[::2], value[1::2], strict=True))
    fields.pop(b"claims", None)  # counts calls, repeated ones too
    return (kind, fields, expires) if fields else None


class Theatre:
    """Where scenes are played: one Redis with two consumers, and the scenes that were built there."""

    def __init__(self, client: Any, portal: BlockingPortal, consumers: list[Consumer]) -> None:
        self._client = client
        self._portal = portal
        self._consumers = consumers
        self._stages: dict[str, Stage] = {}

    def stage(self, scene: Scene) -> Stage:
        """The scene, built now or before, with Redis at the moment before its call."""
        if scene.name not in self._stages:
            self._client.flushall()
            self._consumers[0].clock.now = NOW
            for consumer in self._consumers:
                consumer.limit_log(consumer.world.settings.max_log_events)
            call = self._portal.call(partial(call_of, scene, *self._consumers))
            self._stages[scene.name] = Stage(self._client, scene, call)
        stage = self._stages[scene.name]
        stage.put_back()
        return stage


@contextmanager
def theatre_on(url: str) -> Iterator[Theatre]:
    """A theatre on a Redis that nobody else uses while a scene is played."""
    with (
        redis.Redis.from_url(url) as client,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(consumers(url)) as pair,
    ):
        yield Theatre(client, portal, pair)
