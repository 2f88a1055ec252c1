"""What is due later: which timers, retries, delayed starts and messages that were handed back?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld import messages
from redisworld.errors import InvalidInput, MalformedMessage
from redisworld.keys import Partition
from redisworld.messages import Message, WorkflowMessage
from redisworld.runs import Step
from redisworld.world.paging import Scored, page_of
from redisworld.world.replies import score_of, text_of

if TYPE_CHECKING:
    from redisworld.world.world import World


_DUE = re.compile(r"[0-9]{1,15}")


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a delayed set. ``due_at`` is epoch ms by Redis.

    ``what``: timer (a wait), retry (of a step), start (of a run that begins later), handed_back (a message no worker
    could process yet; since ``refused_since``), unreadable. ``id`` is that of the wait, step or message.
    """

    due_at: int
    what: str
    run_id: str
    id: str
    name: str = ""
    stream: str = ""
    """Where the message goes when it is due, within the partition."""
    deliveries: int = 0
    refused_since: int = 0
    member: str = ""

    @property
    def place(self) -> str:
        """What ``page_of_delayed`` takes to go on behind it."""
        return f"{self.due_at} {self.member}"


async def page_of_delayed(world: World, *, limit: int, after: str = "") -> list[Due]:
    """At most ``limit`` members of the delayed sets of all partitions behind the place ``after``; the soonest first.

    One command for each partition, and two for each member that is no timer. Raises InvalidInput for a place that is
    none.
    """
    of = {partition.delayed: partition for partition in world.partitions}
    page = await page_of(world.connection, list(of), after=_place(after), count=limit, downwards=False)
    return await _told(world, [(of[key], due, member) for (due, member), key in page])


async def find_delayed(world: World, run_id: str, members: Sequence[str]) -> dict[str, Due]:
    """Those of these members (``<kind> <run> <id>``) of a run that are delayed, by member; three commands each."""
    if not members:
        return {}
    partition = world.partition(run_id)
    scores = await world.connection.pipe(
        "find_delayed", lambda pipe: [pipe.zscore(partition.delayed, member) for member in members]
    )
    there = [(partition, score_of(s), m.encode()) for m, s in zip(members, scores, strict=True) if s is not None]
    return {due.member: due for due in await _told(world, there)}


def _place(text: str) -> Scored | None:
    due, _, member = text.partition(" ")
    if not text:
        return None
    if not _DUE.fullmatch(due) or not member:
        raise InvalidInput(f"after={text!r} is no place in the list: take the one that the page before has told")
    return int(due), member.encode("utf-8", "surrogatepass")  # a shell hands over any bytes


async def _told(world: World, found: Sequence[tuple[Partition, int, bytes]]) -> list[Due]:
    with_body = [(p, member) for p, _, member in found if not member.startswith(b"wait ")]

    def read(pipe: Any) -> None:
        for partition, member in with_body:
            pipe.hget(partition.delayed_body, member)
            run_id, _, id = text_of(member).partition(" ")[2].partition(" ")
            pipe.hget(partition.run(run_id), f"s:{id}")

    answers = iter(await world.connection.pipe("read_delayed", read, raises="none") if with_body else [])
    told = []
    for _, due_at, member in found:
        kind, _, rest = text_of(member).partition(" ")
        run_id, _, id = rest.partition(" ")
        if kind == "wait":
            told.append(Due(due_at=due_at, what="timer", run_id=run_id, id=id, member=f"{kind} {rest}"))
        else:
            told.append(_message(due_at, f"{kind} {rest}", run_id, id, next(answers), next(answers)))
    return told


def _message(due_at: int, member: str, run_id: str, id: str, body: Any, state: Any) -> Due:
    header, _, data = body.partition(b"\n") if isinstance(body, bytes) else (b"", b"", b"")
    words = text_of(header).split(" ")
    try:
        message = messages.decode(data)
    except MalformedMessage:
        return Due(due_at=due_at, what="unreadable", run_id=run_id, id=id, member=member)
    return Due(
        due_at=due_at,
        what=_what(message, due_at, state),
        run_id=run_id,
        id=id,
        name=words[2] if len(words) > 2 else "",
        stream=words[0],
        deliveries=message.deliveries,
        refused_since=message.first_refused_at or 0,
        member=member,
    )


def _what(message: Message, due_at: int, state: Any) -> str:
    if isinstance(message, WorkflowMessage):
        return "start" if message.reason == "start" and message.first_refused_at is None else "handed_back"
    return "retry" if isinstance(state, bytes) and _retry_at(state) == due_at else "handed_back"


def _retry_at(state: bytes) -> int:
    try:
        return Step.parse(text_of(state)).retry_at
    except MalformedMessage:  # the row is another's, and the list goes on
        return 0
