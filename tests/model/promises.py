"""What must hold after every step, whatever the answers were? (cases.md, "Log invariants"; design section 2)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.model.model import Event, Run, Store

_RUN_ENDS = {"run_completed", "run_failed", "run_cancelled"}
_STEP_ENDS = {"step_completed", "step_failed"}


def broken(store: Store) -> list[str]:
    """One line per broken promise. Redis has been found equal to the model, so this is about both."""
    return [f"{run.id}: {problem}" for run in store.runs.values() for problem in _of_run(store, run)]


def _of_run(store: Store, run: Run) -> Iterator[str]:
    yield from _run_events(run.log)
    yield from _step_events(run.log)
    yield from _wait_events(run.log)
    if not run.terminal:
        yield from _nobody_goes_on(store, run)


def _run_events(log: list[Event]) -> Iterator[str]:
    kinds = [event.kind for event in log]
    if kinds.count("run_created") != 1 or kinds[0] != "run_created":
        yield f"run_created {kinds.count('run_created')} times, the first event is {kinds[0]}"
    if kinds.count("run_started") > 1 or kinds.count("cancel_requested") > 1:
        yield "started or asked to stop more than once"
    if [event.at for event in log] != sorted(event.at for event in log):
        yield "event times fall"
    ends = [n for n, kind in enumerate(kinds) if kind in _RUN_ENDS]
    if len(ends) > 1:
        yield f"{len(ends)} terminal events"
    if ends and (late := set(kinds[ends[0] + 1 :]) - _STEP_ENDS):
        yield f"{sorted(late)} after the terminal event"


def _step_events(log: list[Event]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    starts: dict[str, list[int]] = {}
    for event in log:
        if event.kind.startswith("step_"):
            kinds.setdefault(event.id, []).append(event.kind)
        if event.kind == "step_started":
            starts.setdefault(event.id, []).append(event.attempt)
    for step_id, of_step in kinds.items():
        if of_step.count("step_created") != 1 or of_step[0] != "step_created":
            yield f"{step_id}: created {of_step.count('step_created')} times, first {of_step[0]}"
        ends = [n for n, kind in enumerate(of_step) if kind in _STEP_ENDS]
        if len(ends) > 1 or (ends and ends[0] != len(of_step) - 1):
            yield f"{step_id}: its events are {of_step}"
        if starts.get(step_id, []) != list(range(1, len(starts.get(step_id, [])) + 1)):
            yield f"{step_id}: the attempts are {starts[step_id]}"


def _wait_events(log: list[Event]) -> Iterator[str]:
    counts = Counter((event.id, event.kind) for event in log if event.kind.startswith("wait_"))
    for (wait_id, kind), times in counts.items():
        if times > 1:
            yield f"{wait_id}: {kind} {times} times"


def _nobody_goes_on(store: Store, run: Run) -> Iterator[str]:
    """Promise 2: a run never stops for want of a wake-up, nor a step for want of its message."""
    living = list(store.living(run.id))
    messages, steps = {message for message, _ in living}, {step for _, step in living}
    if run.news and run.wake not in messages:
        yield f"woken_at {run.woken_at} > replayed_to {run.replayed_to}, and its wake {run.wake!r} is dead"
    for step_id, step in run.steps.items():
        if step.status == "pending" and step_id not in steps:
            yield f"{step_id} is pending and no message is there to start it"
        if step.status == "running" and step.message not in messages:
            yield f"{step_id} is running and its message {step.message!r} is gone"
    for wait_id, (state, due) in run.waits.items():
        if state == "waiting" and f"wait {run.id} {wait_id}" not in store.delayed:
            yield f"{wait_id} waits for {due}, and no timer is there"
