"""What can be done with one run from a shell? ``redisworld run show``, ``output``, ``replay``, ``cancel``, …"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from redisworld.cli import output, replay
from redisworld.cli.endings import CommandFailed
from redisworld.cli.options import add_command, add_option, add_redis_options, add_verb, connected, duration_ms
from redisworld.cli.plain import as_json
from redisworld.cli.results import result_of
from redisworld.cli.showing import as_object, as_text
from redisworld.cli.story import read_story
from redisworld.errors import InvalidInput
from redisworld.runs import Status
from redisworld.world import Run

_SHOWN = 200
"""Steps, hooks and events shown without --all: a few screens, and the last ones are what one looks for."""


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    noun = add_command(
        commands, "run", None, does="Look at a run or end it: show, output, replay, cancel, terminate, result.",
        example="redisworld run show publish-cat",
    )  # fmt: skip
    verbs = noun.add_subparsers(metavar="VERB", required=True, title="verbs")
    _add_show(verbs)
    _add_output(verbs)
    _add_replay(verbs)
    _add_cancel(verbs)
    _add_terminate(verbs)
    _add_result(verbs)


_OF = ("run_id", "ID", "the run's id")


def _add_show(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "show",
        lambda arguments: asyncio.run(_show(arguments)),
        of=_OF,
        does="Show a run: its row, its steps, its open waits, its hooks and its log.",
        example="redisworld run show publish-cat --json",
    )
    parser.add_argument("--payloads", action="store_true", help="show payloads whole, not shortened")
    parser.add_argument("--all", action="store_true", help=f"all steps, hooks and events, not only the last {_SHOWN}")


def _add_output(verbs: Any) -> None:
    parser = add_verb(verbs, "output", output.output, of=_OF, does=output.DOES, example=output.EXAMPLE)
    output.add_options(parser)


def _add_replay(verbs: Any) -> None:
    parser = add_command(verbs, "replay", replay.replay, does=replay.DOES, example=replay.EXAMPLE)
    replay.add_options(parser)
    add_redis_options(parser)


def _add_cancel(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "cancel",
        lambda arguments: asyncio.run(_end(arguments, terminate=False)),
        of=_OF,
        does="Ask the body of a run to stop; it gets CancelledError, and its clean-up steps run.",
        example="redisworld run cancel publish-cat --reason 'wrong picture'",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")


def _add_terminate(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "terminate",
        lambda arguments: asyncio.run(_end(arguments, terminate=True)),
        of=_OF,
        does="End a run at once, without asking its body; nothing is cleaned up.",
        example="redisworld run terminate publish-cat --yes --reason 'stuck'",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")
    parser.add_argument("--yes", action="store_true", help="needed: it cannot be taken back")


def _add_result(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "result",
        lambda arguments: asyncio.run(_result(arguments)),
        of=_OF,
        does="Wait for the end of a run and print its result as JSON.",
        example="redisworld run result publish-cat --timeout 60s",
    )
    add_option(
        parser,
        "--timeout",
        "timeout",
        "how long to wait (default: for ever)",
        default=None,
        type=duration_ms,
        metavar="DURATION",
    )


async def _show(arguments: argparse.Namespace) -> int:
    async with connected(arguments, create=False) as world:
        story = await read_story(world, arguments.run_id, keep=None if arguments.all else _SHOWN)
    print(as_json(as_object(story)) if arguments.json else as_text(story, whole_payloads=arguments.payloads))
    return 0


async def _end(arguments: argparse.Namespace, *, terminate: bool) -> int:
    if terminate and not arguments.yes:
        raise InvalidInput("terminate ends the run at once and cannot be taken back: add --yes, or use 'run cancel'")
    async with connected(arguments, create=False) as world:
        run: Run[Any] = Run(world, arguments.run_id)
        status = await (run.terminate(arguments.reason) if terminate else run.cancel(arguments.reason))
    if status in (Status.COMPLETED, Status.FAILED):
        raise CommandFailed(f"run {arguments.run_id!r} has ended already: it is {status}")
    if arguments.json:
        print(as_json({"run_id": arguments.run_id, "status": status}))
    else:
        print("cancelled" if status is Status.CANCELLED else "cancellation requested")
    return 0


async def _result(arguments: argparse.Namespace) -> int:
    async with connected(arguments, create=False) as world:
        result = await result_of(Run(world, arguments.run_id), timeout_ms=arguments.timeout)
    answer = {"run_id": arguments.run_id, "status": "completed", "result": result}
    print(as_json(answer if arguments.json else result))
    return 0
