"""What can be done with hooks from a shell? ``redisworld hook list``, ``show``, ``resume``; ``hooks`` is the same."""

from __future__ import annotations

import argparse
import json
from typing import Any

import msgspec

from redisworld.cli import hook_list
from redisworld.cli.commands import add_noun, add_verb
from redisworld.cli.plain import as_json, facts
from redisworld.cli.times import iso
from redisworld.world import World

_OF = ("token", "TOKEN", "the token that the hook holds")


def add_to(commands: Any) -> None:
    """Add the noun and its verbs."""
    add_noun(
        commands, "hook", (hook_list.add_to, _add_show, _add_resume),
        does="Look at hooks or hand one a payload: list, show, resume.",
        example="""redisworld hook resume order:42 '{"by": "kim"}'""",
        also="hooks",
        lists=True,
    )  # fmt: skip


def _add_resume(verbs: Any) -> None:
    parser = add_verb(
        verbs, "resume", _resume, of=_OF,
        does="Hand a payload to the hook that holds a token and print the id of its run.",
        example="""redisworld hook resume order:42 '{"by": "kim"}' --resume-id mail-7""",
    )  # fmt: skip
    parser.add_argument("payload", metavar="JSON", nargs="?", default="null", type=_payload,
                        help="the payload (default: null)")  # fmt: skip
    parser.add_argument("--resume-id", metavar="ID", help="a chosen id; resuming with it again changes nothing")


def _add_show(verbs: Any) -> None:
    add_verb(
        verbs, "show", _show, of=_OF,
        does="Show the hook that holds a token: its run, its metadata and how many payloads it was handed.",
        example="redisworld hook show order:42 --json",
    )  # fmt: skip


def _payload(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f'the payload is not JSON ({error}): quote it for the shell, like \'{{"by": "kim"}}\' or \'"text"\''
        ) from error


async def _resume(world: World, arguments: argparse.Namespace) -> None:
    run = await world.resume(arguments.token, arguments.payload, resume_id=arguments.resume_id)
    print(as_json({"run_id": run.run_id, "token": arguments.token}) if arguments.json else run.run_id)


async def _show(world: World, arguments: argparse.Namespace) -> None:
    hook = await world.hook(arguments.token)
    row = await world.row(hook.run_id)
    if arguments.json:
        print(as_json(msgspec.structs.asdict(hook) | {"workflow": row.workflow, "status": row.status}))
        return
    print(
        facts(
            ("token", hook.token),
            ("run", f"{hook.run_id}  ({row.workflow}, {row.status})"),
            ("hook", hook.hook_id),
            ("created", iso(hook.created_at)),
            ("metadata", "-" if hook.metadata is None else as_json(hook.metadata)),
            ("received", f"{hook.received} payload" + ("" if hook.received == 1 else "s")),
        )
    )
