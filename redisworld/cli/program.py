"""Which commands are there, and how does one call of the program run?"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable
from importlib import import_module

from redisworld.cli.endings import report
from redisworld.cli.options import Parser
from redisworld.version import VERSION

_COMMANDS = (
    *("worker", "exporter", "start", "run", "steps", "events", "hook", "timers", "dead"),
    *("queues", "workers", "deployments", "top", "doctor", "demo", "bench", "completion"),
)
"""In the order of the help; the file of each has its name."""

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
has to be changed, 130 Ctrl-C
every setting has an environment variable, named in the help of its option; an option wins over its variable
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code. ``argv`` is without the program's name (default: the process's own)."""
    _replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name of a workflow must not end a command on a Latin-1 terminal
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        words = sys.argv[1:] if argv is None else argv
        code = _run(words)
        sys.stdout.flush()  # here, so that a closed pipe is met where it is handled
        return code
    except BaseException as error:
        return report(error)


def _run(words: list[str]) -> int:
    try:
        arguments = parser(_asked(words)).parse_args(words)
    except SystemExit:  # after --help or --version; a usage error is InvalidInput
        return 0
    code: int = arguments.command(arguments)
    return code


def _replace_closed_streams() -> None:
    """What was closed before the start (``>&-``, some supervisors) is None in Python, and its number goes to the next
    file or socket that is opened.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # as long as the process


def _asked(words: list[str]) -> Iterable[str]:
    """The command of these words, so that nothing is imported for any other; all where the help has to name them."""
    return [name for name in words[:1] if name in _COMMANDS] or _COMMANDS


def parser(names: Iterable[str] = _COMMANDS) -> Parser:
    """What the command line takes, with the commands of these names."""
    program = Parser(
        prog="redisworld",
        description="Durable workflows on the Redis you already have.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    program.add_argument("--version", action="version", version=f"redisworld {VERSION or '(not installed)'}")
    commands = program.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for name in names:
        import_module(f"redisworld.cli.{name}").add_to(commands)
    return program
