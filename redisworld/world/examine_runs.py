"""Which open runs stand still, and does everything that belongs to a run stand where it should?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from redisworld.errors import MalformedMessage
from redisworld.keys import Partition
from redisworld.runs import OPEN, Step
from redisworld.world.findings import Finding
from redisworld.world.living import Living, look_through, nothing_seen
from redisworld.world.recovering import Mode, Suspect
from redisworld.world.replies import text_of
from redisworld.world.scanning import pages

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 100
_REFUSALS = ("lives", "changed", "gone", "missing", "not_found", "parked")
"""Words that say: not lost. A parked run has a finding of its own."""

Tick = Callable[[int], None]
QueueOf = Callable[[str], str | None]


async def examine_open_runs(
    world: World, partition: Partition, streams: list[str], *, fix: bool, queue_of: QueueOf, tick: Tick
) -> AsyncIterator[Finding]:
    """Open runs, page by page: who waits for what is nowhere, who is parked, whose listing or TTL is wrong."""
    for status in OPEN:
        cursor = 0
        while True:
            cursor, run_ids = await world.recovery.page(partition, status, cursor, _PAGE)
            tick(len(run_ids))
            for start in range(0, len(run_ids), _PAGE):  # a small sorted set comes whole
                page = run_ids[start : start + _PAGE]
                suspects = await world.recovery.all_suspects(partition, page)
                async for finding in _suspects(world, partition, streams, suspects, fix=fix, queue_of=queue_of):
                    yield finding
                async for finding in _rows(world, partition, page, fix=fix):
                    yield finding
            if not cursor:
                break


async def _suspects(
    world: World, partition: Partition, streams: list[str], suspects: list[Suspect], *, fix: bool, queue_of: QueueOf
) -> AsyncIterator[Finding]:
    mode: Mode = "mend" if fix else "look"
    waiting = [suspect for suspect in suspects if suspect.what in ("wake", "step")]
    for suspect in suspects:
        if suspect.what == "broken":
            key = partition.run(suspect.run_id)
            yield Finding(code="unreadable", what=f"run {suspect.run_id}: {suspect.state}", where=(key,))
        elif suspect.what == "wait":
            async for finding in _timer(world, partition, suspect, mode=mode):
                yield finding
    if not waiting:
        return
    seen = nothing_seen()
    runs = {suspect.run_id for suspect in waiting}
    await look_through(world.connection, partition, streams, seen, runs=runs)
    async for finding in _settled_by_hand(world, partition, seen, fix=fix):
        yield finding
    for suspect in waiting:
        if not suspect.seen_in(seen):
            lost = await _lost(world, partition, streams, suspect, seen, mode=mode, queue_of=queue_of, runs=runs)
            if lost is not None:
                yield lost


async def _timer(world: World, partition: Partition, suspect: Suspect, *, mode: Mode) -> AsyncIterator[Finding]:
    if await world.recovery.delayed("wait", suspect.run_id, suspect.id, mode=mode) == "restored":
        yield Finding(
            code="timer_missing",
            what=f"run {suspect.run_id}: wait {suspect.id} has no timer",
            where=(partition.run(suspect.run_id), partition.delayed),
            mended="set its timer again" if mode == "mend" else "",
        )


async def _lost(
    world: World,
    partition: Partition,
    streams: list[str],
    suspect: Suspect,
    seen: Living,
    *,
    mode: Mode,
    queue_of: QueueOf,
    runs: set[str],
) -> Finding | None:
    """The script decides."""
    key, name = partition.run(suspect.run_id), suspect.run_id
    try:
        answer = await world.recovery.send(suspect, streams, seen, mode=mode, queue_of=queue_of, runs=runs)
    except MalformedMessage as error:
        return Finding(code="unreadable", what=f"run {name}: {error}", where=(key, partition.log(name)))
    if answer.outcome in _REFUSALS:
        return None
    if suspect.what == "wake":
        what = f"run {name} waits for wake {suspect.id or '(none)'}, which is nowhere"
        mended = f"sent recovery wake {answer.detail}" if answer.outcome == "recovered" else ""
        return Finding(code="wake_lost", what=what, where=(key,), mended=mended)
    step = Step.parse(suspect.state)
    what = f"run {name}: step {suspect.id} is {step.status}, and its message is nowhere"
    mended = f"sent its message again, entry {answer.detail}" if answer.outcome == "dispatched" else ""
    return Finding(code="step_lost", what=what, where=(key,), mended=mended)


async def _settled_by_hand(world: World, partition: Partition, seen: Living, *, fix: bool) -> AsyncIterator[Finding]:
    connection = world.connection
    for stream, entry, run in seen.settled_by_hand:
        key = partition.tag + stream
        if not await connection.run("find_entry", partial(connection.commands.xrange, key, entry, entry)):
            continue  # it was settled while we looked
        if fix:
            await connection.run("delete_entry", partial(connection.commands.xdel, key, entry))
        what = f"entry {entry} of run {run} was acknowledged and left in the stream"
        yield Finding(code="settled_by_hand", what=what, where=(key,), mended="deleted it" if fix else "")


async def _rows(world: World, partition: Partition, run_ids: list[str], *, fix: bool) -> AsyncIterator[Finding]:
    """What the row and its neighbours say: letters, TTLs, tokens; and whether there is a row."""

    def look(pipe: Any) -> None:
        for run_id in run_ids:
            row, hooks = partition.run(run_id), partition.hooks(run_id)
            pipe.hmget(row, "status", "parked")
            for key in (row, partition.log(run_id), hooks, partition.resumes(run_id)):
                pipe.pttl(key)
            pipe.hgetall(hooks)

    answers = iter(await world.connection.pipe("look_at_rows", look, raises="none"))
    for run_id in run_ids:
        row, *lives = (next(answers) for _ in range(5))
        held = next(answers)
        if isinstance(row, Exception) or isinstance(held, Exception):
            continue  # told as unreadable
        status, parked = row
        if status is None or any(isinstance(left, int) and left >= 0 for left in lives):
            async for finding in examine_listing(world, partition, run_id, fix=fix):
                yield finding
        if letters := await _letters(world, partition, parked):
            what = f"run {run_id} waits for dead letter {letters}"
            yield Finding(code="parked", what=what, where=(partition.run(run_id), partition.dead))
        for hook_id, token in held.items():
            async for finding in _hook(world, partition, run_id, text_of(hook_id), text_of(token), fix=fix):
                yield finding


async def _letters(world: World, partition: Partition, parked: bytes | None) -> str:
    """The names of the letters that a row names and that are there still."""
    if not (ids := text_of(parked or b"").split()):
        return ""
    found = await world.connection.pipe(
        "find_letters", lambda pipe: [pipe.xrange(partition.dead, id, id) for id in ids]
    )
    return ", ".join(f"{partition.number}/{letter}" for letter, there in zip(ids, found, strict=True) if there)


async def _hook(
    world: World, partition: Partition, run_id: str, hook_id: str, token: str, *, fix: bool
) -> AsyncIterator[Finding]:
    """An open hook whose token points elsewhere, or nowhere."""
    pointer = world.partition(token).hook(token)

    def look(pipe: Any) -> None:
        pipe.hmget(pointer, "run", "hook")
        pipe.hmget(partition.run(run_id), "status", f"h:{hook_id}")  # last: what it says of the hook holds still

    (run, hook), (status, state) = await world.connection.pipe("look_at_hook", look)
    if state != b"open" or text_of(status) not in OPEN or (run, hook) == (run_id.encode(), hook_id.encode()):
        return
    mended = ""
    if fix:
        reply = await world.call("claim_token", world.partition(token), token, run_id, hook_id, "", "")
        mended = "pointed the token at it again" if reply[0] == b"claimed" else ""
    elsewhere = f"points to run {text_of(run)}" if run else "points to nothing"
    what = f"run {run_id}: hook {hook_id} is open, and its token {token!r} {elsewhere}"
    yield Finding(code="hook_pointer", what=what, where=(partition.run(run_id), pointer), mended=mended)


async def examine_listing(world: World, partition: Partition, run_id: str, *, fix: bool) -> AsyncIterator[Finding]:
    """Whether a run is listed as it should be and its keys do not expire."""
    mode: Mode = "mend" if fix else "look"
    try:
        word = await world.recovery.listing(run_id, mode=mode)
    except MalformedMessage as error:
        yield Finding(code="unreadable", what=f"run {run_id}: {error}", where=(partition.run(run_id),))
        return
    if word == "fits":
        return
    what = {
        "absent": f"run {run_id} is listed and does not exist",
        "unlisted": f"run {run_id} is not listed",
        "listed_wrong": f"run {run_id} is listed under another status, or not among those that will be reaped",
        "expires": f"run {run_id} is open, and its keys have a TTL",
    }[word]
    code = "expires" if word == "expires" else "listing"
    yield Finding(code=code, what=what, where=(partition.run(run_id),), mended="put right" if fix else "")


async def examine_listings(world: World, partition: Partition, *, fix: bool, tick: Tick) -> AsyncIterator[Finding]:
    """Whether each listed run exists, and whether finished ones go when their time is over."""
    commands = world.connection.commands
    created = partition.index("created")
    async for members in pages(world.connection, "page_runs", lambda at: commands.zscan(created, at, count=500)):
        run_ids = [text_of(member) for member, _ in members]
        tick(len(run_ids))
        for run_id in await _wrongly_listed(world, partition, run_ids):
            async for finding in examine_listing(world, partition, run_id, fix=fix):
                yield finding
    async for finding in _not_reaped(world, partition, fix=fix):
        yield finding


async def _wrongly_listed(world: World, partition: Partition, run_ids: list[str]) -> list[str]:
    """Those without a row, or not among the runs of their status."""
    if not run_ids:
        return []
    statuses = await world.connection.pipe(
        "read_statuses", lambda pipe: [pipe.hget(partition.run(run), "status") for run in run_ids], raises="none"
    )
    known = [(run, text_of(found)) for run, found in zip(run_ids, statuses, strict=True) if isinstance(found, bytes)]
    absent = [run for run, found in zip(run_ids, statuses, strict=True) if found is None]

    def scores(pipe: Any) -> None:
        for run, status in known:
            pipe.zscore(partition.index(f"status:{status}"), run)

    listed = await world.connection.pipe("read_listings", scores, raises="none") if known else []
    return absent + [run for (run, _), score in zip(known, listed, strict=True) if score is None]


async def _not_reaped(world: World, partition: Partition, *, fix: bool) -> AsyncIterator[Finding]:
    connection = world.connection
    latest = await connection.time_ms() - 3 * world.settings.reap_every_ms
    if late := await connection.run(
        "count_expired", lambda: connection.commands.zcount(partition.expiring, "-inf", latest)
    ):
        reaped = 0
        while fix and (some := await world.upkeep.reap(partition, 200)):
            reaped += some
        what = f"{late} finished runs are past their retention"
        mended = f"reaped {reaped} runs" if fix else ""
        yield Finding(code="not_reaped", what=what, where=(partition.expiring,), mended=mended)
