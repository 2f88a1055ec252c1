"""How are options declared, and which environment variable stands in for each?

Options named like a field of Settings are left to ``Settings.from_env``; the few that only the command line has
take their variable here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from redisworld.durations import parse_ms
from redisworld.errors import InvalidInput
from redisworld.settings import Settings
from redisworld.world import EMBEDDED_URL, World


class Parser(argparse.ArgumentParser):
    """Tells a usage error as InvalidInput, so that it ends like every other bad input: one line, exit code 2."""

    default_verb = ""
    """Of a noun: what it does when no verb is given."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it, with the default verb in front of options that no verb leads.

        What nobody knows is told by the parser of the command, whose help says what it takes.
        """
        if self.default_verb and (not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))):
            args = [self.default_verb, *(args or ())]
        found, more = super().parse_known_args(args, namespace)
        if more:
            self.error(f"unrecognized arguments: {' '.join(more)}")
        return found, more

    def error(self, message: str) -> NoReturn:
        """Raise InvalidInput."""
        raise InvalidInput(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does it, which keeps to itself that the help could not be written."""
        print(message, end="", file=file)


def add_setting(parser: Parser, flag: str, field: str, text: str, **how: Any) -> None:
    """An option for a field of Settings; without it the field's variable counts, then its default."""
    if "action" not in how:
        how.setdefault("metavar", field.removesuffix("_ms").upper())
    parser.add_argument(flag, dest=field, help=f"{text} [{variable(field)}]", default=None, **how)


def add_option(parser: Parser, flag: str, name: str, text: str, *, default: str | None, **how: Any) -> None:
    """An option that only the command line has, with a variable of its own."""
    parser.add_argument(flag, help=f"{text} [{variable(name)}]", default=from_environment(name) or default, **how)


def add_redis_options(parser: Parser, *, url: str = "redis://localhost:6379/0", namespace: str = "default") -> None:
    """The options of everything that talks to Redis; ``url`` and ``namespace`` are the defaults help tells."""
    add_setting(parser, "--url", "url", f"Redis URL (default: {url})")
    add_setting(parser, "--namespace", "namespace", f"namespace of the runs (default: {namespace})")
    add_setting(parser, "--partitions", "partitions", "partition count the namespace must have", type=whole(1, 256))


def variable(name: str) -> str:
    """The environment variable of a setting or option."""
    return f"REDISWORLD_{name.upper()}"


def from_environment(name: str) -> str | None:
    """The variable's value; an empty one counts as absent, as in Settings."""
    return os.environ.get(variable(name)) or None


def flag(given: bool | None, name: str) -> bool:
    """An option that is on or off: what was given, else its variable, else off. Raises InvalidInput."""
    return bool(choice(given, name))


def choice(given: bool | None, name: str) -> bool | None:
    """The same, None where neither is there. Raises InvalidInput."""
    if given is not None:
        return given
    if (text := (from_environment(name) or "").lower()) == "":
        return None
    if text not in ("true", "1", "false", "0"):
        raise InvalidInput(f"environment variable {variable(name)}={text!r}: must be true, 1, false or 0")
    return text in ("true", "1")


def settings_of(arguments: argparse.Namespace, **overrides: Any) -> Settings:
    """The settings a command was given: options, then variables, then defaults."""
    given = {name: value for name, value in vars(arguments).items() if name in Settings.__struct_fields__}
    return Settings.from_env(**(given | overrides))


@asynccontextmanager
async def connected(
    arguments: argparse.Namespace, *, create: bool = True, patient: bool = False
) -> AsyncIterator[World]:
    """The namespace a command was given. Raises InvalidInput for the embedded Redis, which ends with the command.

    Without ``create`` a namespace that does not exist is NamespaceNotFound, not made: a look must not write. A
    ``patient`` command waits ``retry_redis_ms`` for a Redis that is down.
    """
    settings = settings_of(arguments)
    if settings.url.startswith(EMBEDDED_URL):
        raise InvalidInput(
            f"{EMBEDDED_URL} lives inside one process and nobody else can reach it: "
            "give the URL of a Redis with --url, or try 'redisworld demo'"
        )
    patience_ms = settings.retry_redis_ms if patient else 0
    async with World.connect(settings=settings, create=create, patience_ms=patience_ms) as world:
        yield world


def duration_ms(text: str) -> int:
    """Argument type: a duration like ``30s``."""
    try:
        return parse_ms(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def whole(least: int, most: int) -> Callable[[str], int]:
    """Argument type: a whole number within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, not {text!r}")
        return number

    return read


class OneOf:
    """Argument type: one of some words. Unlike ``choices`` it also judges what a variable says."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def __call__(self, text: str) -> str:
        """The word, whatever its case."""
        if text.lower() not in self.words:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(self.words)}, not {text!r}")
        return text.lower()
