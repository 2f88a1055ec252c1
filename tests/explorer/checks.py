"""What must hold in every state, and in every state in which nothing goes on by itself?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from redisworld import messages
from redisworld.messages import StepMessage
from tests.explorer import bodies, hands
from tests.explorer.model import Scenario
from tests.explorer.store import View

_ENDS = ("run_completed", "run_failed", "run_cancelled")
_ONCE = ("cancel_requested", "run_started", "run_created")
_STEP_ENDS = ("step_completed", "step_failed")
_TERMINAL = (b"completed", b"failed", b"cancelled")


class _Step:
    """A step's compact state, as far as it is checked."""

    def __init__(self, id: str, state: str) -> None:
        self.id = id
        self.status, _, _, _, self.message, _, self.group, *_ = state.split("|")
        self.open = self.status in ("pending", "running")


def in_every_state(view: View) -> str:
    """What is wrong with this state, or ""."""
    if wrong := _log(tuple(element.partition(b"\n")[0] for element in view.log)):
        return wrong
    return next(_row(view), "")


def at_rest(view: View, scenario: Scenario) -> str:
    """What is wrong with this state, in which no free action is left: the run must have ended, nothing may be left."""
    return next(_rest(view, scenario), "")


def ended_early(view: View) -> bool:
    """Whether the run has ended while one of its steps is open."""
    open_ = (b"pending|", b"running|")
    return view.row[b"status"] in _TERMINAL and any(
        state.startswith(open_) for field, state in view.row.items() if field.startswith(b"s:")
    )


@lru_cache(maxsize=100_000)
def _log(headers: tuple[bytes, ...]) -> str:
    """The log's rules, by the header lines alone."""
    seen: Counter[tuple[str, str]] = Counter()
    attempts: dict[str, int] = {}
    ended, last = "", 0
    for line in headers:
        kind, id, attempt, at, *_ = line.decode().split(" ")
        seen[kind, id] += 1
        name = f"{kind} {hands.short(id)}"
        if int(at) < last:
            return f"{name} is older than the event before"
        last = int(at)
        if kind in _ENDS:
            if ended:
                return f"{kind} after {ended}"
            ended = kind
        elif ended and kind not in _STEP_ENDS:
            return f"{name} after {ended}"
        elif kind in ("step_created", "wait_created", "hook_created", "hook_received", *_ONCE):
            if seen[kind, id] > 1:
                return f"{name} twice"
        elif kind in _STEP_ENDS:
            if sum(seen[end, id] for end in _STEP_ENDS) > 1:
                return f"{hands.short(id)} has ended twice"
        elif kind in ("wait_completed", "wait_cancelled"):
            if seen["wait_completed", id] + seen["wait_cancelled", id] > 1:
                return f"{hands.short(id)} has ended twice"
        elif kind == "step_started":
            if int(attempt) <= attempts.get(id, 0):
                return f"attempt {attempt} of {hands.short(id)} started after attempt {attempts[id]}"
            attempts[id] = int(attempt)
            if any(seen[end, id] for end in _STEP_ENDS):
                return f"{hands.short(id)} started after its end"
    return ""


def _row(view: View) -> Iterator[str]:
    row = view.row
    ended = row[b"status"] in _TERMINAL
    if ended != any(element.startswith(_ENDS_BYTES) for element in view.log):
        yield "the row's status and the log disagree"
    if ended:
        return
    living = _living(view)
    wake = row.get(b"wake", b"").decode()
    if wake and not living[wake]:
        yield f"the run waits for message {wake}, which is nowhere"
    if int(row[b"woken_at"]) > int(row[b"replayed_to"]) and not wake:
        yield f"woken_at {row[b'woken_at']!r} > replayed_to {row[b'replayed_to']!r}, and nobody is responsible"
    seen = max((n for n, e in enumerate(view.log, 1) if e.startswith(_OBSERVED)), default=0)
    if seen > int(row[b"woken_at"]):
        yield f"event {seen} is observable, but woken_at is {row[b'woken_at'].decode()}"
    steps = [_Step(field[2:].decode(), state.decode()) for field, state in row.items() if field.startswith(b"s:")]
    for step in steps:
        message = step.message or step.id
        if step.open and not living[message]:
            yield f"{hands.short(step.id)} is {step.status}, but its message {hands.short(message)} is nowhere"
    left = Counter(step.group for step in steps if step.open)
    for field, state in row.items():
        if field.startswith(b"g:") and int(state.split(b"|")[0]) != left[field[2:].decode()]:
            yield f"{field.decode()} = {state.decode()}, but {left[field[2:].decode()]} steps of the group are open"
        if field.startswith(b"own:"):
            owned = next((step for step in steps if step.id == state.decode()), None)
            if owned is None or owned.status != "running" or owned.message != field[4:].decode():
                yield f"{field.decode()} names {hands.short(state.decode())}, which it does not run"


_OBSERVED = (b"cancel_requested", b"wait_completed", b"hook_received")
_ENDS_BYTES = tuple(kind.encode() for kind in _ENDS)


def _living(view: View) -> Counter[str]:
    """How often each message id stands in a stream or in the delayed set."""
    found: Counter[str] = Counter()
    for entry in view.entries:
        if entry.holder != "?":
            found[hands.decoded(entry.fields[-1])[0].message_id] += 1
    for _, _, body in view.delayed:
        if body:
            message = messages.decode(body.partition(b"\n")[2])
            found[message.step_id if isinstance(message, StepMessage) else message.message_id] += 1
    return found


def _rest(view: View, scenario: Scenario) -> Iterator[str]:
    status = view.row[b"status"].decode()
    if view.entries:
        yield f"messages are left: {[(e.stream, hands.decoded(e.fields[-1])[1], e.holder) for e in view.entries]}"
    if view.delayed:
        yield "something is left in the delayed set"
    if view.dead:
        yield "there are dead letters"
    if status not in scenario.ends:
        yield f"nothing goes on, and the run is {status}"
    number = next((n for n, element in enumerate(view.log) if element.startswith(_ENDS_BYTES)), len(view.log))
    replayed, kind = bodies.end(scenario.workflow, view.log[:number]), f"run_{status}"
    if replayed != kind and (scenario.budget.cancel != "terminate" or kind != "run_cancelled"):
        yield f"the log says {kind}, and its replay ends with {replayed or 'a body that waits'}"
    if status == "completed":
        result = next(e for e in view.log if e.startswith(b"run_completed")).partition(b"\n")[2]
        if result != scenario.result:
            yield f"the run returned {result!r}"
