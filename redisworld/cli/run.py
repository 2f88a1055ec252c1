"""What can be done with runs from a shell? ``redisworld run list``, ``why``, ``cancel``, …; ``runs`` means the same."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli import output, replay, run_export, run_list, run_watch, run_why
from redisworld.cli.commands import add_noun, add_verb
from redisworld.cli.endings import CommandFailed
from redisworld.cli.options import add_option, duration_ms
from redisworld.cli.plain import as_json
from redisworld.cli.results import result_of
from redisworld.cli.showing import as_object, as_text
from redisworld.cli.story import read_story
from redisworld.errors import InvalidInput
from redisworld.runs import Status
from redisworld.world import Run, World

_SHOWN = 200
"""Steps, hooks and events shown without --all: a few screens, and the last ones are what one looks for."""

_OF = ("run_id", "ID", "the run's id")


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    add_noun(
        commands, "run", (
            run_list.add_to, _add_show, run_why.add_to, run_watch.add_to, _add_result, output.add_to, run_export.add_to,
            replay.add_to, _add_cancel, _add_terminate,
        ),
        does="Look at runs or end one: list, show, why, watch, result, output, export, replay, cancel, terminate.",
        example="redisworld run show publish-cat",
        also="runs",
        lists=True,
    )  # fmt: skip


def _add_show(verbs: Any) -> None:
    parser = add_verb(
        verbs, "show", _show, of=_OF,
        does="Show a run: its row, its steps, its open waits, its hooks and its log.",
        example="redisworld run show publish-cat --json",
    )  # fmt: skip
    parser.add_argument("--payloads", action="store_true", help="show payloads whole, not shortened")
    parser.add_argument("--all", action="store_true", help=f"all steps, hooks and events, not only the last {_SHOWN}")


def _add_cancel(verbs: Any) -> None:
    parser = add_verb(
        verbs, "cancel", _cancel, of=_OF,
        does="Ask the body of a run to stop; it gets CancelledError, and its clean-up steps run.",
        example="redisworld run cancel publish-cat --reason 'wrong picture'",
    )  # fmt: skip
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")


def _add_terminate(verbs: Any) -> None:
    parser = add_verb(
        verbs, "terminate", _terminate, of=_OF, prepare=_check_terminate,
        does="End a run at once, without asking its body; the bodies of its steps are cancelled soon after.",
        example="redisworld run terminate publish-cat --yes --reason 'stuck'",
    )  # fmt: skip
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")
    parser.add_argument("--yes", action="store_true", help="needed: it cannot be taken back")


def _add_result(verbs: Any) -> None:
    parser = add_verb(
        verbs, "result", _result, of=_OF,
        does="Wait for the end of a run and print its result as JSON.",
        example="redisworld run result publish-cat --timeout 60s",
    )  # fmt: skip
    add_option(parser, "--timeout", "timeout", "how long to wait (default: for ever)",
               default=None, type=duration_ms, metavar="DURATION")  # fmt: skip


async def _show(world: World, arguments: argparse.Namespace) -> None:
    story = await read_story(world, arguments.run_id, keep=None if arguments.all else _SHOWN)
    print(as_json(as_object(story)) if arguments.json else as_text(story, whole_payloads=arguments.payloads))


def _check_terminate(arguments: argparse.Namespace) -> None:
    if not arguments.yes:
        raise InvalidInput("terminate ends the run at once and cannot be taken back: add --yes, or use 'run cancel'")


async def _cancel(world: World, arguments: argparse.Namespace) -> None:
    _told(arguments, await Run[Any](world, arguments.run_id).cancel(arguments.reason))


async def _terminate(world: World, arguments: argparse.Namespace) -> None:
    _told(arguments, await Run[Any](world, arguments.run_id).terminate(arguments.reason))


def _told(arguments: argparse.Namespace, status: Status) -> None:
    if status in (Status.COMPLETED, Status.FAILED):
        raise CommandFailed(f"run {arguments.run_id!r} has ended already: it is {status}")
    if arguments.json:
        print(as_json({"run_id": arguments.run_id, "status": status}))
    else:
        print("cancelled" if status is Status.CANCELLED else "cancellation requested")


async def _result(world: World, arguments: argparse.Namespace) -> None:
    result = await result_of(Run(world, arguments.run_id), timeout_ms=arguments.timeout)
    answer = {"run_id": arguments.run_id, "status": "completed", "result": result}
    print(as_json(answer if arguments.json else result))
