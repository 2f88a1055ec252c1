"""What can be done with dead letters from a shell? ``redisworld dead list``, ``show``, ``redrive`` and ``drop``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from redisworld.cli.letters import as_object, as_text, headline
from redisworld.cli.options import Parser, add_command, add_redis_options, add_verb, connected, one_of, whole
from redisworld.cli.plain import as_json, one_line, table
from redisworld.errors import InvalidInput, LetterNotFound, MalformedMessage, RunGone, RunNotFound
from redisworld.world import World
from redisworld.world.dead import REASONS, Letter

_SHOWN = 50


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    noun = add_command(
        commands, "dead", None, does="Look at dead letters, send them again or drop them: list, show, redrive, drop.",
        example="redisworld dead redrive 2/1796167499566-0",
    )  # fmt: skip
    verbs = noun.add_subparsers(metavar="VERB", required=True, title="verbs")
    _add_list(verbs)
    _add_show(verbs)
    _add_redrive(verbs)
    _add_drop(verbs)


_OF = ("letter", "LETTER", "its name, as 'dead list' shows it")


def _add_filters(parser: Parser) -> None:
    parser.add_argument("--reason", metavar="WORD", type=one_of(*REASONS), help=f"only of these: {', '.join(REASONS)}")
    parser.add_argument("--run", metavar="ID", help="only letters of this run")
    parser.add_argument("--kind", metavar="KIND", type=one_of("step", "workflow", "unknown"),
                        help="only of this kind: step, workflow, unknown")  # fmt: skip


def _add_list(verbs: Any) -> None:
    parser = add_command(
        verbs, "list", lambda arguments: asyncio.run(_list(arguments)),
        does="List dead letters: partition after partition, oldest first.",
        example="redisworld dead list --reason unknown_name --limit 20",
    )  # fmt: skip
    _add_filters(parser)
    parser.add_argument("--limit", metavar="N", type=whole(1, 100_000), default=_SHOWN,
                        help=f"letters at most (default: {_SHOWN})")  # fmt: skip
    parser.add_argument("--after", metavar="LETTER", default="", help="go on behind this letter")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_redis_options(parser)


def _add_show(verbs: Any) -> None:
    parser = add_verb(
        verbs, "show", lambda arguments: asyncio.run(_show(arguments)), of=_OF,
        does="Show a dead letter: why it is one, and the message it holds.",
        example="redisworld dead show 2/1796167499566-0",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="write the original bytes of the message and nothing else")


def _add_redrive(verbs: Any) -> None:
    parser = _add_for_many(
        verbs, "redrive", lambda arguments: asyncio.run(_redrive(arguments)),
        does="Send the message of a dead letter again, as new; the letter goes.",
        example="redisworld dead redrive --reason unknown_name",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="all letters there are now")


def _add_drop(verbs: Any) -> None:
    parser = _add_for_many(
        verbs, "drop", lambda arguments: asyncio.run(_drop(arguments)),
        does="Delete dead letters for good, with the messages they hold.",
        example="redisworld dead drop 2/1796167499566-0 --yes",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="all letters there are now")
    parser.add_argument("--yes", action="store_true", help="needed: it cannot be taken back")


def _add_for_many(verbs: Any, name: str, command: Callable[[argparse.Namespace], int], **told: str) -> Parser:
    parser = add_command(verbs, name, command, does=told["does"], example=told["example"])
    parser.add_argument("letters", metavar="LETTER", nargs="*", help=_OF[2])
    _add_filters(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_redis_options(parser)
    return parser


async def _list(arguments: argparse.Namespace) -> int:
    found: list[Letter] = []
    async with connected(arguments, create=False) as world:
        async for letter in _chosen(world, arguments, after=arguments.after):
            found.append(letter)
            if len(found) > arguments.limit:
                break
        total = await world.dead.count()
    shown, more = found[: arguments.limit], len(found) > arguments.limit
    if arguments.json:
        after = shown[-1].name if more else None
        print(as_json({"letters": [as_object(letter) for letter in shown], "total": total, "next": after}))
        return 0
    if not shown:
        print("no dead letters" if not total else f"none of the {total} dead letters fits")
        return 0
    print(
        table(("LETTER", "AT", "REASON", "KIND", "RUN", "NAME", "DELIVERIES"), [headline(letter) for letter in shown])
    )
    if more:
        print(f"(more: --after {shown[-1].name})")
    return 0


async def _show(arguments: argparse.Namespace) -> int:
    async with connected(arguments, create=False) as world:
        letter = await world.dead.show(arguments.letter)
    if arguments.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(letter.body)
        return 0
    print(as_json(as_object(letter)) if arguments.json else as_text(letter))
    return 0


async def _redrive(arguments: argparse.Namespace) -> int:
    _check_choice(arguments, "redrive")

    async def redrive(world: World, name: str) -> str:
        return await world.dead.redrive(name)

    return await _for_each(arguments, redrive, done="redriven")


async def _drop(arguments: argparse.Namespace) -> int:
    _check_choice(arguments, "drop")
    if not arguments.yes:
        raise InvalidInput(
            "drop deletes messages for good and cannot be taken back: add --yes, or look with 'dead show'"
        )

    async def drop(world: World, name: str) -> str:
        await world.dead.drop(name)
        return ""

    return await _for_each(arguments, drop, done="dropped")


def _check_choice(arguments: argparse.Namespace, verb: str) -> None:
    """Raises InvalidInput unless letters are named, or chosen by filters, and not both."""
    by_filter = arguments.all or arguments.reason or arguments.run or arguments.kind
    if bool(arguments.letters) == bool(by_filter):
        raise InvalidInput(f"name the letters to {verb}, or choose them with --all, --reason, --run or --kind")


async def _for_each(arguments: argparse.Namespace, act: Callable[[World, str], Awaitable[str]], *, done: str) -> int:
    """Do it with each letter and tell; 1 if one of them was refused."""
    outcomes: list[dict[str, str]] = []
    async with connected(arguments, create=False) as world:
        async for name in _names(world, arguments):
            try:
                entry = await act(world, name)
            except (LetterNotFound, RunGone, RunNotFound, MalformedMessage) as error:
                outcome = {"letter": name, "outcome": "refused", "detail": str(error)}
            else:
                outcome = {"letter": name, "outcome": done, "detail": entry}
            outcomes.append(outcome)
            if not arguments.json:
                refused = outcome["outcome"] == "refused"
                text = f"{name}  {outcome['outcome']}" + (f"  {one_line(outcome['detail'])}" if refused else "")
                print(text, file=sys.stderr if refused else sys.stdout)
    refusals = sum(outcome["outcome"] == "refused" for outcome in outcomes)
    if arguments.json:
        print(as_json({"letters": outcomes, done: len(outcomes) - refusals, "refused": refusals}))
    elif not outcomes:
        print("no dead letter fits")
    return 1 if refusals else 0


async def _names(world: World, arguments: argparse.Namespace) -> AsyncIterator[str]:
    for name in arguments.letters:
        yield name
    if not arguments.letters:
        async for letter in _chosen(world, arguments):
            yield letter.name


def _chosen(world: World, arguments: argparse.Namespace, *, after: str = "") -> AsyncIterator[Letter]:
    return world.dead.letters(
        reason=arguments.reason or "", run_id=arguments.run or "", kind=arguments.kind or "", after=after
    )
