"""What can be done with dead letters from a shell? ``redisworld dead list``, ``show``, ``redrive`` and ``drop``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from redisworld.cli.commands import add_noun, add_verb
from redisworld.cli.letters import as_object, as_text, headline
from redisworld.cli.lists import add_list, print_list
from redisworld.cli.options import OneOf, Parser
from redisworld.cli.plain import as_json, one_line
from redisworld.errors import InvalidInput, LetterNotFound, MalformedMessage, RunGone, RunNotFound
from redisworld.world import World
from redisworld.world.dead import REASONS, Letter

_OF = ("letter", "LETTER", "its name, as 'dead list' shows it")


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    add_noun(
        commands, "dead", (_add_list, _add_show, _add_redrive, _add_drop),
        does="Look at dead letters, send them again or drop them: list, show, redrive, drop.",
        example="redisworld dead redrive 2/1796167499566-0",
        lists=True,
    )  # fmt: skip


def _add_filters(parser: Parser) -> None:
    parser.add_argument("--reason", metavar="WORD", type=OneOf(REASONS), help=f"only of these: {', '.join(REASONS)}")
    parser.add_argument("--run", metavar="ID", help="only letters of this run")
    parser.add_argument("--kind", metavar="KIND", type=OneOf(("step", "workflow", "unknown")),
                        help="only of this kind: step, workflow, unknown")  # fmt: skip


def _add_list(verbs: Any) -> None:
    parser = add_list(
        verbs, "list", _list, things="letters", after="LETTER",
        does="List dead letters: partition after partition, oldest first.",
        example="redisworld dead list --reason unknown_name --limit 20",
    )  # fmt: skip
    _add_filters(parser)


def _add_show(verbs: Any) -> None:
    parser = add_verb(
        verbs, "show", _show, of=_OF,
        does="Show a dead letter: why it is one, and the message it holds.",
        example="redisworld dead show 2/1796167499566-0",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="write the original bytes of the message and nothing else")


def _add_redrive(verbs: Any) -> None:
    _add_for_many(
        add_verb(
            verbs, "redrive", _redrive, prepare=_check_choice,
            does="Send the message of a dead letter again, as new; the letter goes.",
            example="redisworld dead redrive --reason unknown_name",
        )
    )  # fmt: skip


def _add_drop(verbs: Any) -> None:
    parser = add_verb(
        verbs, "drop", _drop, prepare=_check_drop,
        does="Delete dead letters for good, with the messages they hold.",
        example="redisworld dead drop 2/1796167499566-0 --yes",
    )  # fmt: skip
    _add_for_many(parser)
    parser.add_argument("--yes", action="store_true", help="needed: it cannot be taken back")


def _add_for_many(parser: Parser) -> None:
    parser.add_argument("letters", metavar="LETTER", nargs="*", help=_OF[2])
    _add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all letters there are now")


async def _list(world: World, arguments: argparse.Namespace) -> None:
    found: list[Letter] = []
    async for letter in _chosen(world, arguments, after=arguments.after):
        found.append(letter)
        if len(found) > arguments.limit:
            break
    total = await world.dead.count()
    shown = found[: arguments.limit]
    print_list(
        arguments,
        [as_object(letter) for letter in shown],
        ("LETTER", "AT", "REASON", "KIND", "RUN", "NAME", "DELIVERIES"),
        [headline(letter) for letter in shown],
        none="no dead letters" if not total else f"none of the {total} dead letters fits",
        after=shown[-1].name if len(found) > arguments.limit else "",
    )


async def _show(world: World, arguments: argparse.Namespace) -> None:
    letter = await world.dead.show(arguments.letter)
    if arguments.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(letter.body)
    else:
        print(as_json(as_object(letter)) if arguments.json else as_text(letter))


async def _redrive(world: World, arguments: argparse.Namespace) -> int:
    return await _for_each(world, arguments, world.dead.redrive, done="redriven")


async def _drop(world: World, arguments: argparse.Namespace) -> int:
    return await _for_each(world, arguments, world.dead.drop, done="dropped")


def _check_drop(arguments: argparse.Namespace) -> None:
    _check_choice(arguments)
    if not arguments.yes:
        raise InvalidInput(
            "drop deletes messages for good and cannot be taken back: add --yes, or look with 'dead show'"
        )


def _check_choice(arguments: argparse.Namespace) -> None:
    """Raises InvalidInput unless letters are named, or chosen by filters, and not both."""
    by_filter = arguments.all or arguments.reason or arguments.run or arguments.kind
    if bool(arguments.letters) == bool(by_filter):
        raise InvalidInput("name the letters, or choose them with --all, --reason, --run or --kind (one of the two)")


async def _for_each(
    world: World, arguments: argparse.Namespace, act: Callable[[str], Awaitable[str | None]], *, done: str
) -> int:
    """Do it with each letter and tell; 1 if one of them was refused."""
    outcomes: list[dict[str, str]] = []
    async for name in _names(world, arguments):
        try:
            entry = await act(name)
        except (LetterNotFound, RunGone, RunNotFound, MalformedMessage) as error:
            outcome = {"letter": name, "outcome": "refused", "detail": str(error)}
        else:
            outcome = {"letter": name, "outcome": done, "detail": entry or ""}
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
