"""Which commands are there, and how does one call of the program run?"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version

from redisworld.cli import (
    bench,
    completion,
    dead,
    demo,
    deployments,
    doctor,
    events,
    exporter,
    hook,
    queues,
    run,
    start,
    steps,
    timers,
    top,
    worker,
    workers,
)
from redisworld.cli.endings import report
from redisworld.cli.options import Parser

_EXAMPLES = """\
examples:
  redisworld demo
  redisworld worker app:wf --url redis://localhost:6379/0
  redisworld start app:publish --args '["cat.png"]' --wait
  redisworld run list --status open
  redisworld run why publish-cat
  redisworld hook resume order:42 '{"by": "kim"}'
  redisworld dead list
  redisworld top
  redisworld doctor
  redisworld bench fanout --branches 64,256

exit codes: 0 success, 1 it failed (run failed, Redis unreachable, no such run, doctor found something), 2 the command
has to be changed
every setting has an environment variable, named in the help of its option; an option wins over its variable
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code. ``argv`` is without the program's name (default: the process's own)."""
    try:
        arguments = parser().parse_args(argv)
        code: int = arguments.command(arguments)
        sys.stdout.flush()  # here, so that a closed pipe is met where it is handled
        return code
    except SystemExit as shown:  # argparse, after --help and --version
        return int(shown.code or 0)
    except BaseException as error:
        return report(error)


def parser() -> Parser:
    """What the command line takes."""
    program = Parser(
        prog="redisworld",
        description="Durable workflows on the Redis you already have.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    program.add_argument("--version", action="version", version=f"redisworld {_version()}")
    commands = program.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for noun in (
        *(worker, exporter, start, run, steps, events, hook, timers, dead),
        *(queues, workers, deployments, top, doctor),
    ):
        noun.add_to(commands)
    for noun in (demo, bench):
        noun.add_to(commands)
    completion.add_to(commands, program=parser)
    return program


def _version() -> str:
    try:
        return version("redisworld")
    except PackageNotFoundError:  # a checkout on the path, never installed
        return "(not installed)"
