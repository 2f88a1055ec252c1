"""What holds for every run of a namespace, whatever was killed on the way? (cases.md, "Log invariants")

``check`` reads all runs straight from Redis and raises AssertionError with one line per broken promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec
import redis

from redisworld import Workflows, events, messages
from redisworld.errors import MalformedMessage, ReplayDivergence
from redisworld.events import Event, EventKind, RunCreated
from redisworld.keys import GROUP, Partition, meta
from redisworld.replay import Cancelled, Completed, Instance, install
from redisworld.runs import TERMINAL, Status, Step

install()  # as in a worker: what is replayed here must find what it found there

_ENDS = {
    EventKind.RUN_COMPLETED: Status.COMPLETED,
    EventKind.RUN_FAILED: Status.FAILED,
    EventKind.RUN_CANCELLED: Status.CANCELLED,
}
_RUN_KINDS = {EventKind.RUN_CREATED, EventKind.RUN_STARTED, EventKind.CANCEL_REQUESTED, *_ENDS}
MOST_PREFIXES, MOST_RUNS = 30, 20
"""A long log is replayed at so many prefixes only, and of the runs of a workflow so many."""
_STEP_ENDS = {EventKind.STEP_COMPLETED: "completed", EventKind.STEP_FAILED: "failed"}


def partitions(raw: redis.Redis, namespace: str = "default") -> list[Partition]:
    """The partitions of a namespace, as its meta hash says."""
    return [Partition(namespace, number) for number in range(int(raw.hget(meta(namespace), "partitions") or 0))]


def run_ids(raw: redis.Redis, partition: Partition) -> list[str]:
    """All runs of a partition, by creation time."""
    return [run_id.decode() for run_id in raw.zrange(partition.index("created"), 0, -1)]


def log_of(raw: redis.Redis, partition: Partition, run_id: str) -> list[Event]:
    """The whole log of a run."""
    return [events.parse(element) for element in raw.lrange(partition.log(run_id), 0, -1)]


def streams(raw: redis.Redis, partition: Partition) -> list[str]:
    """Names of all step and workflow streams of a partition."""
    names = [name.decode() for name in raw.scan_iter(match=_literal(partition.tag) + "*", count=1000)]
    return sorted(name for name in names if partition.short(name).startswith(("steps", "workflows")))


def pending(raw: redis.Redis, namespace: str = "default") -> int:
    """Deliveries that some consumer of the namespace holds."""
    total = 0
    for partition in partitions(raw, namespace):
        for stream in streams(raw, partition):
            total += raw.xpending(stream, GROUP)["pending"] if raw.xinfo_groups(stream) else 0
    return total


def queued(raw: redis.Redis, namespace: str = "default") -> int:
    """Entries in all step and workflow streams: acknowledged ones are deleted, so this counts what is not done."""
    return sum(raw.xlen(stream) for p in partitions(raw, namespace) for stream in streams(raw, p))


def check(
    raw: redis.Redis,
    app: Workflows,
    namespace: str = "default",
    *,
    settled: bool = True,
    open_runs: frozenset[str] = frozenset(),
) -> None:
    """Check every run of ``namespace``. ``settled``: nothing may be queued, pending or delayed any more.

    ``open_runs`` may be open; every other run must be terminal when ``settled``.
    """
    found: list[str] = []
    seen: Counter[str] = Counter()
    for partition in partitions(raw, namespace):
        for run_id in run_ids(raw, partition):
            found += [f"{run_id}: {problem}" for problem in _of_run(raw, partition, run_id, app, seen)]
            status = (raw.hget(partition.run(run_id), "status") or b"").decode()
            if settled and status not in TERMINAL and run_id not in open_runs:
                found.append(f"{run_id}: still {status}")
        if settled:
            found += _left_behind(raw, partition, open_runs)
    assert not found, "broken promises:\n" + "\n".join(found) + "\n" + _logs(raw, namespace, found)


def _of_run(raw: redis.Redis, partition: Partition, run_id: str, app: Workflows, seen: Counter[str]) -> Iterator[str]:
    log = log_of(raw, partition, run_id)
    row = {k.decode(): v.decode("utf-8", "replace") for k, v in raw.hgetall(partition.run(run_id)).items()}
    yield from _run_events(log, row)
    yield from _step_events(log, row)
    yield from _wait_events(log)
    yield from _hook_events(log)
    diverges = list(_cold_replay(log, row, run_id, app))
    yield from diverges
    seen[row["workflow"]] += 1
    if not diverges and seen[row["workflow"]] <= MOST_RUNS:
        yield from _prefixes(log, row, run_id, app)
    yield from _doctor(raw, partition, row)


def _run_events(log: list[Event], row: dict[str, str]) -> Iterator[str]:
    kinds = [event.kind for event in log]
    if kinds.count(EventKind.RUN_CREATED) != 1 or kinds[0] is not EventKind.RUN_CREATED:
        yield f"{kinds.count(EventKind.RUN_CREATED)} run_created, the first event is {kinds[0] if kinds else None}"
    if kinds.count(EventKind.RUN_STARTED) > 1:
        yield f"{kinds.count(EventKind.RUN_STARTED)} run_started"
    state = [kind for kind in kinds if kind in _RUN_KINDS]
    ends = [kind for kind in state if kind in _ENDS]
    if len(ends) > 1:
        yield f"{len(ends)} terminal events"
    if ends and state[-1] not in _ENDS:
        yield f"{state[-1]} after {ends[0]}"
    expected = _ENDS[ends[0]].value if ends else None
    if (row["status"] if row["status"] in TERMINAL else None) != expected:
        yield f"row says {row['status']}, log says {expected}"
    times = [event.at for event in log]
    if times != sorted(times):
        yield "event times go backwards"
    if ends:
        after = {kind.value for kind in kinds[kinds.index(ends[0]) + 1 :]}
        if wrong := after - {"step_completed", "step_failed"}:
            yield f"{sorted(wrong)} after the terminal event"


def _step_events(log: list[Event], row: dict[str, str]) -> Iterator[str]:
    by_step: dict[str, list[Event]] = defaultdict(list)
    for event in log:
        if event.kind.value.startswith("step_"):
            by_step[event.id].append(event)
    for step_id, of_step in by_step.items():
        counts = Counter(event.kind for event in of_step)
        ends = [event for event in of_step if event.kind in _STEP_ENDS]
        starts = [event.attempt for event in of_step if event.kind is EventKind.STEP_STARTED]
        if counts[EventKind.STEP_CREATED] != 1 or of_step[0].kind is not EventKind.STEP_CREATED:
            yield f"{step_id}: {counts[EventKind.STEP_CREATED]} step_created, first is {of_step[0].kind}"
        if len(ends) > 1 or (ends and of_step[-1] is not ends[0]):
            yield f"{step_id}: its events are {[event.kind.value for event in of_step]}"
        if starts != list(range(1, len(starts) + 1)):
            yield f"{step_id}: attempts started are {starts}"
        if ends and not starts:
            yield f"{step_id}: ended without a start"
        if ends and ends[0].attempt != starts[-1]:
            yield f"{step_id}: attempt {ends[0].attempt} ended, attempt {starts[-1]} was the last to start"
        if (state := row.get(f"s:{step_id}")) is None:
            yield f"{step_id}: no state in the row"
            continue
        status = Step.parse(state).status.value
        last = {EventKind.STEP_STARTED: "running", **_STEP_ENDS}.get(of_step[-1].kind, "pending")
        if status != last:
            yield f"{step_id}: state says {status}, log says {last}"
    for field in row:
        if field.startswith("s:") and field[2:] not in by_step:
            yield f"{field[2:]}: a state without an event"


def _hook_events(log: list[Event]) -> Iterator[str]:
    """created, received any number of times, disposed at most once; or nothing but a conflict."""
    by_hook: dict[str, list[str]] = defaultdict(list)
    for event in log:
        if event.kind.value.startswith("hook_"):
            by_hook[event.id].append(event.kind.value.removeprefix("hook_"))
    for hook_id, kinds in by_hook.items():
        first, *others = kinds
        if first != "created" and kinds != ["conflict"]:
            yield f"{hook_id}: its events are {kinds}"
        if set(others[:-1]) - {"received"} or set(others[-1:]) - {"received", "disposed"}:
            yield f"{hook_id}: its events are {kinds}"


def _wait_events(log: list[Event]) -> Iterator[str]:
    counts: dict[str, Counter[EventKind]] = defaultdict(Counter)
    for event in log:
        if event.kind.value.startswith("wait_"):
            counts[event.id][event.kind] += 1
    for wait_id, kinds in counts.items():
        if any(times > 1 for times in kinds.values()) or kinds[EventKind.WAIT_CREATED] != 1:
            yield f"{wait_id}: {dict(kinds)}"


def _cold_replay(log: list[Event], row: dict[str, str], run_id: str, app: Workflows) -> Iterator[str]:
    """A fresh body fed the whole log must follow it, and ask for nothing that the log does not have."""
    if row["workflow"] not in app.workflows or not log:
        return
    instance = _begun(log, row, run_id, app)
    try:
        for event in log:
            instance.deliver(event)
        asked = instance.commands()
        outcome = instance.outcome
    except ReplayDivergence as error:
        yield f"cold replay diverges: {error}"
        return
    finally:
        instance.close()
    ended_by_body = row["status"] == "completed" or (row["status"] == "failed" and row.get("code") == "USER_ERROR")
    if ended_by_body:
        expected = Completed if row["status"] == "completed" else object
        if outcome is None or isinstance(outcome, Cancelled) or not isinstance(outcome, expected):
            yield f"cold replay ends with {outcome!r}, the run is {row['status']}"
        if isinstance(outcome, Completed) and outcome.result != log[int(row["finished_event"]) - 1].payload:
            yield "cold replay gives another result than the log"
    quiet = row["status"] in TERMINAL or int(row.get("woken_at", 0)) <= int(row.get("replayed_to", 0))
    if quiet and (ended_by_body or row["status"] not in TERMINAL):
        new = [*asked.steps, *asked.waits, *asked.cancelled_waits]
        if new:
            yield f"cold replay asks for more: {new[:3]}"
        if outcome is not None and row["status"] not in TERMINAL:
            yield "cold replay ends a run that is open and has nothing to wake it"


def _begun(log: list[Event], row: dict[str, str], run_id: str, app: Workflows) -> Instance:
    created = msgspec.msgpack.decode(log[0].payload, type=RunCreated)
    instance = Instance(run_id=run_id, workflow=app.workflows[row["workflow"]], input=created.input, at=log[0].at)
    open_to = max(int(row.get(field, 0)) for field in ("replayed_to", "begun_to"))
    passed_to = len(log) if row["status"] in TERMINAL else open_to
    instance.learn(passed_to=passed_to, patches=row.get("patches", "").split())
    instance.start()
    return instance


def _prefixes(log: list[Event], row: dict[str, str], run_id: str, app: Workflows) -> Iterator[str]:
    """A body that stays in memory asks after each event for what one asks for that is replayed up to there."""
    if row["workflow"] not in app.workflows or not log:
        return
    every = max(1, len(log) // MOST_PREFIXES)
    warm = _begun(log, row, run_id, app)
    for length, event in enumerate(log, 1):
        warm.deliver(event)
        asked = warm.commands()
        if length % every:
            continue
        cold = _begun(log, row, run_id, app)
        for earlier in log[:length]:
            cold.deliver(earlier)
        if cold.commands() != asked:
            yield f"cold and warm differ after {length} events: {cold.commands()} and {asked}"
        cold.close()
    warm.close()


def _doctor(raw: redis.Redis, partition: Partition, row: dict[str, str]) -> Iterator[str]:
    """No open run has woken_at > replayed_to without a living wake."""
    if row["status"] in TERMINAL or int(row.get("woken_at", 0)) <= int(row.get("replayed_to", 0)):
        return
    wake = row.get("wake", "")
    if wake not in _living_messages(raw, partition):
        yield f"woken_at {row.get('woken_at')} > replayed_to {row.get('replayed_to')}, and its wake {wake!r} is dead"


def _living_messages(raw: redis.Redis, partition: Partition) -> set[str]:
    bodies = [fields.get(b"msg", b"") for stream in streams(raw, partition) for _, fields in raw.xrange(stream)]
    bodies += [body.partition(b"\n")[2] for body in raw.hvals(partition.delayed_body)]
    found = set()
    for body in bodies:
        try:
            found.add(messages.decode(body).message_id)
        except MalformedMessage:
            continue
    return found


def _left_behind(raw: redis.Redis, partition: Partition, open_runs: frozenset[str]) -> Iterator[str]:
    for stream in streams(raw, partition):
        for group in raw.xinfo_groups(stream):
            if group["pending"]:
                yield f"{stream}: {group['pending']} pending: {raw.xpending_range(stream, GROUP, '-', '+', 5)}"
        if entries := raw.xrange(stream, count=3):
            yield f"{stream}: {raw.xlen(stream)} entries left, the first is {entries[0][1].get(b'run')!r}"
    for member in raw.zrange(partition.delayed, 0, -1):
        kind, run_id = member.decode().split(" ")[:2]
        finished = (raw.hget(partition.run(run_id), "status") or b"").decode() in TERMINAL
        # the timers of a finished run go when they are due: they harm nobody
        if run_id not in open_runs and not (kind == "wait" and finished):
            yield f"delayed: {member!r} is left"


def _logs(raw: redis.Redis, namespace: str, found: list[str]) -> str:
    """The logs of the first two runs that are in trouble, headers only."""
    text = []
    for partition in partitions(raw, namespace):
        for run_id in run_ids(raw, partition):
            if len(text) < 2 and any(problem.startswith(f"{run_id}:") for problem in found):
                lines = [element.partition(b"\n")[0].decode() for element in raw.lrange(partition.log(run_id), 0, 60)]
                row = {k.decode(): v for k, v in raw.hgetall(partition.run(run_id)).items()}
                fixed = {k: v for k, v in row.items() if k in ("status", "wake", "woken_at", "replayed_to", "pass")}
                text.append(f"log of {run_id} ({fixed}):\n  " + "\n  ".join(lines))
    return "\n".join(text)


def _literal(tag: str) -> str:
    return "".join(f"\\{c}" if c in "[]*?\\" else c for c in tag)
