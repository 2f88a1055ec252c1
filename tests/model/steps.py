"""What do a claim and a completion answer, and what do they change? Design sections 7, 8 and 9, in plain Python."""

from __future__ import annotations

import msgspec

from tests.model.model import Answer, Delayed, Group, Run, Step, Store


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a step by the holder of a delivery; with ``ensure`` it brings the input of a missing step."""

    consumer: str
    entry: str
    run: str
    step: str
    message: str
    token: str
    allowed: int = 4
    may_replay: bool = True
    ensure: bool = False
    owned: bool = False


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome of a running step: completed, failed, or retrying, after a delay or for a drain."""

    consumer: str
    entry: str
    run: str
    step: str
    message: str
    token: str
    outcome: str
    may_replay: bool = True
    delay_ms: int = 0
    drain: bool = False


def claim(store: Store, c: Claim) -> Answer:
    """Precedence: run absent, step terminal, run terminal, step missing, stale, exhausted, too early (section 7)."""
    store.counts["claims"] += 1
    run = store.runs.get(c.run)
    if run is None:
        return ("not_found",)
    step = run.steps.get(c.step)
    if step is not None and step.terminal:
        if c.message in run.owners:
            return ("skipped", "owned", run.owners[c.message])
        if run.wake == c.message and store.holds(c.consumer, c.entry):
            return ("skipped", "responsible", "")
        store.settle(c.consumer, c.entry)
        return ("skipped", "settled", "")
    if run.terminal:
        store.settle(c.consumer, c.entry)
        return ("gone", run.status)
    if c.owned and run.owners.get(c.message) != c.step:
        if run.wake != c.message:
            store.settle(c.consumer, c.entry)
        return ("stale",)
    if step is None and not c.ensure:
        return ("missing",)
    if step is not None and step.status == "running" and step.token == c.token:
        return ("started", step.attempt, step.attempt - step.uncharged, first_start(run, c.step))
    if store.is_full(run):
        store.settle(c.consumer, c.entry)
        return ("full", str(run.floor - run.created_at))
    if not store.holds(c.consumer, c.entry):
        return ("stale",)
    if step is None:
        store.append(run, "step_created", c.step)
        store.counts["steps_created"] += 1
        step = Step()
    if step.status == "running" and _somebody_elses(store, step, c):
        store.settle(c.consumer, c.entry)
        return ("stale",)
    if step.attempt - step.uncharged >= c.allowed:
        return _exhaust(store, run, step, c)
    if step.retry_at > store.now:
        return ("too_early", step.retry_at - store.now)
    start(store, run, c.step, step, c.token, c.message, c.entry)
    return ("started", step.attempt + 1, step.attempt + 1 - step.uncharged, first_start(run, c.step))


def _somebody_elses(store: Store, step: Step, c: Claim) -> bool:
    """A running step is started again only for the message that it names, by its entry or, if that is gone, a copy."""
    return step.message != c.message or (step.entry != c.entry and step.entry in store.entries)


def _exhaust(store: Store, run: Run, step: Step, c: Claim) -> Answer:
    run.owners.pop(step.message, None)
    store.append(run, "step_failed", c.step, step.attempt)
    duty = _settle_step(store, run, c.step, step, "failed", c, counted="steps_failed")
    return ("exhausted", duty)


def start(store: Store, run: Run, step_id: str, step: Step, token: str, message: str, entry: str) -> None:
    """Write step_started; the caller has checked that it may."""
    run.steps[step_id] = msgspec.structs.replace(
        step, status="running", attempt=step.attempt + 1, token=token, message=message, entry=entry, retry_at=0
    )
    store.append(run, "step_started", step_id, step.attempt + 1)
    store.counts["steps_started"] += 1


def first_start(run: Run, step_id: str) -> int:
    return next(event.at for event in run.log if event.kind == "step_started" and event.id == step_id)


def complete(store: Store, c: Completion) -> Answer:
    """Record an outcome if the token holds; a repeat gets the first answer, a stranger changes nothing."""
    run = store.runs.get(c.run)
    if run is None:
        store.settle(c.consumer, c.entry)
        return ("not_found", "")
    step = run.steps.get(c.step)
    if step is None:
        return ("gone" if run.terminal else "missing", run.status)
    if step.terminal:
        word = step.status if step.token == c.token else "skipped"
        if not run.terminal and run.wake == c.message and store.holds(c.consumer, c.entry):
            return (word, "responsible")
        if not owns(run, c.message, c.entry):
            store.settle(c.consumer, c.entry)
        return (word, "settled")
    if step.status == "pending":
        return _not_running(store, run, step, c)
    if step.token != c.token:
        return ("stale", "")
    if run.terminal and c.outcome == "retrying":
        store.settle(c.consumer, c.entry)
        return ("gone", run.status)
    run.owners.pop(step.message, None)
    if c.outcome == "retrying":
        return _retry(store, run, step, c)
    store.append(run, f"step_{c.outcome}", c.step, step.attempt)
    return (c.outcome, _settle_step(store, run, c.step, step, c.outcome, c, counted=f"steps_{c.outcome}"))


def _not_running(store: Store, run: Run, step: Step, c: Completion) -> Answer:
    if run.terminal:
        store.settle(c.consumer, c.entry)
        return ("gone", run.status)
    if step.token == c.token and c.outcome == "retrying":
        store.settle(c.consumer, c.entry)
        return ("retrying", str(step.retry_at))
    return ("invalid", "")


def _retry(store: Store, run: Run, step: Step, c: Completion) -> Answer:
    """The step goes back to the queue, now or later; a drain is not charged to its retry budget."""
    store.settle(c.consumer, c.entry)
    store.append(run, "step_retrying", c.step, step.attempt)
    retry_at = store.now + c.delay_ms if c.delay_ms else 0
    run.steps[c.step] = msgspec.structs.replace(
        step, status="pending", uncharged=step.uncharged + c.drain, message="", entry="", retry_at=retry_at
    )
    if c.delay_ms:
        store.delay(Delayed(retry_at, "step", run.id, c.step, c.step, "steps"))
        run.delays = 1
    else:
        store.publish("steps", "step", run.id, step=c.step, message=c.step)
    store.counts["steps_handed_back" if c.drain else "steps_retried"] += 1
    return ("retrying", str(retry_at))


def _settle_step(
    store: Store, run: Run, step_id: str, step: Step, status: str, c: Claim | Completion, *, counted: str
) -> str:
    """A step has ended: who tells the body. The delivery is done with unless it is responsible now."""
    run.steps[step_id] = msgspec.structs.replace(step, status=status, message="", entry="", retry_at=0)
    store.counts[counted] += 1
    duty = "settled"
    if not run.terminal and end_is_seen(run, step.group, failed=status == "failed"):
        duty = store.observe(run, c.message, may_take=c.may_replay and store.holds(c.consumer, c.entry))
    if duty != "responsible":
        store.settle(c.consumer, c.entry)
    return duty


def owns(run: Run, message: str, entry: str) -> bool:
    """Whether this very delivery owns an inline step; a copy of its message does not."""
    owned = run.owners.get(message)
    return owned is not None and run.steps[owned].entry == entry


# -- join groups


def end_is_seen(run: Run, group: str, *, failed: bool) -> bool:
    """A step of this group has just ended: whether the body sees it."""
    if group in ("", "-"):
        return group == ""
    if failed:
        run.groups[group] = msgspec.structs.replace(run.groups[group], untold=True)
    return group_tells(run, group)


def group_tells(run: Run, name: str) -> bool:
    """Whether the body sees what a group has come to: no step of it is open, or a failure it does not know of."""
    group = run.groups[name]
    if not group.sealed:
        return False
    run.groups[name] = msgspec.structs.replace(group, untold=False)
    if group.mode == "fail_fast" and group.untold:
        return True
    return not any(step.group == name and not step.terminal for step in run.steps.values())


def assign(run: Run, step_id: str, group: str) -> bool:
    """A step moves to another group: whether the body sees an end that nobody has told it of."""
    step = run.steps[step_id]
    if step.group == group:
        return False
    run.steps[step_id] = msgspec.structs.replace(step, group=group)
    if group not in ("", "-"):
        joined = run.groups.get(group, Group())
        run.groups[group] = msgspec.structs.replace(joined, untold=joined.untold or step.status == "failed")
    if step.terminal:
        return group == ""
    return step.group not in ("", "-") and group_tells(run, step.group)
