"""What do all commands have in common? Their help, and for those that look into Redis how one call of them runs.

A file of a noun has ``add_to(commands)``; a verb is one call of ``add_verb`` and the coroutine that it names.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from redisworld.cli.options import Parser, add_redis_options, connected
from redisworld.world import World

Act = Callable[[World, argparse.Namespace], Coroutine[Any, Any, int | None]]
"""What a verb does in the namespace it was given; None is exit code 0."""

AddTo = Callable[[Any], None]
"""Adds a command to what ``add_subparsers`` gave."""


def add_command(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int] | None, *, does: str, example: str,
    **how: Any,
) -> Parser:  # fmt: skip
    """A command. ``does`` is a sentence; ``example`` one or more lines."""
    parser: Parser = commands.add_parser(
        name,
        help=does[0].lower() + does[1:].rstrip("."),
        description=does,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **how,
    )
    if command is not None:
        parser.set_defaults(command=command)
    return parser


def add_noun(
    commands: Any, name: str, verbs: Sequence[AddTo], *, does: str, example: str, also: str = "", lists: bool = False
) -> None:
    """A noun whose verbs follow. ``also`` is its plural, the same word; one that ``lists`` needs no verb for that."""
    noun = add_command(commands, name, None, does=does, example=example, aliases=[also] if also else [])
    noun.default_verb = "list" if lists else ""
    added = noun.add_subparsers(metavar="VERB", required=True, title="verbs")
    for add_to in verbs:
        add_to(added)


def add_verb(
    verbs: Any,
    name: str,
    act: Act,
    *,
    does: str,
    example: str,
    of: tuple[str, str, str] | None = None,
    prepare: Callable[[argparse.Namespace], None] | None = None,
    json: str = "print one JSON object instead",
) -> Parser:
    """A verb, or a command without one, that speaks to Redis.

    ``of``: destination, metavar and help of the one thing it takes. ``prepare`` judges the arguments before Redis is
    asked, and may put there what it made of them. ``json`` is the help of --json.
    """

    def command(arguments: argparse.Namespace) -> int:
        if prepare is not None:
            prepare(arguments)
        return asyncio.run(_acted(act, arguments)) or 0

    parser = add_command(verbs, name, command, does=does, example=example)
    if of is not None:
        destination, metavar, meaning = of
        parser.add_argument(destination, metavar=metavar, help=meaning)
    parser.add_argument("--json", action="store_true", help=json)
    add_redis_options(parser)
    return parser


async def _acted(act: Act, arguments: argparse.Namespace) -> int | None:
    async with connected(arguments, create=False) as world:
        return await act(world, arguments)
