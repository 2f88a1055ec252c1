"""Does every command of docs/operations.md, in the very situation it is for, show what the page says?

``python -m tests.integration.test_operations_page`` writes the outputs of today into the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
from collections.abc import Iterator

import pytest
import redis

from redisworld.cli import main
from redisworld.spawn import PrivateRedis, private_redis
from tests.integration.cli_process import ROOT, environment
from tests.integration.operations_scenes import SCENES
from tests.integration.pages import Command, sections, shape

PAGE = ROOT / "docs" / "operations.md"
SECTIONS = sections(PAGE.read_text())
ON_THE_PAGE = "redis://localhost:6379/0"


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    with private_redis(args=("--save", "3600 1"), allow_wheel=True) as private:
        yield private


def test_each_section_with_commands_has_its_situation() -> None:
    assert list(SECTIONS) == list(SCENES)
    assert sum(map(len, SECTIONS.values())) >= 18


@pytest.mark.parametrize("heading", SCENES)
def test_each_command_shows_in_its_situation_what_the_page_says(
    server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, heading: str
) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDISWORLD_URL", server.url)

    with _situation(server, heading):
        for command in SECTIONS[heading]:
            assert shape(_any_consumers(_output(command))) == shape(_any_consumers(command.output)), command.line


def _any_consumers(output: str) -> str:
    """Without how many consumers a stream has: Redis 7.2 and later count those that have read nothing yet, too."""
    return re.sub(r"^((?:steps|workflows)\S*(?: +\S+){5} +)\d+$", r"\1some", output, flags=re.MULTILINE)


@contextlib.contextmanager
def _situation(server: PrivateRedis, heading: str) -> Iterator[None]:
    with redis.Redis.from_url(server.url) as raw:
        raw.flushall()
        with SCENES[heading](server.url, raw):
            yield


def _output(command: Command) -> str:
    """What the command prints, on stdout and stderr together, and its exit code where that is not 0."""
    program, *arguments = shlex.split(command.line)
    assert program == "redisworld", f"{command.line}: only commands of ours are run here"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = main(arguments)
    return out.getvalue() + (f"(exit code {code})\n" if code else "")


def _rewritten(server: PrivateRedis) -> str:
    """The page with what its commands print now."""
    page, done = PAGE.read_text(), ""
    os.environ["REDISWORLD_URL"] = server.url
    host = socket.gethostname()[:40]
    for heading, commands in SECTIONS.items():
        with _situation(server, heading):
            for command in commands:
                now = re.sub(r"unix://\S+", ON_THE_PAGE, _output(command)).replace(f"{host}:", "w1:")
                before, page = page.split(f"$ {command.line}\n{command.output}", 1)  # they come in order
                done += f"{before}$ {command.line}\n{now}"
    return done + page


if __name__ == "__main__":
    with private_redis(args=("--save", "3600 1"), allow_wheel=True) as private:
        PAGE.write_text(_rewritten(private))
