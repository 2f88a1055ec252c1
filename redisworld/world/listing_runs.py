"""Which runs are there, newest first, of some status, workflow or attribute?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld.errors import InvalidInput
from redisworld.messages import UNREADABLE
from redisworld.runs import Status
from redisworld.world.paging import Scored, page_of
from redisworld.world.replies import number_of, score_of, text_of
from redisworld.world.run_ids import check_run_id

if TYPE_CHECKING:
    from redisworld.world.world import World

_FIELDS = (
    "status", "workflow", "deployment", "created_at", "started_at", "finished_at", "start_at", "code", "parked",
    "attributes", "root",
)  # fmt: skip
_LOOKED_AT = 10_000
"""Rows that one page looks at for those that a filter lets through: about 100 pipelines of HMGET."""
_CHUNK = 100


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list. Times are epoch ms by Redis; 0 where not reached. ``parked`` are names of dead letters.

    ``status`` is None where the row cannot be read; ``unreadable`` says why.
    """

    run_id: str
    status: Status | None
    workflow: str
    deployment: str = ""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    start_at: int = 0
    code: str = ""
    parked: tuple[str, ...] = ()
    attributes: dict[str, str] = {}
    unreadable: str = ""
    root_run_id: str = ""
    """Of a run that a step has started: the run from which it all began."""

    def has(self, attributes: Mapping[str, str]) -> bool:
        """Whether it has all of these."""
        return attributes.items() <= self.attributes.items()


class RunPage(msgspec.Struct, frozen=True):
    """Runs, and the run id to go on behind, or ``""`` where that was all."""

    runs: list[ListedRun]
    after: str


async def page_of_runs(
    world: World,
    *,
    statuses: Collection[Status] = (),
    workflow: str = "",
    deployment: str = "",
    attributes: Mapping[str, str] | None = None,
    root: str = "",
    since: int = 0,
    limit: int,
    after: str = "",
) -> RunPage:
    """At most ``limit`` runs, newest first, behind the run ``after``; created at ``since`` (epoch ms) or later.

    ``attributes`` are those that a run has to have; ``root`` is the run whose steps have started it, or the steps of
    those. Without these, ``workflow`` and ``deployment`` it costs one command for each partition and status, and one
    for each run. With one of them rows are looked at until enough fit, at most 10,000: then the page is short and its
    ``after`` goes on.
    Raises InvalidInput for an ``after`` that is not listed.
    """
    names = [f"status:{status}" for status in statuses] or ["created"]
    keys = [partition.index(name) for partition in world.partitions for name in names]
    place = await _place(world, after) if after else None
    chunk = _CHUNK if workflow or deployment or attributes or root else limit + 1
    found: list[ListedRun] = []
    for _ in range(max(1, _LOOKED_AT // chunk)):
        page = await page_of(world.connection, keys, after=place, count=chunk, downwards=True, least=since)
        ids = list(dict.fromkeys(text_of(member) for (_, member), _ in page))  # one that starts now is in two indexes
        for run_id, run in zip(ids, await _rows(world, ids), strict=True):
            if len(found) == limit:
                return RunPage(found, after)
            after = run_id
            if run is None or (statuses and run.status not in statuses):
                continue
            named = ((workflow, run.workflow), (deployment, run.deployment), (root, run.root_run_id))
            if all(wanted in ("", there) for wanted, there in named) and run.has(attributes or {}):
                found.append(run)
        if len(page) < chunk:
            return RunPage(found, "")
        place = page[-1][0]
    return RunPage(found, after)


async def _place(world: World, run_id: str) -> Scored:
    created = world.partition(check_run_id(run_id)).index("created")
    score = await world.connection.run("find_run", lambda: world.connection.commands.zscore(created, run_id))
    if score is None:
        raise InvalidInput(f"after={run_id!r}: this run is not listed, so nothing is behind it: begin the list again")
    return score_of(score), run_id.encode()


async def _rows(world: World, run_ids: Sequence[str]) -> list[ListedRun | None]:
    """The runs of these ids; None for one that has been reaped meanwhile."""

    def read(pipe: Any) -> None:
        for run_id in run_ids:
            pipe.hmget(world.partition(run_id).run(run_id), _FIELDS)

    rows = await world.connection.pipe("read_listed_runs", read, raises="transient") if run_ids else []
    return [_run(world, run_id, values) for run_id, values in zip(run_ids, rows, strict=True)]


def _run(world: World, run_id: str, values: Sequence[bytes | None] | Exception) -> ListedRun | None:
    if isinstance(values, Exception):
        return ListedRun(run_id=run_id, status=None, workflow="", unreadable=str(values))
    try:
        return _read(world, run_id, values)
    except ValueError as error:  # a status or number that is none
        return ListedRun(run_id=run_id, status=None, workflow="", unreadable=str(error))


def _read(world: World, run_id: str, values: Sequence[bytes | None]) -> ListedRun | None:
    row = {name: text_of(value) for name, value in zip(_FIELDS, values, strict=True) if value}
    if "status" not in row:
        return None
    number = world.partition(run_id).number
    return ListedRun(
        run_id=run_id,
        status=Status(row["status"]),
        workflow=row.get("workflow", ""),
        deployment=row.get("deployment", ""),
        created_at=number_of(row.get("created_at", "")),
        started_at=number_of(row.get("started_at", "")),
        finished_at=number_of(row.get("finished_at", "")),
        start_at=number_of(row.get("start_at", "")),
        code=row.get("code", ""),
        parked=tuple(f"{number}/{letter}" for letter in row.get("parked", "").split()),
        attributes=_attributes(row.get("attributes", "")),
        root_run_id=row.get("root", ""),
    )


def _attributes(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except UNREADABLE:  # somebody's own: whoever lists runs must not fail on it
        return {}
