"""What lies in Redis, and what should lie there? Both as one dictionary, in the model's words."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import msgspec
import redis

from redisworld import events, messages, runs
from redisworld.keys import GROUP, Partition
from tests.model.model import Delayed, Entry, Event, Run, Step, Store

STREAMS = ("workflows", "steps")
RUNS = ("r1", "r2", "r3")
TOKENS = ("k1", "k2")
_INDEXES = ("created", "status:pending", "status:running", "status:completed", "status:failed", "status:cancelled")
_UNSEEN = ("workflow", "spec", "deployment", "pin", "root", "parked")

Picture = dict[str, object]


class Names:
    """The model's names of stream entries: ``steps#3`` is the third one that was ever in steps."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], str] = {}
        self._seen = dict.fromkeys(STREAMS, 0)

    def name(self, stream: str, entry_id: str) -> str:
        if (stream, entry_id) not in self._by_id:
            self._seen[stream] += 1
            self._by_id[stream, entry_id] = f"{stream}#{self._seen[stream]}"
        return self._by_id[stream, entry_id]

    def id(self, name: str) -> str:
        """The entry id behind a name."""
        return next(entry_id for (_, entry_id), known in self._by_id.items() if known == name)


def expected(store: Store) -> Picture:
    """The picture of the model."""
    picture: Picture = {
        "entries": {stream: [e for e in store.entries.values() if e.stream == stream] for stream in STREAMS},
        "delayed": {d.member: d for d in store.delayed.values()},
        "letters": [(letter.kind, letter.run, letter.message) for letter in store.letters],
        "counts": {name: count for name, count in store.counts.items() if count},
        "pointers": {
            token: {"run": run, "hook": hook} | ({"was": was} if was else {})
            for token, (run, hook, was) in store.pointers.items()
        },
        "releases": dict(store.releases),
        "created": {run.id: run.created_at for run in store.runs.values()},
    }
    for run in store.runs.values():
        picture |= _row(run)
        picture[f"{run.id} log"] = run.log
    for index in _INDEXES[1:]:
        status = index.partition(":")[2]
        picture[index] = {run.id: run.created_at for run in store.runs.values() if run.status == status}
    return picture


def _row(run: Run) -> Picture:
    fields: Picture = {"status": run.status, "created_at": run.created_at, "last_at": run.floor}
    for name in ("started_at", "finished_at", "finished_event", "code", "cancel_requested", "delays"):
        if value := getattr(run, name):
            fields[name] = value
    if not run.terminal:
        fields |= {"woken_at": run.woken_at, "replayed_to": run.replayed_to, "wake": run.wake}
        if run.begun_to:
            fields["begun_to"] = run.begun_to
    if run.committed[0]:
        word, number, at = run.committed[1]
        fields["pass"] = f"{run.committed[0]} {word} {int(number)} {at}"
    fields |= {f"s:{step_id}": step for step_id, step in run.steps.items()}
    fields |= {f"h:{hook}": state for hook, state in run.hooks.items()}
    fields |= {f"e:{id}": number for id, number in run.attribute_events.items()}
    if run.attributes:
        fields["attributes"] = run.attributes
    if run.tokens:
        fields["hooks"] = run.tokens
    if run.resumes:
        fields["resumes"] = {
            id: f"{number}|{hashlib.sha1(payload, usedforsecurity=False).hexdigest()}|{token}"
            for id, (number, payload, token) in run.resumes.items()
        }
    for group_id, group in [] if run.terminal else run.groups.items():
        left = sum(step.group == group_id and not step.terminal for step in run.steps.values())
        fields[f"g:{group_id}"] = (left, group.mode, group.sealed)
    fields |= {f"w:{id}": f"waiting|{due}" if state == "waiting" else state for id, (state, due) in run.waits.items()}
    fields |= {f"own:{message}": step_id for message, step_id in run.owners.items()}
    return {f"{run.id} {name}": value for name, value in fields.items()}


def seen(raw: redis.Redis, partition: Partition, names: Names, consumers: dict[bytes, str]) -> Picture:
    """The picture of Redis, in one round trip."""
    pipeline = raw.pipeline(transaction=False)
    for stream in STREAMS:
        pipeline.xrange(partition.tag + stream)
        pipeline.xpending_range(partition.tag + stream, GROUP, "-", "+", count=1000)
    pipeline.zrange(partition.delayed, 0, -1, withscores=True)
    pipeline.hgetall(partition.delayed_body)
    pipeline.xrange(partition.dead)
    pipeline.hgetall(partition.stats)
    for index in _INDEXES:
        pipeline.zrange(partition.index(index), 0, -1, withscores=True)
    for token in TOKENS:
        pipeline.hgetall(partition.hook(token))
    pipeline.hgetall(partition.releases)
    for run_id in RUNS:
        pipeline.hgetall(partition.run(run_id))
        pipeline.hgetall(partition.hooks(run_id))
        pipeline.hgetall(partition.resumes(run_id))
        pipeline.lrange(partition.log(run_id), 0, -1)
    answers = iter(pipeline.execute())
    picture: Picture = {"entries": {s: _entries(s, next(answers), next(answers), names, consumers) for s in STREAMS}}
    picture["delayed"] = _delayed(next(answers), next(answers))
    picture["letters"] = [_letter(fields) for _, fields in next(answers)]
    picture["counts"] = {name.decode(): int(count) for name, count in next(answers).items()}
    for index in _INDEXES:
        picture[index] = {run_id.decode(): int(score) for run_id, score in next(answers)}
    pointers = {token: _texts(next(answers)) for token in TOKENS}
    picture["pointers"] = {token: pointer for token, pointer in pointers.items() if pointer}
    picture["releases"] = _texts(next(answers))
    for run_id in RUNS:
        row = next(answers)
        for name in ("hooks", "resumes"):
            if found := _texts(next(answers)):
                picture[f"{run_id} {name}"] = found
        ended = b"finished_at" in row  # nobody counts its groups any more
        for field, value in row.items():
            if field.decode() not in _UNSEEN and not (ended and field.startswith(b"g:")):
                picture[f"{run_id} {field.decode()}"] = _field(field.decode(), value.decode(), names)
        if log := next(answers):
            picture[f"{run_id} log"] = [_event(element) for element in log]
    return picture


def _texts(found: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in found.items()}


def _entries(stream: str, found: Any, pending: Any, names: Names, consumers: dict[bytes, str]) -> list[object]:
    held = {item["message_id"]: item for item in pending}
    entries: list[object] = []
    for entry_id, fields in found:
        item = held.pop(entry_id, None)
        entries.append(
            Entry(
                names.name(stream, entry_id.decode()),
                fields[b"kind"].decode(),
                fields[b"run"].decode(),
                fields.get(b"step", b"").decode(),
                _message_id(fields[b"msg"]),
                consumers[item["consumer"]] if item else "",
                item["times_delivered"] if item else 0,
            )
        )
    return entries + [f"{names.name(stream, entry_id.decode())}: pending but deleted" for entry_id in held]


def _delayed(members: Any, bodies: dict[bytes, bytes]) -> dict[str, object]:
    found: dict[str, object] = {}
    for member, due in members:
        kind, run, id = member.decode().split(" ")
        header = bodies.pop(member).split(b"\n", 1)[0].decode().split(" ") if kind != "wait" else ["", ""]
        found[member.decode()] = Delayed(int(due), kind, run, id, header[1].replace("-", ""), header[0])
    return found | {member.decode(): "a body without a time" for member in bodies}


def _letter(fields: dict[bytes, bytes]) -> tuple[str, str, str]:
    return fields[b"kind"].decode(), fields[b"original:run"].decode(), _message_id(fields[b"original:msg"])


def _field(field: str, value: str, names: Names) -> object:
    if field.startswith("s:"):
        return _step(field[2:], runs.Step.parse(value), names)
    if field.startswith("g:"):
        left, mode, sealed, _ = value.split("|")
        return int(left), mode, sealed == "1"
    if field == "attributes":
        return json.loads(value)
    return int(value) if value.isdigit() else value


def _step(step_id: str, step: runs.Step, names: Names) -> Step:
    entry, _, rest = step.entry_id.partition("/")
    stream = {"": "steps", "w": "workflows"}.get(rest, rest)
    return Step(
        status=step.status.value,
        attempt=step.attempt,
        uncharged=step.uncharged,
        token=step.token,
        message=step.message_id or (step_id if step.status == runs.Status.RUNNING else ""),
        entry=names.name(stream, entry) if entry else "",
        group=step.group,
        retry_at=step.retry_at,
    )


@cache
def _event(element: bytes) -> Event:
    event = events.parse(element)
    return Event(event.kind.value, event.id, event.attempt, event.at)


@cache
def _message_id(body: bytes) -> str:
    return messages.decode(body).message_id


def differences(real: Picture, model: Picture) -> list[str]:
    """One line for each thing that is not as the model has it."""
    lines = []
    for name in sorted(real.keys() | model.keys()):
        if real.get(name) != model.get(name):
            lines.append(f"{name}:\n    redis: {_text(real.get(name))}\n    model: {_text(model.get(name))}")
    return lines


def _text(value: object) -> str:
    if isinstance(value, msgspec.Struct):  # what is as usual says nothing
        usual = dict(
            zip(value.__struct_fields__[-len(value.__struct_defaults__) :], value.__struct_defaults__, strict=False)
        )
        shown = {k: v for k, v in msgspec.structs.asdict(value).items() if k not in usual or usual[k] != v}
        return " ".join(f"{k}={v}" for k, v in shown.items())
    if isinstance(value, list):
        return "[" + "; ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + "; ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    return repr(value)
