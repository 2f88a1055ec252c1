"""Does docs/cli.md name every option, with its variable or as one that has none?"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from redisworld.cli.program import parser

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
WITHOUT_VARIABLE = PAGE.partition("What belongs to one call only has no variable")[2].partition("\n## ")[0]


def options(of: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Command, option and its help, of this command and all below it."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from options(command, f"{path} {name}".strip())
        elif action.option_strings and action.option_strings[-1] not in ("--help", "--version"):
            yield path, action.option_strings[0], action.help or ""


def test_every_option_stands_on_the_page_with_its_variable_or_among_those_without() -> None:
    """The sizes of a workload are named by the help of each."""
    missing = [
        f"{command}: {option}"
        for command, option, text in options(parser())
        if not command.startswith("bench")
        and (
            f"| `{option}" not in PAGE or f"`{variable[0]}`" not in PAGE
            if (variable := re.findall(r"\[(REDISWORLD_\w+)\]", text))
            else f"`{option}`" not in WITHOUT_VARIABLE
        )
    ]

    assert missing == []


def test_the_page_names_no_option_that_is_not_there() -> None:
    known = {option for _, option, _ in options(parser())} | {"--help", "--version"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE))

    assert {name for name in named if name not in known and name.replace("--no-", "--") not in known} == set()


def test_how_long_to_wait_for_a_result_is_not_how_long_a_bench_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISWORLD_TIMEOUT", "1ms")

    waits = [
        parser().parse_args(words).timeout for words in (["run", "result", "r"], ["start", "a:b"], ["bench", "idle"])
    ]

    assert waits == [1, 1, 300_000]
