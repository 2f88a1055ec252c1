"""What can be done with deployments from a shell? ``redisworld deployments list`` and ``move``."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.commands import add_noun, add_verb
from redisworld.cli.lists import add_list, print_list
from redisworld.cli.plain import as_json
from redisworld.cli.progress import moving
from redisworld.cli.times import ago
from redisworld.errors import InvalidInput
from redisworld.settings import check_word
from redisworld.world import World
from redisworld.world.deployments import Deployment
from redisworld.world.moving import Move

_MORE = """\
Each run and each message is moved in one call, so a move that was interrupted is given again and goes on. Runs keep
their logs: ask before whether they fit the code that they go to (redisworld run replay). What live workers of FROM hold
they finish, and what comes of it goes to TO; while there is any, the command refuses without --leave-held."""


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    add_noun(
        commands, "deployments", (_add_list, _add_move), lists=True,
        does="Look at deployments, and move runs from one to another: list, move.",
        example="redisworld deployments move v1 v2 --dry-run",
    )  # fmt: skip


def _add_list(verbs: Any) -> None:
    add_list(
        verbs, "list", _list, things="deployments",
        does="List deployments: their open runs and waiting messages, and whether a live worker serves them.",
        example="redisworld deployments",
    )  # fmt: skip


def _add_move(verbs: Any) -> None:
    parser = add_verb(
        verbs, "move", _move, prepare=_check_move, of=("source", "FROM", "the deployment that the runs are of"),
        does="Move the open runs of a deployment, with all messages that wait for its workers, to another one.",
        example="redisworld deployments move v1 v2 --yes",
    )  # fmt: skip
    parser.description = f"{parser.description}\n\n{_MORE}"
    parser.add_argument("to", metavar="TO", nargs="?", default="", help="the deployment they go to")
    parser.add_argument("--unpin", action="store_true", help="instead of TO: to none, so that any worker takes them")
    parser.add_argument("--leave-held", action="store_true", help="also while live workers hold messages of FROM")
    parser.add_argument("--dry-run", action="store_true", help="say what would be moved, and move nothing")
    parser.add_argument("--yes", action="store_true", help="needed: other code goes on with these runs")


async def _list(world: World, arguments: argparse.Namespace) -> None:
    found = await world.deployments.known()
    print_list(
        arguments,
        found,
        ("DEPLOYMENT", "SERVED BY", "OPEN RUNS", "UNREAD", "PENDING", "OLDEST UNREAD", "STREAMS"),
        [_row(deployment) for deployment in found],
        none="no deployments: no open run, no message, no worker",
    )


def _row(found: Deployment) -> tuple[str, ...]:
    served = f"{found.workers} worker{'' if found.workers == 1 else 's'}" if found.served else "nobody"
    return (
        found.deployment or "(none)",
        served,
        str(found.open_runs) + ("+" if found.more_runs else ""),
        str(found.unread),
        str(found.pending),
        ago(found.oldest_unread_ms) if found.unread else "-",
        "its own" if found.pinned else "shared",
    )


def _check_move(arguments: argparse.Namespace) -> None:
    if bool(arguments.to) == arguments.unpin:
        raise InvalidInput("say where the runs go: name TO, or give --unpin (one of the two)")
    for name in filter(None, (arguments.source, arguments.to)):
        check_word(name)
    if not arguments.source or arguments.source == arguments.to:
        raise InvalidInput("FROM and TO must be two deployments")
    if not arguments.yes and not arguments.dry_run:
        raise InvalidInput(
            "move lets other code go on with these runs: add --yes, or look with --dry-run, and with 'run replay' "
            "whether that code fits their logs"
        )


async def _move(world: World, arguments: argparse.Namespace) -> None:
    found = await world.deployments.look(arguments.source, arguments.to)
    if not arguments.dry_run:
        totals = {"runs": found.runs, "delayed": found.delayed, "messages": found.messages}
        with moving() as show:
            found = await world.deployments.move(
                arguments.source,
                arguments.to,
                leave_held=arguments.leave_held,
                tick=lambda what, done: show(what, done, max(done, totals[what], 1)),
            )
    print(as_json(_as_object(found)) if arguments.json else _as_text(found))


def _as_object(found: Move) -> dict[str, Any]:
    return {
        "from": found.deployment,
        "to": found.to,
        "moved": found.done,
        "runs": found.runs,
        "messages": found.messages,
        "delayed": found.delayed,
        "held": found.held,
        "served": found.served,
    }


def _as_text(found: Move) -> str:
    to = f"to {found.to}" if found.to else "to no deployment"
    lines = [
        f"{'moved' if found.done else 'would move'} from {found.deployment} {to}: {_count(found.runs, 'open run')}, "
        f"{_count(found.messages, 'waiting message')}, {_count(found.delayed, 'delayed message')}"
    ]
    if found.held:
        who = ", ".join(f"{name} ({count})" for name, count in sorted(found.held.items()))
        lines.append(f"held by live workers of {found.deployment}, which finish them: {who}")
    if not found.served:
        pinned = f" --deployment {found.to} --affinity" if found.to else ""
        lines.append(f"nobody serves them there yet: redisworld worker MODULE{pinned}")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
