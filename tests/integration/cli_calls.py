"""How do tests call the command line inside this process?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from redisworld.cli import main


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main([*arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Stdout of a command that succeeds."""
    code, out, err = called(capsys, *arguments)
    assert code == 0, err
    return out


def answer_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The one JSON value of a command that succeeds."""
    return json.loads(answer(capsys, *arguments, "--json"))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of a command that prints nothing else."""
    code, out, err = called(capsys, *arguments)
    assert out == ""
    assert err.startswith("redisworld: error: ")
    assert err.count("\n") == 1, err
    return code, err
