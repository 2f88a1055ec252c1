"""What does a worker do with a delivery, call by call? As consumers/steps.py, workflows.py and attempts.py do it."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from redisworld import events, messages
from redisworld.messages import Message, RunContext, StepMessage, moved
from redisworld.settings import SPEC_VERSION
from redisworld.world import ClaimItem, Completion, Delivery, Outgoing
from tests.explorer import bodies
from tests.explorer.model import RUN, TOKEN, Hand, Held, Scenario
from tests.explorer.store import PARTITION, View

Args = list[str | bytes | int]

_CEILING = (1_000_000, 1_000_000)
"""Events that a log may hold, and how long a run that has reached it stays."""


class Unexpected(Exception):
    """An answer that no worker should get in these scenarios."""


@cache
def decoded(body: bytes) -> tuple[Message, str]:
    """A message, and what tells it from others in a word or two."""
    message = messages.decode(body)
    if isinstance(message, StepMessage):
        return message, f"{short(message.message_id)}/{message.deliveries}"
    return message, f"{message.message_id}/{message.deliveries}{'+' if message.run_input else ''}"


def short(identifier: str) -> str:
    """An id without its hash: s1, w2."""
    return identifier.partition("_")[0]


def first(held: Held, now: int, token: str, scenario: Scenario, view: View) -> Hand:
    """A delivery as it comes to a worker; ``token`` is one that nobody knows."""
    message = held.message
    if isinstance(message, StepMessage):
        return Hand(
            held,
            "claim",
            token=token,
            step=message.step_id,
            name=message.step_name,
            ensure=message.deliveries > 1 or held.deliveries > 1,
        )
    if message.run_input is not None and message.deliveries == 1 and held.deliveries == 1:
        hand = Hand(held, "commit", token=token, prefix=1, started_at=max(held.published, now))
        return _with_hook(hand, view, scenario)
    return Hand(held, "load")


def call(hand: Hand, consumer: str, now: int, view: View, scenario: Scenario, may_replay: bool) -> tuple[str, Args]:
    """The script that the hand calls next, with its arguments."""
    held = hand.held
    delivery = Delivery(PARTITION, held.stream, held.entry, {})
    if hand.does == "load":
        return "load_run", [
            now, consumer, RUN, held.message.message_id, held.stream, held.entry, hand.prefix, 1000, 1 << 20, *_CEILING
        ]  # fmt: skip
    if hand.does == "stage":
        return "stage_hook", [now, RUN, hand.step, TOKEN]
    if hand.does == "point":
        return "claim_token", [TOKEN, RUN, hand.step, "", ""]
    if hand.does in ("commit", "go"):
        return "commit_pass", _commit(hand, consumer, now, view, scenario)
    if hand.does == "finish":
        outcome = bodies.outcome(hand.name, hand.charged)
        return "complete_many", [now, consumer, *_completion(hand, delivery, outcome, may_replay).args()]
    if hand.does == "move":
        return "move_message", _move(hand, consumer, now, moved(held.message), hand.delay_ms)
    item = ClaimItem(
        run_id=RUN,
        step_id=hand.step,
        token=hand.token,
        message_id=held.message.message_id,
        delivery=delivery,
        attempts_allowed=bodies.app.steps[hand.name].max_attempts,
        may_replay=may_replay or hand.does == "own",
        step_name=hand.name,
        input=held.message.step_input if isinstance(held.message, StepMessage) and hand.does == "claim" else None,
        ensure=hand.ensure,
        owned=hand.does == "own",
    )
    return "claim_many", [now, consumer, *_CEILING, *item.args()]


def hand_back(hand: Hand, consumer: str, now: int) -> tuple[str, Args] | None:
    """What a draining worker calls instead: a message that has not started goes back, a body is handed back."""
    held = hand.held
    if hand.does in ("finish", "go"):
        delivery = Delivery(PARTITION, held.stream, held.entry, {})
        item = msgspec.structs.replace(_completion(hand, delivery, "retrying", False), cause="drain", delay_ms=0)
        return "complete_many", [now, consumer, *item.args()]
    if hand.does == "claim" or (hand.started_at and hand.does != "point"):
        message = held.message
        again = msgspec.structs.replace(message, deliveries=message.deliveries + held.deliveries)
        return "move_message", _move(hand, consumer, now, again, 0)
    return None


def _move(hand: Hand, consumer: str, now: int, message: Message, delay_ms: int) -> Args:
    held = hand.held
    args = Outgoing.of(message).args(old_id=held.message.message_id, target=held.stream, delay_ms=delay_ms)
    return [now, consumer, held.stream, held.entry, *args]


def _completion(hand: Hand, delivery: Delivery, outcome: str, may_replay: bool) -> Completion:
    retrying = outcome == "retrying"
    return Completion(
        run_id=RUN,
        step_id=hand.step,
        token=hand.token,
        outcome=outcome,
        message_id=hand.held.message.message_id,
        delivery=delivery,
        payload=bodies.RESULT if outcome == "completed" else bodies.ERROR,
        may_replay=(may_replay or hand.inline) and not retrying,
        cause="" if outcome == "completed" else "error",
        delay_ms=bodies.RETRY_MS if retrying else 0,
        step_name=hand.name,
        target="steps" if retrying else "",
        message=_retry_message(hand) if retrying else b"",
    )


def _retry_message(hand: Hand) -> bytes:
    message = hand.held.message
    return messages.encode(
        StepMessage(
            message_id=hand.step if hand.inline else message.message_id,
            run_id=RUN,
            workflow_name=message.workflow_name,
            step_id=hand.step,
            step_name=hand.name,
            run_context=RunContext("", SPEC_VERSION),
            step_input=bodies.app.steps[hand.name].signature.encode_call((), {}),
        )
    )


def _asked(hand: Hand, view: View, scenario: Scenario) -> bodies.Asked:
    elements = view.log[: hand.prefix]
    if hand.does == "go":  # the last element is not there yet
        elements = (*view.log[: hand.prefix - 1], _end(hand, view))
    log, points = bodies.seen(elements, hand.points)
    at = hand.started_at or bodies.body_time(view.log)
    return bodies.ask(scenario.workflow, log, points, at, scenario.chunk, scenario.inline)


def _end(hand: Hand, view: View) -> bytes:
    """The end of the hand's inline step, as a body that goes on from it sees it: at the time of its start."""
    at = events.parse(view.log[hand.prefix - 2]).at
    outcome = bodies.outcome(hand.name, hand.charged)
    payload = bodies.RESULT if outcome == "completed" else bodies.ERROR
    return f"step_{outcome} {hand.step} {hand.attempt} {at}\n".encode() + payload


def _did(hand: Hand, view: View) -> list[str | bytes | int]:
    end = events.parse(_end(hand, view))
    outcome = end.kind.removeprefix("step_")
    return ["did", hand.step, hand.token, outcome, hand.prefix - 1, end.at, end.payload]


def _pass_token(hand: Hand) -> str:
    return hand.token + "g" if hand.does == "go" else hand.token


def _commit(hand: Hand, consumer: str, now: int, view: View, scenario: Scenario) -> Args:
    calls, held = _asked(hand, view, scenario).calls, hand.held
    token = _pass_token(hand)
    items = [token + "i" if item == bodies.INLINE_TOKEN else item for item in calls[hand.chunk]]
    if hand.does == "go" and hand.chunk == 0:
        items = [*_did(hand, view), *items]
    last = int(hand.chunk == len(calls) - 1)
    return [
        now, consumer, RUN, hand.replayed_to, hand.prefix, held.message.message_id, held.stream, held.entry,
        token, hand.chunk + 1, last, *_CEILING, SPEC_VERSION, hand.started_at or "", *items,
    ]  # fmt: skip


def after(hand: Hand, answer: list[Any], view: View, scenario: Scenario, token: str) -> Hand | None:
    """What the hand does after the answer; None when it is done with its delivery. Raises Unexpected.

    ``token`` is one that nobody knows.
    """
    word, detail = _word(answer, 0), _word(answer, 1)
    if word in ("broken", "diverged", "not_found"):
        raise Unexpected(f"{hand.does} {short(hand.step)} answered {answer}")
    return _AFTER[hand.does](hand, word, detail, answer, view, scenario, token)


def _word(answer: list[Any], index: int) -> str:
    item = answer[index] if len(answer) > index else b""
    return item.decode() if isinstance(item, bytes) else str(item)


def _keep(hand: Hand, points: tuple[int, ...]) -> Hand:
    """Done with the delivery; the body that waits stays in memory."""
    return Hand(hand.held, "keep", prefix=hand.prefix, points=points)


def begins_job(hand: Hand) -> bool:
    """Whether the load that comes after this hand may go on with a body that waits in memory."""
    return hand.does == "claim" or (hand.does == "finish" and not hand.inline)


def _load(hand: Hand) -> Hand:
    """On to new events, with the live body where there is one."""
    return Hand(hand.held, "load", prefix=hand.prefix, points=hand.points)


def _claimed(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word == "started":
        return Hand(
            hand.held,
            "finish",
            token=hand.token,
            step=hand.step,
            name=hand.name,
            attempt=int(detail),
            charged=int(_word(answer, 2)),
        )
    if word in ("skipped", "exhausted") and detail in ("responsible", "owned"):
        return Hand(hand.held, "load")
    if word == "too_early":
        return Hand(hand.held, "move", delay_ms=max(1, int(detail)))
    if word == "missing":
        if hand.ensure:
            raise Unexpected(f"claim of {short(hand.step)} answered missing to ensure")
        return hand._replace(ensure=True, asked=False)
    return None


def _own_claimed(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word == "started":
        return hand._replace(
            does="finish", asked=False, inline=True, attempt=int(detail), charged=int(_word(answer, 2))
        )
    return _load(hand) if detail == "responsible" else None


def _finished(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word in ("completed", "failed", "retrying"):
        start = f"step_{word} {hand.step} {hand.attempt} ".encode()
        if not any(element.startswith(start) for element in view.log):
            raise Unexpected(f"{word} was recorded, but not for attempt {hand.attempt} of {short(hand.step)}")
    if detail == "responsible":
        return _load(hand)
    return _keep(hand, hand.points) if hand.keeps else None


def _loaded(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word != "loaded":
        return _keep(hand, hand.points) if word == "settled" and hand.prefix else None
    fields, length, owned = answer[1], int(_word(answer, 2)), _word(answer, 3)
    if owned:
        name = next(
            element.split(b"\n")[0].split(b" ")[4].decode()
            for element in view.log
            if element.startswith(b"step_created " + owned.encode() + b" ")
        )
        return hand._replace(does="own", asked=False, token=token, step=owned, name=name)
    replayed_to = int(fields[7] or 0)
    points = hand.points + ((replayed_to,) if hand.prefix < replayed_to <= length else ())
    ready = Hand(hand.held, "commit", token=token, prefix=length, points=points, replayed_to=replayed_to)
    return _with_hook(ready, view, scenario)


def _with_hook(hand: Hand, view: View, scenario: Scenario) -> Hand:
    """A commit that creates a hook has two calls before it: the row says so, then the token's pointer."""
    hook = _asked(hand, view, scenario).hook
    return hand._replace(does="stage", step=hook) if hook else hand


def _staged(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    return hand._replace(does="point") if word == "staged" else hand._replace(does="commit", step="")


def _pointed(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word != "claimed":
        raise Unexpected(f"the token is held by {answer}")
    return hand._replace(does="commit", step="")


def _committed(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word == "chunk":
        return hand._replace(chunk=hand.chunk + 1, started_at=0, asked=False)
    points = (*hand.points, hand.prefix)
    if word == "committed" and detail == "1":
        asked = _asked(hand, view, scenario)
        started = Hand(
            hand.held,
            "finish",
            token=_pass_token(hand) + "i",
            step=asked.step,
            name=asked.name,
            attempt=1,
            charged=1,
            inline=True,
            keeps=True,
            prefix=hand.prefix,
            points=points,
        )
        return _gone_on(started, asked.alone, hand.started_at > 0, view, scenario)
    if word == "again":
        return Hand(hand.held, "load", prefix=hand.prefix, points=points)
    if word == "committed":
        return _keep(hand, points)
    if (word, detail) == ("lost", "1"):
        return Hand(hand.held, "load")
    return None


def _gone_on(started: Hand, alone: bool, first: bool, view: View, scenario: Scenario) -> Hand:
    """The inline step that has started: its body may go on from its end before that is recorded."""
    if not alone or bodies.outcome(started.name, started.charged) == "retrying":
        return started
    length = started.prefix + 2 + first  # what the commit has written if nothing came before it
    if length > len(view.log):
        raise Unexpected(f"a commit that starts a step wrote less than that: {view.log[started.prefix :]}")
    going = started._replace(does="go", prefix=length + 1, replayed_to=started.prefix)
    return started._replace(keeps=False, prefix=0, points=()) if _asked(going, view, scenario).hook else going


def _went_on(
    hand: Hand, word: str, detail: str, answer: list[Any], view: View, scenario: Scenario, token: str
) -> Hand | None:
    if word in ("chunk", "committed", "again", "ended"):
        return _committed(hand, word, detail, answer, view, scenario, token)
    alone = Hand(hand.held, "finish", token=hand.token, step=hand.step, name=hand.name, attempt=hand.attempt)
    return alone._replace(charged=hand.charged, inline=True)


def robbed(hand: Hand, answer: list[Any], before: View) -> str:
    """The delivery that lives and had the attempt which this claim has replaced; or ""."""
    if hand.does not in ("claim", "own") or _word(answer, 0) != "started":
        return ""
    state = before.row.get(b"s:" + hand.step.encode(), b"").decode().split("|")
    if state[0] != "running" or state[3] == hand.token:
        return ""
    entry, _, stream = state[5].partition("/")
    had = ("workflows" if stream == "w" else "steps", entry)
    if had == (hand.held.stream, hand.held.entry) or not any((e.stream, e.id) == had for e in before.entries):
        return ""
    return entry


_AFTER = {
    "claim": _claimed,
    "own": _own_claimed,
    "finish": _finished,
    "load": _loaded,
    "stage": _staged,
    "point": _pointed,
    "commit": _committed,
    "go": _went_on,
}
