"""What does ``redisworld exporter`` do? It serves the state of a namespace to Prometheus until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import Any

from consumers.exporter import Exporter
from consumers.server import Server
from redisworld.cli import logs
from redisworld.cli.commands import add_command
from redisworld.cli.options import add_redis_options, connected
from redisworld.cli.serving import OFF, add_serving_options
from redisworld.errors import InvalidInput
from redisworld.facts import fact
from redisworld.metrics import exposition, process_registry
from redisworld.world import World, redacted

_MORE = """\
Run one for each namespace. What waits in each queue and since when, timers, dead letters, runs by status, live workers
and the exact counts that the scripts keep are read from Redis at each scrape, also while there is no worker. While
Redis cannot be asked, redisworld_redis_up is 0 and there are no other numbers. It writes nothing but the namespace,
where that is new. A worker does the same with --exporter. Every metric: docs/metrics.md."""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "exporter",
        _exporter,
        does="Serve the state of a namespace to Prometheus until SIGTERM or SIGINT, then exit 0.",
        example="redisworld exporter --url redis://localhost:6379/0 --metrics-port 9464",
    )
    parser.description = f"{parser.description}\n\n{_MORE}"
    add_redis_options(parser)
    add_serving_options(parser)


def _exporter(arguments: argparse.Namespace) -> int:
    if arguments.metrics_port == OFF:
        raise InvalidInput("an exporter without a port does nothing: give --metrics-port one, 0 takes a free one")
    with logs.to_stderr(arguments.log_level, arguments.log_format):
        asyncio.run(_export(arguments))
    return 0


async def _export(arguments: argparse.Namespace) -> None:
    async with connected(arguments, patient=True) as world:
        registry = process_registry()
        with Exporter(world) as exporter:
            registry.register(exporter.collector)
            host, port = arguments.metrics_host, arguments.metrics_port
            with Server(host, port, exposition=lambda: exposition(registry), health=exporter) as server:
                serving = f"/metrics /healthz /readyz on {server.url}"
                fact(logging.INFO, "exporter started", _described(world), serving=serving)
                await _signalled()
                fact(logging.INFO, "exporter stopped")


def _described(world: World) -> dict[str, object]:
    settings = world.settings
    return {"namespace": settings.namespace, "url": redacted(settings.url), "partitions": len(world.partitions)}


async def _signalled() -> None:
    """Return at the first SIGTERM or SIGINT."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    try:
        await signalled.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
