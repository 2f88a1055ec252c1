"""What does ``redisworld run list`` do? It lists runs, newest first, from the indexes of the namespace."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.options import OneOf, duration_ms
from redisworld.cli.plain import one_line
from redisworld.cli.times import ago, iso
from redisworld.durations import length
from redisworld.errors import InvalidInput
from redisworld.runs import OPEN, Status
from redisworld.world import World
from redisworld.world.listing_runs import ListedRun, page_of_runs

_OPEN = "open"
_STATUSES = {status.value: (status,) for status in Status} | {_OPEN: OPEN}


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_list(
        verbs, "list", _list, things="runs", after="ID", prepare=_check,
        does="List runs, newest first.",
        example="redisworld run list --status failed --since 24h",
    )  # fmt: skip
    parser.add_argument("--status", metavar="STATUS", type=OneOf(_STATUSES),
                        help=f"only of this status: {', '.join(_STATUSES)} (pending and running)")  # fmt: skip
    parser.add_argument("--workflow", metavar="NAME", default="", help="only of this workflow")
    parser.add_argument("--deployment", metavar="NAME", default="", dest="of_deployment",
                        help="only of this deployment")  # fmt: skip
    parser.add_argument("--attribute", metavar="KEY=VALUE", type=_attribute, action="append", default=[],
                        help="only those with this attribute; may be repeated")  # fmt: skip
    parser.add_argument("--root", metavar="ID", default="", help="only runs that steps below this run have started")
    parser.add_argument("--since", metavar="DURATION", type=duration_ms, help="only those created since, like 24h")


def _attribute(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"must be like customer=42, not {text!r}")
    return key, value


def _check(arguments: argparse.Namespace) -> None:
    if len(dict(arguments.attribute)) < len(arguments.attribute):
        raise InvalidInput("--attribute: one key is given twice, and a run has one value of it")


async def _list(world: World, arguments: argparse.Namespace) -> None:
    now = world.now_ms()
    page = await page_of_runs(
        world,
        statuses=_STATUSES.get(arguments.status, ()),
        workflow=arguments.workflow,
        deployment=arguments.of_deployment,
        attributes=dict(arguments.attribute),
        root=arguments.root,
        since=0 if arguments.since is None else now - arguments.since,
        limit=arguments.limit,
        after=arguments.after,
    )
    print_list(
        arguments,
        page.runs,
        ("RUN", "STATUS", "WORKFLOW", "CREATED", "AGE", "TOOK", "NOTE"),
        [_row(run, now) for run in page.runs],
        none="no runs" if not page.after else "no runs that fit so far",
        after=page.after,
    )


def _row(run: ListedRun, now: int) -> tuple[str, ...]:
    took = length(run.finished_at - run.created_at) if run.finished_at else "-"
    return (
        run.run_id,
        run.status or "unreadable",
        run.workflow or "-",
        iso(run.created_at),
        ago(now - run.created_at) if run.created_at else "-",
        took,
        _note(run, now),
    )


def _note(run: ListedRun, now: int) -> str:
    """What a person looks for beside the status."""
    if run.status is None:
        return one_line(run.unreadable, 80)
    if run.status.terminal:
        return run.code
    if run.parked:
        return f"parked: dead letter {' '.join(run.parked)}"
    return f"starts in {ago(run.start_at - now)}" if run.start_at > now and not run.started_at else ""
