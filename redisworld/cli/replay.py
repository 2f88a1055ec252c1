"""Does the code of today fit the runs that are under way? ``redisworld run replay``, for a look and for CI."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from redisworld.cli.apps import load_app
from redisworld.cli.commands import add_verb
from redisworld.cli.endings import FAILED
from redisworld.cli.options import whole
from redisworld.cli.plain import as_json, one_line
from redisworld.cli.progress import bar
from redisworld.errors import InvalidInput, RunNotFound
from redisworld.replay import install
from redisworld.replay.check import Verdict, check
from redisworld.runs import RunRow
from redisworld.workflows import Workflows
from redisworld.world import World

_EXAMPLE = """\
redisworld run replay publish-cat --app app:wf

in CI, before a deploy (exit code 1 when a run diverges):
  redisworld run replay --all-open --app app:wf --url redis://production:6379/0"""

_NOT_REGISTERED = "not registered"
_EARLY_SHOWN = 5
_TRIES = 3
"""A run may move on while it is read; what does not fit is looked at again then."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One run's line."""

    run_id: str
    workflow: str
    status: str
    verdict: str
    events: int = 0
    event: int = 0
    detail: str = ""
    early: tuple[str, ...] = ()


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "replay", _replay, prepare=_prepare,
        does="Replay runs with the code of an application and tell which would diverge; nothing is written.",
        example=_EXAMPLE,
        json="print one JSON list instead, an object a run",
    )  # fmt: skip
    parser.add_argument("run_ids", metavar="ID", nargs="*", help="ids of runs, open or finished")
    parser.add_argument(
        "--app", metavar="MODULE[:ATTRIBUTE]", required=True, help="the application, as a worker takes it"
    )
    parser.add_argument("--all-open", action="store_true", help="all pending and running runs of the namespace")
    parser.add_argument("--workflow", metavar="NAME", help="of the open runs those of one workflow")
    parser.add_argument("--limit", metavar="N", type=whole(1, 10**9), help="of the open runs at most so many")


def _prepare(arguments: argparse.Namespace) -> None:
    if bool(arguments.run_ids) == arguments.all_open:
        raise InvalidInput("name the runs to replay by their ids, or say --all-open (one of the two)")
    if not arguments.all_open and (arguments.workflow or arguments.limit is not None):
        raise InvalidInput(
            "--workflow and --limit choose among the runs of --all-open; runs named by id are all replayed"
        )
    install()  # as in a worker, or a body that asks for the time would diverge, and one that opens a file would do so
    arguments.app = load_app(arguments.app)


async def _replay(world: World, arguments: argparse.Namespace) -> int:
    """0 when all fit, 1 when one does not. An open run of a workflow the application does not have is another's."""
    found: list[Checked] = []
    counts: Counter[str] = Counter()
    total = await world.listing.count_open() if arguments.all_open else len(arguments.run_ids)
    silent = total == 0 or (not arguments.json and sys.stdout.isatty())  # the lines are progress enough
    with bar("replayed", total) as progress:
        async for checked in _checked(world, arguments.app, arguments):
            counts[checked.verdict] += 1
            if not silent:
                progress.show(min(counts.total(), total))
            if arguments.json:
                found.append(checked)
            else:
                print(_line(checked))
    if arguments.json:
        print(as_json(msgspec.to_builtins(found)))
    else:
        print(_summary(counts))
    passable = {"fits", _NOT_REGISTERED} if arguments.all_open else {"fits"}
    return 0 if counts.keys() <= passable else FAILED


async def _checked(world: World, app: Workflows, arguments: argparse.Namespace) -> AsyncIterator[Checked]:
    if not arguments.all_open:
        for run_id in arguments.run_ids:
            yield await _check(world, app, await world.row(run_id))
        return
    done = 0
    async with aclosing(world.listing.open()) as run_ids:
        async for run_id in run_ids:
            if done == arguments.limit:
                return
            try:
                row = await world.row(run_id)
                if row.status.terminal or arguments.workflow not in (None, row.workflow):
                    continue
                checked = await _check(world, app, row)
            except RunNotFound:  # it has ended meanwhile, and its retention is over
                continue
            done += 1
            yield checked


async def _check(world: World, app: Workflows, row: RunRow) -> Checked:
    workflow = app.workflows.get(row.workflow)
    if workflow is None:
        detail = f"the application has no workflow {row.workflow!r}"
        return Checked(
            run_id=row.run_id, workflow=row.workflow, status=row.status, verdict=_NOT_REGISTERED, detail=detail
        )
    for _ in range(_TRIES):
        with contextlib.redirect_stdout(sys.stderr):  # what a body prints is no part of the report
            async with aclosing(_pages(world, row.run_id)) as pages:
                verdict = await check(row, workflow, pages, max_payload=world.settings.max_payload)
        if verdict.fits or (now := await world.row(row.run_id)) == row:
            break
        row = now
    return _of(row, verdict)


async def _pages(world: World, run_id: str) -> AsyncGenerator[list[bytes], None]:
    start = 0
    while page := await world.log(run_id, start):
        yield page
        start += len(page)


def _of(row: RunRow, verdict: Verdict) -> Checked:
    return Checked(
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.status,
        verdict=verdict.word,
        events=verdict.events,
        event=verdict.event,
        detail=verdict.detail,
        early=verdict.early,
    )


def _line(checked: Checked) -> str:
    place = f"event {checked.event}: " if checked.event else ""
    told = f"{place}{checked.detail}" if checked.detail else f"{checked.events} events"
    if checked.early:
        more = len(checked.early) - _EARLY_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        told += f"; asks for more than was asked so far: {', '.join(checked.early[:_EARLY_SHOWN])}{rest}"
    return f"{checked.run_id}  {checked.verdict}  {one_line(told)}"


def _summary(counts: Counter[str]) -> str:
    each = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"{counts.total()} runs replayed" + (f": {each}" if each else "")
