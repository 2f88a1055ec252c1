"""What does ``redisworld bench`` do? It measures one workload, or all, beside a floor of bare Redis commands."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from redisworld import spawn
from redisworld.bench.results import Result, as_object
from redisworld.bench.session import Options, Progress
from redisworld.bench.workloads import (
    fanout,
    hooks,
    idle,
    latency,
    memory,
    replay,
    sequence,
    starts,
    throughput,
    timers,
)
from redisworld.cli import logs
from redisworld.cli.bench_plot import check_plot, plot
from redisworld.cli.bench_report import as_markdown, as_text
from redisworld.cli.commands import add_command
from redisworld.cli.options import Parser, add_option, duration_ms, from_environment, whole
from redisworld.cli.plain import as_json
from redisworld.cli.progress import moving
from redisworld.errors import InvalidInput
from redisworld.world import EMBEDDED_URL

Measure = Callable[..., Coroutine[Any, Any, list[Result]]]

_MANY = 10_000_000


class _Workload(msgspec.Struct, frozen=True):
    """``options``: flag, default, type and help; the flag's name is the parameter of ``measure``."""

    measure: Measure
    does: str
    options: tuple[tuple[str, str, Callable[[str], Any], str], ...]


def _sizes(text: str) -> list[int]:
    """Argument type: whole numbers separated by commas."""
    return [whole(1, 100_000)(part.strip()) for part in text.split(",")]


_WORKLOADS = {
    "fanout": _Workload(
        fanout.measure,
        "Time to the first and the last branch of a fan-out, and what a branch costs Redis.",
        (
            ("--branches", "64,256,1024", _sizes, "branches, several separated by commas"),
            ("--rounds", "15", whole(1, 10_000), "measured runs of each size"),
            ("--concurrency", "8", whole(1, 100_000), "step bodies at once in one worker"),
            ("--body-ms", "1", whole(0, 60_000), "how long a body lasts"),
        ),
    ),
    "sequence": _Workload(
        sequence.measure,
        "Time per step along a run of steps that come one after the other.",
        (
            ("--steps", "1000", whole(20, 300_000), "steps of a run"),
            ("--rounds", "3", whole(1, 10_000), "measured runs"),
        ),
    ),
    "throughput": _Workload(
        throughput.measure,
        "No-op queued steps per second of workers that find all of them waiting.",
        (
            ("--steps", "50000", whole(100, _MANY), "steps in all"),
            ("--concurrency", "64", whole(1, 100_000), "step bodies at once in one worker"),
        ),
    ),
    "latency": _Workload(
        latency.measure,
        "Start call to first body with an idle worker.",
        (("--count", "500", whole(1, _MANY), "runs, one after the other"),),
    ),
    "timers": _Workload(
        timers.measure,
        "How late runs go on after a durable sleep.",
        (
            ("--count", "200", whole(1, _MANY), "sleeps"),
            ("--delay-ms", "1000", whole(1, 3_600_000), "length of a sleep"),
        ),
    ),
    "hooks": _Workload(
        hooks.measure,
        "Resume call to the body that goes on.",
        (("--count", "300", whole(1, 1_000_000), "payloads, one after the other"),),
    ),
    "replay": _Workload(
        replay.measure,
        "A cold replay, per event of the log.",
        (
            ("--events", "10000", whole(30, 900_000), "length of the log, about"),
            ("--rounds", "5", whole(1, 10_000), "measured replays"),
        ),
    ),
    "memory": _Workload(
        memory.measure,
        "What a finished run of five steps weighs in Redis.",
        (("--runs", "10000", whole(100, _MANY), "runs"),),
    ),
    "starts": _Workload(
        starts.measure,
        "Runs that one caller starts per second.",
        (
            ("--count", "10000", whole(1, _MANY), "runs"),
            ("--concurrency", "64", whole(1, 100_000), "start calls at once"),
        ),
    ),
    "idle": _Workload(
        idle.measure,
        "What a worker costs that has nothing to do.",
        (("--seconds", "30", whole(1, 86_400), "how long"),),
    ),
}

_MORE = """\
Times are taken inside the bodies, by one monotonic clock; counts are Redis' own. Without --url each workload has a
private redis-server on a unix socket, without persistence. On a given Redis everything that others do is counted too,
so it should be an idle one; the bench has a namespace of its own there and deletes it. The workers are processes of
this machine. docs/performance.md says how to read the figures.
"""


def add_to(commands: Any) -> None:
    """Add the noun and its workloads."""
    noun = add_command(
        commands, "bench", None, does="Measure a workload beside a floor of bare Redis commands.",
        example="redisworld bench fanout --branches 64,256 --json",
    )  # fmt: skip
    noun.description = f"{noun.description}\n\n{_MORE}"
    names = noun.add_subparsers(metavar="WORKLOAD", required=True, title="workloads")
    for name, workload in _WORKLOADS.items():
        flags = workload.options
        example = " ".join(part for flag, default, *_ in flags[:1] for part in (flag, default))
        parser = add_command(
            names, name, _bench, does=workload.does, example=f"redisworld bench {name} {example} --json"
        )
        for flag, default, kind, text in flags:
            parser.add_argument(flag, default=default, type=kind, metavar="N", help=f"{text} (default: {default})")
        _add_common(parser)
        parser.set_defaults(workload=name)
    parser = add_command(
        names, "all", _bench, does="All workloads with their defaults: some minutes.",
        example="redisworld bench all --markdown > figures.md",
    )  # fmt: skip
    _add_common(parser)
    parser.set_defaults(workload="all")


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--url", default=from_environment("url"), help="Redis URL (default: a private one) [REDISWORLD_URL]"
    )
    add_option(
        parser, "--workers", "workers", "worker processes (default: 1)", default="1", type=whole(1, 64), metavar="N"
    )
    parser.add_argument(
        "--partitions", type=whole(1, 256), metavar="N", help="partitions of the namespace (default: 4)"
    )
    parser.add_argument("--metrics", action="store_true", help="let the workers serve /metrics, which costs them CPU")
    parser.add_argument(
        "--timeout", type=duration_ms, default="5m", metavar="DURATION",
        help="how long one part may take before the bench gives up (default: 5m)",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the figures (extra: redisworld[bench])")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one list of JSON objects instead")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables instead")


def _bench(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    if arguments.plot is not None:
        check_plot(arguments.plot, arguments.workload)  # before minutes go by
    chosen = _WORKLOADS if arguments.workload == "all" else {arguments.workload: _WORKLOADS[arguments.workload]}
    with logs.to_stderr("warning"), moving() as progress:
        results = [
            result
            for name, workload in chosen.items()
            for result in asyncio.run(_measured(arguments, options, name, workload, progress))
        ]
    if arguments.json:
        print(as_json([as_object(result) for result in results]))
    else:
        print(as_markdown(results) if arguments.markdown else as_text(results))
    if arguments.plot is not None:
        plot(results, arguments.plot)
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    url = arguments.url
    if url and url.startswith(EMBEDDED_URL):
        raise InvalidInput(f"{EMBEDDED_URL} lives inside one process, and a bench starts workers: give another --url")
    if not url and spawn.find_server() is None:
        raise InvalidInput("there is no redis-server or valkey-server on PATH: install one, or give --url")
    return Options(
        url=url,
        workers=arguments.workers,
        partitions=arguments.partitions,
        metrics=arguments.metrics,
        timeout_s=arguments.timeout / 1000,
    )


async def _measured(
    arguments: argparse.Namespace, options: Options, name: str, workload: _Workload, progress: Progress
) -> list[Result]:
    parameters = {}
    for flag, default, kind, _ in workload.options:
        parameter = flag.removeprefix("--").replace("-", "_")
        # ``all`` has the options that all share, and the defaults of the rest
        parameters[parameter] = kind(default) if arguments.workload == "all" else getattr(arguments, parameter)
    return await workload.measure(
        options, lambda label, done, total: progress(f"{name}: {label}", done, total), **parameters
    )
