"""With which line and which exit code does a command end that did not succeed?"""

from __future__ import annotations

import errno
import os
import sys

from redisworld.cli.plain import one_line
from redisworld.errors import InvalidInput, NamespaceMismatch, RedisworldError, ResumeConflict, RunConflict
from redisworld.retries import leaves
from redisworld.world.refusals import told

FAILED = 1
CHANGE_THE_COMMAND = 2
"""Repeating it will never help: an argument, an option or a setting has to be another one."""
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

_LONGEST_LINE = 2_000
_NEVER_WORKS = (InvalidInput, NamespaceMismatch, RunConflict, ResumeConflict)


class CommandFailed(RedisworldError):
    """What a command was asked for did not happen, and no error of the library says so."""


def report(error: BaseException) -> int:
    """Print the one line of an expected error and give its exit code; anything else is raised again."""
    causes = list(leaves(error))
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if any(isinstance(cause, BrokenPipeError) for cause in causes):
        _drop_stdout()  # the reader (head, less) has gone
        return FAILED
    if any(isinstance(cause, OSError) and cause.errno == errno.ENOSPC for cause in causes):
        print("redisworld: error: cannot write the answer: no space left on the device", file=sys.stderr)
        _drop_stdout()
        return FAILED
    if (line := _line_of(causes)) is None:
        raise error
    print(f"redisworld: error: {one_line(line, _LONGEST_LINE)}", file=sys.stderr)
    return CHANGE_THE_COMMAND if isinstance(causes[0], _NEVER_WORKS) else FAILED


def _line_of(causes: list[BaseException]) -> str | None:
    """The first of them in words; None where one of them is none that is expected."""
    lines = [str(cause) if isinstance(cause, RedisworldError) else told(cause) for cause in causes]
    return None if None in lines else lines[0]


def _drop_stdout() -> None:
    """Python would complain once more when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
