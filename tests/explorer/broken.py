"""What would the scripts be like without one of their fences? Each entry takes one away.

A snippet that is not found exactly once in a script fails loudly: the script has changed, and its fixture must too.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from redisworld import scripts
from redisworld.scripts import Script


class Broken(NamedTuple):
    """A fence that is not there, and the scenario in which that shows."""

    name: str
    scenario: str
    changes: tuple[tuple[str, str, str], ...]
    """Script, snippet, and what stands there instead."""

    def scripts(self) -> dict[str, Script]:
        """All scripts, without the fence. Raises LookupError where a snippet is not found exactly once."""
        found = {name: scripts.load(name) for name in scripts.names()}
        for name, snippet, instead in self.changes:
            found[name] = _changed(found[name], snippet, instead)
        return found


def _changed(script: Script, snippet: str, instead: str) -> Script:
    if script.text.count(snippet) != 1:
        raise LookupError(f"{script.name} has {script.text.count(snippet)} times, not once: {snippet!r}")
    text = script.text.replace(snippet, instead)
    return msgspec.structs.replace(
        script, text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    )


_OBSERVERS = ("claim_many", "complete_many", "promote_due", "cancel_run")


def _everywhere(names: tuple[str, ...], snippet: str, instead: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((name, snippet, instead) for name in names)


BROKEN = (
    Broken(
        "a claim that does not look whether the run has ended",
        "gather2 queued, terminate",
        (
            (
                "claim_many",
                "  if run.terminal then\n    settle_if_held(stream, entry, consumer)\n    return {'gone'",
                "  if false then\n    settle_if_held(stream, entry, consumer)\n    return {'gone'",
            ),
        ),
    ),
    Broken(
        "a claim that does not see that the skipped step's message is responsible",
        "sequence queued",
        (
            (
                "claim_many",
                "if continues(run, message, stream, entry, consumer) then return {'skipped', 'responsible', ''} end",
                "",
            ),
        ),
    ),
    Broken(
        "a claim that takes an attempt away from whoever works on it",
        "retry queued",
        (
            (
                "claim_many",
                "if name == '' or (step.message == '' and step.id or step.message) ~= message then return true end",
                "",
            ),
            ("claim_many", "return step.entry ~= name and entry_lives(step.entry)", "return false"),
        ),
    ),
    Broken(
        "an owner that claims a step which has gone to the queue",
        "retry inline",
        (("claim_many", "if mode == 'owned' and redis.call(", "if false and redis.call("),),
    ),
    Broken(
        "a completion that does not look at the token",
        "sequence queued",
        (("complete_many", "if step.token ~= token then return {'stale'} end", ""),),
    ),
    Broken(
        "a completion that ends a step a second time",
        "sequence lost queued",
        (("complete_many", "  if step.terminal then\n    local word", "  if false then\n    local word"),),
    ),
    Broken(
        "a last completer that acknowledges its message",
        "sequence queued",
        (
            (
                "complete_many",
                "if detail ~= 'responsible' then settle_if_held(stream, entry, consumer) end",
                "settle_if_held(stream, entry, consumer)",
            ),
        ),
    ),
    Broken(
        "a repeated completion that settles the message which owns an inline step",
        "more: two slots inline",
        (
            (
                "complete_many",
                "if not owns(run, message, entry_name(stream, entry)) then settle_if_held",
                "do settle_if_held",
            ),
        ),
    ),
    Broken(
        "a retry that leaves its inline step owned",
        "retry inline",
        (("complete_many", "if step.message ~= '' then set_field(run, 'own:' .. step.message, false) end", ""),),
    ),
    Broken(
        "an observed event that publishes no wake",
        "step or timer queued",
        _everywhere(_OBSERVERS, "    publish_wake(run, reason)\n    return 'woken'", "    return 'woken'"),
    ),
    Broken(
        "an observed event that does not make the caller's message responsible",
        "sequence queued",
        _everywhere(
            _OBSERVERS,
            "  run.wake = message\n  set_field(run, 'wake', message)\n  return 'responsible'",
            "  return 'responsible'",
        ),
    ),
    Broken(
        "a join group that is counted by its seal only",
        "gather2 queued",
        (("complete_many", "  group.left = group.left - 1\n  if failed then", "  if failed then"),),
    ),
    Broken(
        "a fail_fast group whose failure tells nobody",
        "fail_fast3 queued",
        (("complete_many", "if failed then group.failed = 1 end", ""),),
    ),
    Broken(
        "a commit that does not compare replayed_to",
        "sequence lost inline",
        (
            (
                "commit_pass",
                "if run.replayed_to ~= tonumber(replayed_to) or first_pass_late then",
                "if first_pass_late then",
            ),
        ),
    ),
    Broken(
        "a commit that does not see what was written since its load",
        "race then queued",
        (("commit_pass", "local again = run.woken_at > tonumber(consumed)", "local again = false"),),
    ),
    Broken(
        "a commit that leaves the wake it has served",
        "race then queued",
        (("commit_pass", "set_field(run, 'wake', '')", ""),),
    ),
    Broken(
        "an end that is recorded after something which its body has not seen",
        "clean up inline, request",
        (("commit_pass", "or run.length ~= tonumber(did.length)", ""),),
    ),
    Broken(
        "a next step in a row after something which the body has not seen",
        "sequence inline, request",
        (
            (
                "commit_pass",
                "or decimal(stored) ~= length or decimal(stored + 1) ~= consumed ",
                "",
            ),
        ),
    ),
    Broken(
        "a usual first pass of a run that has ended",
        "one inline, terminate",
        (
            ("commit_pass", "return status == 'pending' and not read_started_at and tonumber", "return tonumber"),
            (
                "commit_pass",
                "stored + size + 2 >= tonumber(limit) or read[3] ~= replayed_to\n",
                "stored + size + 2 >= tonumber(limit)\n",
            ),
        ),
    ),
    Broken(
        "a usual last pass of a run that has ended",
        "one inline, terminate",
        (
            (
                "commit_pass",
                "return read[1] == 'running' and number_in(read[2]) and read[3] == replayed_to and type",
                "return type",
            ),
            ("commit_pass", "or decimal(stored) ~= length or decimal(stored + 1) ~= consumed ", ""),
        ),
    ),
    Broken(
        "a usual end of a run that has ended",
        "gather2 queued, terminate",
        (
            (
                "commit_pass",
                "return read[1] == 'running' and number_in(read[2]) and read[3] == replayed_to and type",
                "return type",
            ),
        ),
    ),
    Broken(
        "a usual last chunk that does not see what was written since its load",
        "gather2 queued, request",
        (("commit_pass", "(number_in(read[8]) or 0) > tonumber(consumed) or not holds_entry()", "not holds_entry()"),),
    ),
    Broken(
        "a usual last chunk that seals nothing",
        "gather2 queued",
        (("commit_pass", "'|' .. ARGV[seal + 2] .. '|1|0'", "'|' .. ARGV[seal + 2] .. '|0|0'"),),
    ),
    Broken(
        "a usual chunk of a run that has ended",
        "then chunks queued, terminate",
        (
            (
                "commit_pass",
                "if started_at == '' then return status == 'running' end",
                "if started_at == '' then return true end",
            ),
            (
                "commit_pass",
                "stored + size + 2 >= tonumber(limit) or read[3] ~= replayed_to\n",
                "stored + size + 2 >= tonumber(limit)\n",
            ),
        ),
    ),
    Broken(
        "a usual chunk that creates its steps again",
        "then chunks queued",
        (("commit_pass", "      if read[k] then return end\n", ""),),
    ),
    Broken(
        "a usual claim in a run that has ended",
        "gather2 queued, terminate",
        (("claim_many", "if read[1] == 'running' and type", "if read[1] and type"),),
    ),
    Broken(
        "a usual claim that starts whatever is there",
        "sequence lost queued",
        (
            (
                "claim_many",
                "'^pending|0|0||||([^|]*|%d+|0|0|)0$'",
                "'^%a+|%d+|%d+|[^|]*|[^|]*|[^|]*|([^|]*|%d+|%d+|%d+|)%d+$'",
            ),
        ),
    ),
    Broken(
        "a usual completion of whoever comes",
        "gather2 queued",
        (
            (
                "complete_many",
                "local group = find(state, begin, 1, true) == 1",
                "begin = match(state, '^running|%d+|%d+|[^|]*|[^|]*|[^|]*|') local group = begin",
            ),
        ),
    ),
    Broken(
        "a usual completion that tells nobody of the last one of a group",
        "gather2 queued",
        (("complete_many", "if group.left <= 1 then return false end", ""),),
    ),
    Broken(
        "a promotion that completes a dropped wait, which its commit has not taken out",
        "dropped timer queued",
        (
            ("promote_due", "or not is_waiting(wait_state(run, wait_id)) then return end", "then return end"),
            ("commit_pass", "  drop_timer(run, item.id)\n", ""),
        ),
    ),
    Broken(
        "a promotion that goes on after the end of the run",
        "step or timer queued, terminate",
        (("promote_due", "if run.absent or run.terminal or not", "if run.absent or not"),),
    ),
    Broken(
        "a cancel request that tells nobody",
        "one queued, request",
        (("cancel_run", "observe(run, 'admin', '', false)", ""),),
    ),
    Broken(
        "a terminate of a run that has ended",
        "one queued, terminate",
        (("cancel_run", "if run.terminal then", "if false then"),),
    ),
    Broken(
        "a resume that tells nobody",
        "step and hook queued",
        (("resume_hook", "observe(run, 'hook', '', false)", ""),),
    ),
    Broken(
        "a resume id that is taken twice",
        "more: step or hook queued",
        (("resume_hook", "if known and is_logged(known) then", "if false then"),),
    ),
    Broken(
        "a hook that is staged anew after it has been created",
        "step and hook queued",
        (("stage_hook", "if state then return {'conflict', state} end", ""),),
    ),
)
