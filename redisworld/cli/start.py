"""What does ``redisworld start`` do? It starts a run from JSON arguments, and waits for its result when asked to."""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import datetime
from typing import Any

from redisworld.cli.apps import load_workflow
from redisworld.cli.commands import add_command
from redisworld.cli.fitting import fit
from redisworld.cli.options import add_option, add_redis_options, add_setting, connected, duration_ms
from redisworld.cli.plain import as_json
from redisworld.cli.results import result_of
from redisworld.cli.traces import traced
from redisworld.errors import InvalidInput, RunCancelled, RunFailed
from redisworld.workflows import Workflow


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "start",
        _start,
        does="Start a run of a workflow and print its id.",
        example="""redisworld start app:publish --args '["cat.png"]' --run-id publish-cat --wait --timeout 60s""",
    )
    parser.add_argument("workflow", metavar="MODULE:WORKFLOW", help="a workflow by its attribute or registered name")
    parser.add_argument("--args", metavar="JSON", default="[]", help="positional arguments: a JSON list")
    parser.add_argument("--kwargs", metavar="JSON", default="{}", help="arguments by name: a JSON object")
    parser.add_argument("--run-id", metavar="ID", help="a chosen id; starting it again starts nothing")
    parser.add_argument("--delay", metavar="DURATION", type=duration_ms, help="begin that much later, like 10m")
    parser.add_argument("--at", metavar="TIME", type=_moment, help="begin then: ISO 8601 with a zone")
    add_setting(parser, "--deployment", "deployment", "deployment id to record for the run")
    add_setting(
        parser,
        "--affinity",
        "affinity",
        "keep the run on that deployment",
        action=argparse.BooleanOptionalAction,
    )
    parser.add_argument("--wait", action="store_true", help="wait for the end and print the result as JSON")
    add_option(
        parser,
        "--timeout",
        "timeout",
        "how long --wait waits (default: for ever); the run goes on",
        default=None,
        type=duration_ms,
        metavar="DURATION",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_redis_options(parser)


def _start(arguments: argparse.Namespace) -> int:
    args = _parsed("--args", arguments.args, list)
    kwargs = _parsed("--kwargs", arguments.kwargs, dict)
    workflow = load_workflow(arguments.workflow)
    positional, by_name = fit(workflow, args, kwargs)
    for name in ("run_id", "delay", "at"):
        if name in by_name:  # start() would take it for its own
            raise InvalidInput(f"--kwargs: an argument named {name!r} can only be given by position")
    with traced(None):
        return asyncio.run(_started(arguments, workflow, positional, by_name))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"must be like 2030-01-31T09:00:00+01:00, not {text!r}")
    return moment


def _parsed(option: str, text: str, kind: type[Any]) -> Any:
    wanted = "a list like '[1, \"a\"]'" if kind is list else "an object like '{\"n\": 1}'"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{option} is not JSON ({error}): give {wanted}") from error
    if not isinstance(value, kind):
        raise InvalidInput(f"{option} must be {wanted}, not {text:.80}")
    return value


async def _started(
    arguments: argparse.Namespace, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int:
    async with connected(arguments) as world:
        delay = None if arguments.delay is None else arguments.delay / 1000
        run = await world.start(workflow, *args, run_id=arguments.run_id, delay=delay, at=arguments.at, **kwargs)
        if not arguments.json:
            print(run.run_id, flush=True)
        answer = {"run_id": run.run_id}
        try:
            if arguments.wait:
                answer |= {"status": "completed", "result": await result_of(run, timeout_ms=arguments.timeout)}
                if not arguments.json:
                    print(as_json(answer["result"]))
        except RunFailed as error:
            answer |= {"status": "failed", "code": error.code, "error": str(error.error)}
            raise
        except RunCancelled as error:
            answer |= {"status": "cancelled", "reason": error.reason}
            raise
        finally:  # a run that goes on after the time was over has an id, too
            if arguments.json:
                print(as_json(answer), flush=True)
    return 0
