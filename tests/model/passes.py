"""What do start, load, commit and cancel answer, and what do they change? Design sections 7, 8, 10 in plain Python."""

from __future__ import annotations

import msgspec

from tests.model.model import MODES, Answer, Delayed, Group, Run, Step, Store
from tests.model.steps import assign, group_tells, owns, start


class Wish(msgspec.Struct, frozen=True):
    """One thing that a pass asks for: step, inline, wait, unwait, hook, dispose, attr, assign, seal or end.

    ``group`` of step, inline, assign; ``due`` of wait; ``name`` of step and inline; ``token`` of inline and hook;
    ``holder`` of hook: the run that holds the token instead, and ``awaited``: whether
    the body waits to know. The id of an end is the status.
    """

    op: str
    id: str
    group: str = ""
    due: int = 0
    name: str = "work"
    token: str = ""
    holder: str = ""
    awaited: bool = False


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One commit: what the pass has loaded and consumed, and what it asks for."""

    replayed_to: int
    consumed: int
    token: str
    wishes: tuple[Wish, ...]
    chunk: int = 1
    last: bool = True
    started_at: int | None = None
    """Body time of a first pass that has read nothing."""


def create_run(store: Store, run_id: str) -> Answer:
    """run_created once per id, and the first message, which is responsible."""
    if run_id in store.runs:
        return ("conflict", "wf")
    run = Run(run_id, wake="start", created_at=store.now)
    store.runs[run_id] = run
    run.woken_at = store.append(run, "run_created")
    store.publish("workflows", "workflow", run_id, message="start")
    store.counts["runs_created"] += 1
    return ("created", "wf")


def load(store: Store, consumer: str, entry: str, run_id: str, message: str) -> Answer:
    """What a replay needs; starts a pending run. A message that nothing waits for is settled."""
    run = store.runs.get(run_id)
    if run is None:
        return ("not_found", "")
    if run.terminal:
        store.settle(consumer, entry)
        return ("gone", run.status)
    owned = run.owners.get(message, "")
    if run.wake != message and not owned:
        store.settle(consumer, entry)  # no message is without a wake while there is news: see the invariants
        return ("settled", "")
    if store.is_full(run):
        store.settle(consumer, entry)
        return ("full", str(run.floor - run.created_at))
    if run.status == "pending":
        set_off(store, run)
    return ("loaded", run.woken_at, run.replayed_to, len(run.log), owned, run.started_at)


def set_off(store: Store, run: Run, at: int | None = None) -> None:
    """A pending run starts, at the time that its body has seen already, if it has."""
    number = store.append(run, "run_started", at=at)
    run.status, run.started_at = "running", run.log[number - 1].at
    store.counts["runs_started"] += 1


def cancel(store: Store, run_id: str, *, terminate: bool) -> Answer:
    """Ask the body to stop, once, or end the run at once. The status that the run then has or had already."""
    run = store.runs.get(run_id)
    if run is None:
        return ("not_found",)
    if run.terminal:
        return (run.status,)
    if store.drop_first_message(run) or terminate:
        store.finish(run, "cancelled", "")
    elif not run.cancel_requested:
        run.cancel_requested = store.append(run, "cancel_requested")
        store.observe(run)
    return (run.status,)


def commit(store: Store, consumer: str, entry: str, run_id: str, message: str, p: Pass) -> Answer:
    """Write what a pass asks for, all of it or nothing. The same pass again gets the first answer."""
    run = store.runs.get(run_id)
    if run is None:
        return ("not_found", "")
    done = 0
    if run.committed[0] == p.token:
        word, number, at = run.committed[1]
        if word != "chunk":
            return (word, number, at)
        done = int(number)
        if not p.last and p.chunk <= done:
            return ("chunk", False)
    if run.terminal:
        store.settle(consumer, entry)
        return ("gone", run.status)
    if _is_late(run, p):
        if run.wake == message:
            return ("lost", "1")
        if not owns(run, message, entry):
            store.settle(consumer, entry)
        return ("lost", "0")
    if p.chunk != done + 1:  # Redis has lost the one before it
        return ("lost", "1" if run.wake == message else "0")
    if store.is_full(run):
        store.settle(consumer, entry)
        return ("full", str(run.floor - run.created_at))
    if any(w.op in ("step", "inline") and w.id in run.steps and w.name != "work" for w in p.wishes):
        return ("diverged",)
    if any(w.op == "hook" and _unclaimed(run, w) for w in p.wishes):
        return ("broken",)
    if run.status == "pending":
        set_off(store, run, p.started_at)
    inline = next((w for w in p.wishes if w.op == "inline" and w.id not in run.steps), None)
    told = [_grant(store, run, wish) for wish in p.wishes]
    if p.last and not any(w.op == "end" for w in p.wishes):
        told += [_seal(run, wish.id) for wish in p.wishes if wish.op == "seal"]
    if any(told):
        run.woken_at = len(run.log)
    if not p.last:
        run.begun_to = p.consumed
        run.committed = (p.token, ("chunk", p.chunk, max(run.floor, store.now)))
        return ("chunk", False)
    word, started = _conclude(store, run, consumer, entry, message, p, inline)
    answer = (word, started, max(run.floor, store.now))
    run.committed = (p.token, answer)
    return answer


def _is_late(run: Run, p: Pass) -> bool:
    """Others have committed, or written before a first pass that has read nothing. The log's length never counts."""
    if p.started_at is not None and (run.status != "pending" or p.started_at < run.floor):
        return True
    return run.replayed_to != p.replayed_to


def _unclaimed(run: Run, wish: Wish) -> bool:
    """Whether a new hook's token has not been asked for."""
    return run.hooks.get(wish.id, "claiming") == "claiming" and run.tokens.get(wish.id) != wish.token


def _grant(store: Store, run: Run, wish: Wish) -> bool:
    """Write one thing that is not there yet; whether the body sees something in it: an unseen end, a holder."""
    if wish.op not in ("step", "inline", "assign"):
        word = create(store, run, wish)
        return word == "hook_conflict" or (wish.awaited and word == "created")
    if wish.op != "assign" and wish.id not in run.steps:
        run.steps[wish.id] = Step()
        create(store, run, wish)
    return wish.id in run.steps and assign(run, wish.id, wish.group)


def create(store: Store, run: Run, wish: Wish) -> str:
    """Write one event, once; of a step only what its state does not say."""
    state, of_hook = run.waits.get(wish.id, ("",))[0], run.hooks.get(wish.id, "")
    match wish.op:
        case "step" | "inline":
            store.append(run, "step_created", wish.id)
            store.counts["steps_created"] += 1
            if wish.op == "step":
                store.publish("steps", "step", run.id, step=wish.id, message=wish.id)
        case "wait" if not state:
            store.append(run, "wait_created", wish.id)
            run.waits[wish.id] = ("waiting", wish.due)
            run.delays = 1
            store.delay(Delayed(wish.due, "wait", run.id, wish.id))
        case "unwait" if state == "waiting":
            store.append(run, "wait_cancelled", wish.id)
            run.waits[wish.id] = ("cancelled", 0)
            store.delayed.pop(f"wait {run.id} {wish.id}", None)
            store.counts["waits_cancelled"] += 1
            return "cancelled"
        case "hook" if of_hook in ("", "claiming"):
            store.append(run, "hook_conflict" if wish.holder else "hook_created", wish.id)
            run.hooks[wish.id] = "conflict" if wish.holder else "open"
            if wish.holder:
                store.release(run, wish.id)
                return "hook_conflict"
        case "dispose" if of_hook == "open":
            store.append(run, "hook_disposed", wish.id)
            run.hooks[wish.id] = "disposed"
            store.release(run, wish.id)
            return "disposed"
        case "attr" if wish.id not in run.attribute_events:
            run.attribute_events[wish.id] = store.append(run, "attr_set", wish.id)
            run.attributes[wish.id] = run.id
        case "unwait" if not state:
            return "not_found"
        case "dispose" if of_hook != "disposed":
            return "not_found"
        case _:
            return "conflict"
    return "created"


def _seal(run: Run, group: str) -> bool:
    """All steps of a group are known: from now on its ends can be seen. Whether the body sees one at once."""
    run.groups[group] = msgspec.structs.replace(run.groups.get(group, Group()), mode=MODES[group], sealed=True)
    return group_tells(run, group)


def _conclude(
    store: Store, run: Run, consumer: str, entry: str, message: str, p: Pass, inline: Wish | None
) -> tuple[str, bool]:
    """The last chunk is written: who goes on. Word, and whether the new inline step has started."""
    run.replayed_to = p.consumed
    ending = next((w for w in p.wishes if w.op == "end"), None)
    if ending is not None:
        store.finish(run, ending.id, "CODE")
        store.settle(consumer, entry)
        return "ended", False
    held = store.holds(consumer, entry)
    if inline is not None and (run.news or not held):
        store.publish("steps", "step", run.id, step=inline.id, message=inline.id)
    if run.news:
        return _go_again(store, run, consumer, entry, message)
    run.wake = ""
    if inline is not None and held:
        start(store, run, inline.id, run.steps[inline.id], inline.token, message, entry)
        run.owners[message] = inline.id
        return "committed", True
    store.settle(consumer, entry)
    return "committed", False


def _go_again(store: Store, run: Run, consumer: str, entry: str, message: str) -> tuple[str, bool]:
    """There is news beyond what the pass has seen: its message goes on, or another one is responsible."""
    held = store.holds(consumer, entry)
    if held and run.wake in ("", message):
        run.wake = message
        return "again", False
    if not run.wake:
        store.publish_wake(run)
    store.settle(consumer, entry)
    return "committed", False
