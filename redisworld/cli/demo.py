"""What does ``redisworld demo`` do? It runs the demo application in this process and tells what that took."""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections import Counter
from typing import Any

import anyio
import anyio.abc

from consumers.worker import Worker
from redisworld import demo as app
from redisworld.cli import logs
from redisworld.cli.commands import add_command
from redisworld.cli.demo_redis import Chosen, chosen_redis
from redisworld.cli.demo_report import Report, as_text
from redisworld.cli.endings import CommandFailed, report
from redisworld.cli.options import add_option, add_redis_options, whole
from redisworld.cli.plain import as_json
from redisworld.cli.progress import bar
from redisworld.cli.tally import Tally
from redisworld.errors import RunUnsuccessful
from redisworld.events import EventKind
from redisworld.observe import Observation, RedisCalled, observing
from redisworld.world import Run, World

_WARM_UP_S = 2.0


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "demo",
        _demo,
        does="Run an example workflow in this process and show what it took. Without --url it uses a private "
        "redis-server, and where there is none an embedded Redis.",
        example="redisworld demo --branches 256 --json",
    )
    add_option(
        parser,
        "--branches",
        "branches",
        "pictures made at once (default: 64)",
        default="64",
        type=whole(1, 100_000),
        metavar="N",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_redis_options(parser, url="a private one", namespace="demo")


def _demo(arguments: argparse.Namespace) -> int:
    # Warnings only: the retries are meant to happen, and their lines would break the bar.
    with logs.to_stderr("warning"), chosen_redis(arguments) as chosen:
        made = asyncio.run(_measured(chosen, arguments.branches, in_json=arguments.json))
    return 0 if made.error is None else report(CommandFailed(made.error))


async def _measured(chosen: Chosen, branches: int, *, in_json: bool) -> Report:
    """Run the workflow, and print the report while the worker drains."""
    async with World.connect(settings=chosen.settings) as world:
        worker = Worker(world, app.wf)
        async with anyio.create_task_group() as tasks:
            await _begin_work(tasks, worker)
            made = await _run(world, chosen, branches)
            print(as_json(made) if in_json else as_text(made, _hints(world, chosen, made.run_id)), flush=True)
            worker.stop()
    return made


async def _begin_work(tasks: anyio.abc.TaskGroup, worker: Worker) -> None:
    """Start the worker; return when its loops run, so that its own start is not measured."""
    looping = anyio.Event()

    def listen(seen: Observation) -> None:
        if isinstance(seen, RedisCalled) and seen.op == "promote_due":
            looping.set()

    with observing(listen), anyio.move_on_after(_WARM_UP_S):
        tasks.start_soon(worker.run)
        await looping.wait()


async def _run(world: World, chosen: Chosen, branches: int) -> Report:
    run_id = f"demo-{secrets.token_hex(6)}"
    with bar("thumbnails", branches) as shown:

        def redraw(tally: Tally) -> None:
            shown.show(tally.branches_done, f"{tally.retries} retries")

        tally = Tally(run_id, branch_step=app.thumbnail.name, on_change=redraw)
        with observing(tally.observe):
            tally.begin()
            run = await world.start(app.contact_prints, branches, run_id=run_id)
            result, error = await _outcome(run)
            total_s, redis_calls = tally.elapsed(), tally.redis_calls
    return Report(
        redis=chosen.kind,
        server=chosen.server,
        namespace=chosen.settings.namespace,
        run_id=run_id,
        status=await run.status(),
        branches=branches,
        ttfs_ms=_ms(tally.first_step_s),
        ttls_ms=_ms(tally.last_step_s),
        total_ms=_ms(total_s),
        prologue=dict(tally.prologue),
        lazy_run_fetches=tally.lazy_run_fetches,
        inline_steps=tally.inline_steps,
        queued_steps_started=tally.queued_steps_started,
        step_bodies=tally.step_bodies,
        retries=tally.retries,
        redis_commands=redis_calls,
        commands_per_step=round(redis_calls / (branches + 1), 2),
        recorded=await _recorded(run),
        result=result,
        error=error,
    )


async def _outcome(run: Run[Any]) -> tuple[Any, str | None]:
    try:
        return await run.result(), None
    except RunUnsuccessful as error:
        return None, str(error)


async def _recorded(run: Run[Any]) -> dict[str, int]:
    """Outcomes as the log has them: what was recorded, not what this process believes."""
    kinds = Counter([event.kind async for event in run.events()])
    return {"completed": kinds[EventKind.STEP_COMPLETED], "failed": kinds[EventKind.STEP_FAILED]}


def _hints(world: World, chosen: Chosen, run_id: str) -> list[str]:
    """The commands to look inside the run, where its Redis outlives this process."""
    if chosen.redis_cli is None:
        return []
    partition = world.partition(run_id)
    return [
        f"{chosen.redis_cli} HGETALL '{partition.run(run_id)}'",
        f"{chosen.redis_cli} LRANGE '{partition.log(run_id)}' 0 9",
        f"{chosen.redis_cli} XINFO GROUPS '{partition.steps()}'",
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
