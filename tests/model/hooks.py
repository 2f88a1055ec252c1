"""What do hooks, attributes and single events answer, and what do they change? In plain Python; design sections 7, 11.

There is one partition, so a claim of a token, three calls in Redis, is one thing here.
"""

from __future__ import annotations

import msgspec

from tests.model.model import Answer, Run, Step, Store
from tests.model.passes import Wish, create, set_off


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """A payload for whatever hook holds a token, once per resume id."""

    token: str
    payload: bytes
    id: str


def claim_token(store: Store, run_id: str, hook: str, token: str) -> Answer:
    """The row shows the hook as claiming, then the token points at it, unless a living hook holds it: its run."""
    run = store.runs.get(run_id)
    if run is None or run.terminal:
        return ("",)  # the commit decides
    if hook in run.hooks and (run.hooks[hook], run.tokens.get(hook)) != ("claiming", token):
        return ("",)
    run.hooks[hook], run.tokens[hook] = "claiming", token
    holder, holding, was = store.pointers.get(token, ("", "", ""))
    if (holder, holding) != (run_id, hook):
        if holder and _lives(store, holder, holding):
            return (holder,)
        store.pointers[token] = run_id, hook, was if holder in ("", run_id) else holder
    return ("",)


def _lives(store: Store, run_id: str, hook: str) -> bool:
    run = store.runs.get(run_id)
    return run is not None and not run.terminal and run.hooks.get(hook) in ("claiming", "open")


def resume(store: Store, r: Resume) -> Answer:
    """received, with the run and the number of the event; the run that held the token before may have had it."""
    holder, hook, was = store.pointers.get(r.token, ("", "", ""))
    if not holder:
        return ("not_found",)
    if was:
        answer = _resume_at(store, was, "", r)
        if answer[0] == "received":
            return answer
    return _resume_at(store, holder, hook, r)


def _resume_at(store: Store, run_id: str, hook: str, r: Resume) -> Answer:
    run = store.runs.get(run_id)
    if run is None:
        return ("not_found",)
    if r.id in run.resumes:
        number, *first = run.resumes[r.id]
        return ("received", run_id, number) if first == [r.payload, r.token] else ("conflict",)
    if run.terminal:
        return ("gone",)
    if run.hooks.get(hook) != "open":
        return ("not_found",)
    if store.is_full(run):
        return ("gone",)
    number = store.append(run, "hook_received", hook)
    run.resumes[r.id] = number, r.payload, r.token
    store.counts["hooks_received"] += 1
    store.observe(run)
    return ("received", run_id, number)


def release(store: Store) -> Answer:
    """The pointers that ended runs have given up are taken away, much later: a resume may be asked again."""
    released = len(store.releases)
    store.releases.clear()
    return (released,)


def create_event(store: Store, run_id: str, wish: Wish) -> Answer:
    """One event that no pass writes. ``start`` and ``waited`` are wishes too, that only foreigners have."""
    run = store.runs.get(run_id)
    holder = claim_token(store, run_id, wish.id, wish.token)[0] if wish.op == "hook" else ""
    if run is None:
        return ("not_found", "")
    if run.terminal:
        return ("conflict" if wish.op == "end" else "gone", run.status)
    if wish.op != "end" and store.is_full(run):
        return ("full", str(run.floor - run.created_at))
    match wish.op:
        case "start":
            if run.status == "pending":
                set_off(store, run)
            return ("started", str(run.started_at))
        case "waited":
            return (_waited(store, run, wish.id), "")
        case "end":
            store.drop_first_message(run)
            store.finish(run, wish.id, "" if wish.id == "completed" else "CODE")
            return ("ended", "")
        case "step" if wish.id in run.steps:
            return ("conflict", "") if wish.name == "work" else ("diverged",)
        case "step":
            run.steps[wish.id] = Step()
    answer = create(store, run, msgspec.structs.replace(wish, holder=str(holder)))
    return (answer, str(holder) if answer == "hook_conflict" else "")


def _waited(store: Store, run: Run, wait: str) -> str:
    if wait not in run.waits:
        return "not_found"
    if run.waits[wait][0] != "waiting":
        return "conflict"
    store.complete_wait(run, wait)
    store.delayed.pop(f"wait {run.id} {wait}", None)
    return "completed"
