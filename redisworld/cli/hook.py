"""What can be done with one hook from a shell? ``redisworld hook resume`` and ``show``, by its token."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import msgspec

from redisworld.cli.options import add_command, add_verb, connected
from redisworld.cli.plain import as_json
from redisworld.cli.times import iso
from redisworld.errors import InvalidInput


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    noun = add_command(
        commands, "hook", None, does="Look at a hook or hand it a payload: show, resume.",
        example="""redisworld hook resume order:42 '{"by": "kim"}'""",
    )  # fmt: skip
    verbs = noun.add_subparsers(metavar="VERB", required=True, title="verbs")
    _add_resume(verbs)
    _add_show(verbs)


_OF = ("token", "TOKEN", "the token that the hook holds")


def _add_resume(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "resume",
        _resume,
        of=_OF,
        does="Hand a payload to the hook that holds a token and print the id of its run.",
        example="""redisworld hook resume order:42 '{"by": "kim"}' --resume-id mail-7""",
    )
    parser.add_argument("payload", metavar="JSON", nargs="?", default="null", help="the payload (default: null)")
    parser.add_argument("--resume-id", metavar="ID", help="a chosen id; resuming with it again changes nothing")


def _add_show(verbs: Any) -> None:
    add_verb(
        verbs,
        "show",
        lambda arguments: asyncio.run(_show(arguments)),
        of=_OF,
        does="Show the hook that holds a token: its run, its metadata and how many payloads it was handed.",
        example="redisworld hook show order:42 --json",
    )


def _resume(arguments: argparse.Namespace) -> int:
    try:
        payload = json.loads(arguments.payload)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f'the payload is not JSON ({error}): quote it for the shell, like \'{{"by": "kim"}}\' or \'"text"\''
        ) from error
    return asyncio.run(_resumed(arguments, payload))


async def _resumed(arguments: argparse.Namespace, payload: Any) -> int:
    async with connected(arguments, create=False) as world:
        run = await world.resume(arguments.token, payload, resume_id=arguments.resume_id)
    print(as_json({"run_id": run.run_id, "token": arguments.token}) if arguments.json else run.run_id)
    return 0


async def _show(arguments: argparse.Namespace) -> int:
    async with connected(arguments, create=False) as world:
        hook = await world.hook(arguments.token)
        row = await world.row(hook.run_id)
    if arguments.json:
        print(as_json(msgspec.structs.asdict(hook) | {"workflow": row.workflow, "status": row.status}))
        return 0
    facts = (
        ("token", hook.token),
        ("run", f"{hook.run_id}  ({row.workflow}, {row.status})"),
        ("hook", hook.hook_id),
        ("created", iso(hook.created_at)),
        ("metadata", "-" if hook.metadata is None else as_json(hook.metadata)),
        ("received", f"{hook.received} payload" + ("" if hook.received == 1 else "s")),
    )
    print("\n".join(f"{name:<11} {value}" for name, value in facts))
    return 0
