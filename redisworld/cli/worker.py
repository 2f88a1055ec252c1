"""What does ``redisworld worker`` do? It runs the workflows and steps of an application until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from consumers.exporter import Exporter
from consumers.server import Server
from consumers.signals import ending_at_sigterm, run_until_signalled
from consumers.timekeeper import Timekeeper
from consumers.worker import Worker
from redisworld.cli import event_loop, logs
from redisworld.cli.apps import load_app
from redisworld.cli.commands import add_command
from redisworld.cli.left_threads import end_without_them
from redisworld.cli.options import (
    Parser,
    add_redis_options,
    add_setting,
    choice,
    connected,
    duration_ms,
    flag,
    from_environment,
    whole,
)
from redisworld.cli.serving import OFF, add_serving_options
from redisworld.cli.traces import traced
from redisworld.errors import InvalidInput
from redisworld.facts import fact
from redisworld.metrics import Metrics
from redisworld.observe import observing, tracer
from redisworld.replay import install
from redisworld.workflows import Workflows
from redisworld.world import World, redacted


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "worker",
        _worker,
        does="Run the workflows and steps of an application until SIGTERM or SIGINT, then drain and exit 0.",
        example="redisworld worker app:wf --url redis://localhost:6379/0 --concurrency 16 --log-format json",
    )
    parser.add_argument(
        "app", metavar="MODULE[:ATTRIBUTE]", nargs="?", help="the Workflows object; the attribute is wf by default"
    )
    parser.add_argument(
        "--timers-only",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="take no message and need no application: promote what is due, reap finished runs, recover lost wakes "
        "[REDISWORLD_TIMERS_ONLY]",
    )
    add_redis_options(parser)
    _add_work_options(parser)
    parser.add_argument(
        "--exporter",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="serve the state of the namespace among the metrics, as 'redisworld exporter' does [REDISWORLD_EXPORTER]",
    )
    parser.add_argument(
        "--uvloop",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run on uvloop, which takes less CPU (default: where it is installed) [REDISWORLD_UVLOOP]",
    )
    parser.add_argument(
        "--tracing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="tell runs as OpenTelemetry spans (default: if the process has a tracer provider) [REDISWORLD_TRACING]",
    )
    add_serving_options(parser)


def _add_work_options(parser: Parser) -> None:
    positive = whole(1, 100_000)
    add_setting(parser, "--concurrency", "concurrency", "step bodies at once (default: 64)", type=positive)
    parser.add_argument(
        "--queue",
        metavar="NAME",
        action="append",
        help="a named queue to serve besides the default one; may be repeated, or hold several separated by commas "
        "(default: all the application names) [REDISWORLD_QUEUE]",
    )
    add_setting(
        parser, "--lease", "lease_ms", "how long a delivery is held without renewal (default: 30s)", type=duration_ms
    )
    add_setting(parser, "--grace", "grace_ms", "how long a drain waits for bodies (default: 25s)", type=duration_ms)
    add_setting(parser, "--deployment", "deployment", "deployment id of this code")
    add_setting(
        parser,
        "--affinity",
        "affinity",
        "keep runs on the deployment that started them",
        action=argparse.BooleanOptionalAction,
    )


@ending_at_sigterm()
def _worker(arguments: argparse.Namespace) -> int:
    arguments.exporter = flag(arguments.exporter, "exporter")
    if flag(arguments.timers_only, "timers_only"):
        return _timekeeper(arguments)
    if not arguments.app:
        raise InvalidInput("which application? Name its module, or give --timers-only for a worker without one")
    uvloop, tracing = choice(arguments.uvloop, "uvloop"), choice(arguments.tracing, "tracing")
    _check_exporter(arguments)
    with logs.to_stderr(arguments.log_level, arguments.log_format):
        install()  # before the application captures what is replaced, by name or in C
        app = load_app(arguments.app)
        queues = _queues(arguments.queue, app)
        with traced(tracing):
            abandoned = event_loop.run(lambda: _work(arguments, app, queues), uvloop=uvloop)
        if abandoned:
            fact(logging.WARNING, "ending without bodies that run in threads", bodies=abandoned)
            logging.shutdown()
            os._exit(0)  # the interpreter would wait for those threads

    def tell(threads: list[str]) -> None:
        with logs.to_stderr(arguments.log_level, arguments.log_format):
            fact(logging.WARNING, "ending without threads that steps have left behind", threads=",".join(threads))

    end_without_them(tell)
    return 0


def _timekeeper(arguments: argparse.Namespace) -> int:
    if arguments.app or arguments.queue:
        raise InvalidInput("--timers-only takes no message of any application: leave out the module and --queue")
    _check_exporter(arguments)
    with logs.to_stderr(arguments.log_level, arguments.log_format):
        event_loop.run(lambda: _keep_time(arguments), uvloop=choice(arguments.uvloop, "uvloop"))
    return 0


def _check_exporter(arguments: argparse.Namespace) -> None:
    if arguments.exporter and arguments.metrics_port == OFF:
        raise InvalidInput("--exporter serves its numbers among the metrics, and --metrics-port is off")


def _queues(asked: list[str] | None, app: Workflows) -> list[str]:
    """The named queues to serve; all where none was asked for. Raises InvalidInput for one that no step uses."""
    known = {step.queue for step in app.steps.values()} - {""}
    texts = asked or list(filter(None, [from_environment("queue")]))
    named = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if texts and not named:
        raise InvalidInput(
            f"--queue {','.join(texts)!r} names no queue: leave it out for all that the application names"
        )
    if unknown := sorted(set(named) - known):
        has = f"its queues are {', '.join(sorted(known))}" if known else "it has no named queues"
        raise InvalidInput(f"no step of the application uses queue {', '.join(map(repr, unknown))}; {has}")
    return sorted(set(named) or known)


async def _work(arguments: argparse.Namespace, app: Workflows, queues: list[str]) -> int:
    """Work until a signal; how many threads are left behind."""
    # Redis and its workers are often restarted together; a wrong URL still ends the process, and says so
    async with connected(arguments, patient=True) as world:
        worker = Worker(world, app, queues=queues)
        with _serving(arguments, world, worker, app) as serving:
            fact(logging.INFO, "worker", _described(world, queues), serving=serving)
            await run_until_signalled(worker)
        return worker.abandoned


async def _keep_time(arguments: argparse.Namespace) -> None:
    """Work without an application until a signal."""
    async with connected(arguments, patient=True) as world:
        timekeeper = Timekeeper(world)
        with _serving(arguments, world, timekeeper, Workflows()) as serving:
            fact(logging.INFO, "worker", _described(world, None), serving=serving)
            await run_until_signalled(timekeeper)


@contextmanager
def _serving(arguments: argparse.Namespace, world: World, worker: Worker | Timekeeper, app: Workflows) -> Iterator[str]:
    """Serve metrics and health while the block runs; where, for people."""
    with ExitStack() as stack:
        serving = "no metrics"
        if arguments.metrics_port != OFF:
            metrics = Metrics(workflows=app.workflows, steps=app.steps)
            stack.enter_context(observing(metrics.observers))
            health = worker.health
            metrics.watch(
                ready=lambda: health.ready() is None,
                silences=health.silences,
                connections=world.connection.connections,
            )
            if arguments.exporter:
                metrics.registry.register(stack.enter_context(Exporter(world)).collector)
            host, port = arguments.metrics_host, arguments.metrics_port
            server = stack.enter_context(Server(host, port, exposition=metrics.exposition, health=health))
            serving = f"/metrics /healthz /readyz on {server.url}"
        yield serving


def _described(world: World, queues: Iterable[str] | None) -> dict[str, object]:
    """The facts an operator looks for first. ``queues`` are None for a worker that takes no message."""
    settings, partition = world.settings, world.partitions[0]
    pins = ["", settings.deployment] if settings.affinity else [""]
    keys = [partition.workflows(pin) for pin in pins if queues is not None]
    keys += [partition.steps(queue, pin) for pin in pins if queues is not None for queue in ("", *queues)]
    streams = ",".join(partition.short(key) for key in keys) or "none, timers only"
    return {
        "consumer": world.consumer,
        "namespace": settings.namespace,
        "url": redacted(settings.url),
        "partitions": len(world.partitions),
        "streams": streams,
        "concurrency": settings.concurrency if queues is not None else 0,
        "tracing": "off" if tracer() is None else "on",
    }
