"""Which values does each argument of a script never take?

Arguments of one name mean the same in every script, but for the exceptions. Items of a batch are named here, those of
a pass in ``include/items.lua``.
"""

from __future__ import annotations

import re
from functools import cache

from tests.scripts.headers import FOLDER

_NO_DIGITS = ("x", "-1", "nan", "1.5")
_TIMES = (*_NO_DIGITS, "9" * 20)
_WORDS = ("a b", "a\nb")
_ENTRIES = ("x", "-1", "a b")

KINDS: dict[str, tuple[str, ...]] = {
    "any": (),
    "digits": ("", *_NO_DIGITS),
    "number": ("", *_TIMES),
    "number?": _TIMES,
    "word": ("", *_WORDS),
    "plain": ("", *_WORDS, "a|b"),
    "plain?": (*_WORDS, "a|b"),
    "entry": ("", *_ENTRIES),
    "entry?": _ENTRIES,
    "stream": ("", "x", "run:r1", "steps a"),
    "choice": ("", "x"),
    "json": ("", "x", "3", '{"a": 1}', "[1]"),
}
"""Kinds of arguments, and values that none of them takes. A ``?`` may be empty."""

_NAMES = {
    "number?": "now started_at start_at",
    "number": "retention limit count bytes from chunk lease ticket deliveries spec replayed_to consumed delay attempts"
    " keep due attempt index length at most",
    "choice": "last may_replay known mode outcome awaited close",
    "plain": "run_id run step hook_id message pass id step_id name workflow group",
    "plain?": "code wake old dead_run dead_hook deployment pin holder",
    "word": "token resume_id",
    "entry": "entry cursor letter",
    "stream": "stream target",
    "json": "changes",
    "any": "chunks consumer state reason detail payload created root digest input body metadata",
}
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}

_EXCEPTIONS = {
    "bury_message.kind": "choice",
    "bury_message.run_id": "plain?",
    "cancel_run.reason": "any",
    "claim_many.attempts": "digits",
    "claim_many.entry": "entry?",
    "claim_many.token": "plain",
    "commit_pass.did.token": "plain",
    "commit_pass.end.kind": "choice",
    "commit_pass.inline.group": "plain?",
    "commit_pass.inline.message": "any",
    "commit_pass.inline.token": "plain",
    "commit_pass.step.group": "plain?",
    "commit_pass.step.message": "any",
    "commit_pass.assign.group": "plain?",
    "commit_pass.attr.id": "plain?",
    "complete_many.cause": "choice",
    "complete_many.entry": "entry?",
    "complete_many.message": "plain?",
    "complete_many.token": "plain",
    "create_event.attr.id": "plain?",
    "create_event.end.kind": "choice",
    "create_event.step.group": "plain?",
    "create_event.step.message": "any",
    "move_message.id": "plain?",
    **{f"move_message.{name}": "any" for name in ("kind", "run_id", "step_id", "name", "spec", "old")},  # a stranger's
    "drop_letter.run_id": "plain?",
    "look_at_runs.cursor": "number",
    "mend_delayed.kind": "choice",
    "redispatch_step.name": "plain",
    "renew_leases.run": "any",  # a stranger's
    "repin_delayed.kind": "choice",
    "repin_delayed.old": "any",
    **{f"redrive_letter.{name}": "any" for name in ("kind", "step_id", "name", "spec")},  # a stranger's
    "resume_hook.hook_id": "plain?",
    "start_many.message": "any",
    "write_output.token": "plain?",
}

ITEMS = {
    "claim_many": "run step token message stream entry attempts may_replay mode name known input",
    "complete_many": "run step token outcome cause message stream entry may_replay payload delay target name body",
    "look_at_runs": "run cursor",
    "recover_run": "stream entry",
    "redispatch_step": "stream entry",
    "renew_leases": "stream entry run",
    "start_many": "run_id workflow deployment pin spec root created message delay start_at",
}
"""The names of what one item of a batch holds."""

RETRY_ONLY = {"cause", "delay", "target", "name"}
"""What counts in a completion only when the step goes back."""


def absurd(argument: str) -> tuple[str, ...]:
    """Values that an argument, named ``script.name`` or ``script.item.name``, never takes."""
    return KINDS[_EXCEPTIONS.get(argument) or _KIND_OF[argument.rpartition(".")[2]]]


def named(argument: str) -> str:
    """What a sentence calls an argument."""
    return argument.rpartition(".")[2]


@cache
def item_fields() -> dict[str, tuple[str, ...]]:
    """What each item of a pass holds, by its word."""
    source = (FOLDER / "include" / "items.lua").read_text()
    found = re.findall(r"^  (?:\['(\w+)'\]|(\w+)) = \{('.*')\},$", source, re.MULTILINE)
    return {a or b: tuple(re.findall(r"'(\w+)'", fields)) for a, b, fields in found} | {"waited": ("id",), "start": ()}
