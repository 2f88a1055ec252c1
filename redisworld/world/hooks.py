"""Who holds a hook's token, and how does a payload get from a token to its run? (design section 11, hook tokens)

A token lives in a partition of its own, where no script of its run reaches. So a hook is made in three calls, row first
and pointer second: the row shows the hook as claiming, the token's pointer is set by compare-and-set, and the pass
writes ``hook_created`` or ``hook_conflict``. A pointer counts only while the row it names shows that hook alive.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from redisworld.errors import HookNotFound, MalformedMessage, ResumeConflict, RunGone
from redisworld.keys import Partition, check_token
from redisworld.runs import TERMINAL
from redisworld.world.deliveries import Answer
from redisworld.world.refusals import readable
from redisworld.world.replies import detail_of, text_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_LIVING = (b"claiming", b"open")
_OVER = frozenset(status.encode() for status in TERMINAL)

_CLAIM_PATIENCE_S = 1.0
"""How long a resume waits for a hook that is being created: a pass needs milliseconds, unless its worker has died."""
_LOOK_AGAIN_S = 0.01


class Holder(msgspec.Struct, frozen=True):
    """What a token's pointer names: a hook of a run. ``was`` is the run it named before, or ``""``."""

    run_id: str
    hook_id: str
    was: str = ""


class Hooks:
    """The hooks of a namespace, by token."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def claim(self, run_id: str, hook_id: str, token: str, *, disposing: frozenset[str] = frozenset()) -> str:
        """Claim a token for a hook that the next commit creates: ``""``, or the run whose living hook holds it.

        ``disposing`` are hooks of this run that the same commit disposes of; what they hold is free. A repeat asks
        again; of a hook that has its event already, and of a run that is gone, the commit decides. Raises
        InvalidInput for a token that cannot be used.
        """
        world, dead = self._world, Holder("", "")
        check_token(token)
        staged = await world.call("stage_hook", world.partition(run_id), world.clock(), run_id, hook_id, token)
        if word_of(staged) != "staged":
            return ""
        while True:
            reply = await world.call(
                "claim_token", world.partition(token), token, run_id, hook_id, dead.run_id, dead.hook_id
            )
            if word_of(reply) == "claimed":
                return ""
            dead = Holder(text_of(reply[1]), text_of(reply[2]))
            freed = dead.run_id == run_id and dead.hook_id in disposing
            if not freed and await self._lives(dead, token):
                return dead.run_id

    async def find(self, token: str) -> Holder:
        """What holds a token. Raises HookNotFound when nothing living does."""
        holder = await self._pointer(token)
        if holder is None or not await self._lives(holder, token):
            raise HookNotFound(token)
        return holder

    async def resume(self, token: str, payload: bytes, *, resume_id: str | None = None) -> tuple[str, int]:
        """Hand a payload to the hook that holds a token: its run, and the number of its ``hook_received``.

        The same ``resume_id`` again gives the first answer and writes nothing, also after the hook was disposed or its
        run has ended. Raises HookNotFound, RunGone, ResumeConflict for a resume id used with another payload or
        token, InvalidInput, RedisUnavailable.
        """
        identifier = check_token(resume_id, what="resume id") if resume_id is not None else secrets.token_hex(12)
        holder, deadline = await self._pointer(check_token(token)), anyio.current_time() + _CLAIM_PATIENCE_S
        while holder is not None:
            run_id, answer = await self._hand(holder, token, payload, identifier, known=resume_id is not None)
            if answer.outcome == "received":
                return run_id, int(answer.detail)
            if answer.outcome == "conflict":
                told = f"resume id {identifier!r} was used with another payload or token"
                raise ResumeConflict(told, resume_id=identifier, token=token)
            seen, holder = holder, await self._pointer(token)
            if holder is not None and holder != seen:
                continue  # the token went to another hook meanwhile
            if answer.outcome in ("gone", "full"):
                raise RunGone(f"the run {run_id!r} of hook token {token!r} has ended", run_id=run_id)
            if anyio.current_time() > deadline or not await self._lives(seen, token):
                break
            await anyio.sleep(_LOOK_AGAIN_S)  # a pass is between claiming the token and creating the hook
        raise HookNotFound(token)

    async def _hand(
        self, holder: Holder, token: str, payload: bytes, resume_id: str, *, known: bool
    ) -> tuple[str, Answer]:
        if known and holder.was:  # the run before it may have taken this very resume
            answer = await self.resume_at(Holder(holder.was, ""), token, payload, resume_id=resume_id)
            if answer.outcome == "received":
                return holder.was, answer
        return holder.run_id, await self.resume_at(holder, token, payload, resume_id=resume_id)

    async def resume_at(self, holder: Holder, token: str, payload: bytes, *, resume_id: str) -> Answer:
        """Hand a payload to this hook, as one who has looked up its token before: one call, the outcome word.

        ``received`` and the number of the event, ``conflict``, ``gone``, ``not_found`` or ``full``. With an empty hook
        id only a resume id that the run knows already is ``received``.
        """
        world = self._world
        digest = hashlib.sha1(payload, usedforsecurity=False).hexdigest()
        reply = await world.call(
            "resume_hook",
            world.partition(holder.run_id),
            world.clock(),
            holder.run_id,
            holder.hook_id,
            token,
            resume_id,
            digest,
            payload,
            *world.ceiling,
        )
        return Answer(word_of(reply), detail_of(reply))

    async def release(self, partition: Partition, limit: int = 100) -> int:
        """Let the pointers go that runs of this partition have given up, about ``limit`` at a time; how many.

        What somebody else has written, among them or in the place of one, keeps none of the others; then
        MalformedMessage names it.
        """
        released, cursor = 0, 0
        foreign: list[MalformedMessage] = []
        while True:
            cursor, found = await self._given_up(partition, cursor, limit)
            # together: one after the other they would not keep up with workers that end runs
            calls = [self._let_go(partition, name, token) for name, token in found.items()]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            gone = [name for name, error in zip(found, answers, strict=True) if error is None]
            if gone:
                await self._forget(partition, gone)
            for error in answers:
                if isinstance(error, MalformedMessage):
                    foreign.append(error)
                elif error is not None:
                    raise error
            released += len(gone)
            if not int(cursor):
                break
        if foreign:
            raise foreign[0]
        return released

    async def _given_up(self, partition: Partition, cursor: int, limit: int) -> tuple[int, dict[bytes, bytes]]:
        """The next cursor, and tokens by ``<run> <hook>``."""

        async def call() -> Any:
            return await self._world.connection.commands.hscan(partition.releases, cursor, count=limit)

        with readable(partition.releases):
            found: tuple[int, dict[bytes, bytes]] = await self._world.connection.run("read_releases", call)
        return found

    async def _let_go(self, partition: Partition, name: bytes, token: bytes) -> None:
        world, pointed = self._world, text_of(token)
        run_id, hook_id = _named(partition, name)
        keep = world.settings.retention_ms
        word_of(await world.call("release_token", world.partition(pointed), pointed, run_id, hook_id, keep))

    async def _forget(self, partition: Partition, names: list[bytes]) -> None:
        async def call() -> Any:
            return await self._world.connection.commands.hdel(partition.releases, *names)

        await self._world.connection.run("forget_releases", call)

    async def _pointer(self, token: str) -> Holder | None:
        key = self._world.partition(token).hook(token)

        async def call() -> Any:
            return await self._world.connection.commands.hmget(key, ["run", "hook", "was"])

        with readable(f"who holds hook token {token!r}"):
            run_id, hook_id, was = await self._world.connection.run("read_hook", call)
        return Holder(text_of(run_id), text_of(hook_id), text_of(was or b"")) if run_id and hook_id else None

    async def _lives(self, holder: Holder, token: str) -> bool:
        """Whether that hook is alive and of this token: the pointer may be of an earlier run with the same ids."""
        partition = self._world.partition(holder.run_id)

        def look(pipe: Any) -> None:
            pipe.hmget(partition.run(holder.run_id), ["status", f"h:{holder.hook_id}"])
            pipe.hget(partition.hooks(holder.run_id), holder.hook_id)

        row, held = await self._world.connection.pipe("read_hook_state", look, raises="transient")
        # a key of another type is somebody else's: it must not fail the run that asks
        if isinstance(row, Exception) or (isinstance(held, bytes) and held != token.encode()):
            return False
        status, state = row
        return status is not None and status not in _OVER and state in _LIVING


def _named(partition: Partition, name: bytes) -> tuple[str, str]:
    """The run and the hook of a field of the releases."""
    words = text_of(name).split(" ")
    if len(words) != 2:
        raise MalformedMessage(f"{partition.releases} has the field {name!r:.80}, which names no hook of a run")
    return words[0], words[1]
