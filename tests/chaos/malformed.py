"""Which entries that are no messages of ours can turn up in a stream? Endless, and the same for one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from redisworld import messages
from redisworld.messages import RunContext, StepMessage

Fields = dict[Any, Any]

_pack = msgspec.msgpack.Encoder().encode
_TEXTS = ("message_id", "run_id", "workflow_name", "step_id", "step_name")


def _good(number: int) -> dict[str, Any]:
    texts = (f"m{number}", "ghost", "w", "s1", "note")
    return {"kind": "step", **dict(zip(_TEXTS, texts, strict=True))}


def _entry(body: bytes, **fields: Any) -> Fields:
    return {"kind": "step", "spec": "1", "run": "ghost", "step": "s1", "name": "note", "msg": body} | fields


def _without(number: int, chance: random.Random) -> bytes:
    good = _good(number)
    del good[chance.choice(["kind", *_TEXTS])]
    return _pack(good)


def _wrong_type(number: int, chance: random.Random) -> bytes:
    field = chance.choice([*_TEXTS, "run_context", "step_input", "deliveries"])
    wrong = chance.choice([1.5, True, [], ["x"]] if field not in _TEXTS else [7, 1.5, None, True, [], {}, b"\xff"])
    return _pack(_good(number) | {field: wrong})


def _no_word(number: int, chance: random.Random) -> bytes:
    return _pack(_good(number) | {chance.choice(_TEXTS): chance.choice(["", "a b", "a|b", "a\nb", "a\x00b", "\t"])})


def _truncated(number: int, chance: random.Random) -> bytes:
    good = msgspec.convert(_good(number) | {"run_context": RunContext("", 1), "step_input": b"\x90"}, StepMessage)
    whole = messages.encode(good)
    return whole[: chance.randrange(len(whole))]


KINDS: dict[str, Callable[[int, random.Random], Fields]] = {
    "random bytes": lambda n, c: _entry(c.randbytes(c.randrange(200))),
    "truncated": lambda n, c: _entry(_truncated(n, c)),
    "a field missing": lambda n, c: _entry(_without(n, c)),
    "a field of a wrong type": lambda n, c: _entry(_wrong_type(n, c)),
    "an id that is no word": lambda n, c: _entry(_no_word(n, c)),
    "no map": lambda n, c: _entry(_pack(c.choice([None, 1, "text", [1], b"x", 2**63, -1.0]))),
    "keys that are no text": lambda n, c: _entry(_pack({1: 2, b"x": None})),
    "deep": lambda n, c: _entry(b"\x91" * c.choice([600, 5_000, 50_000]) + b"\x90"),
    "empty": lambda n, c: _entry(b""),
    "no msg": lambda n, c: {"kind": "step", "run": "ghost"},
    "fields of nobody": lambda n, c: {c.randbytes(8): c.randbytes(8), b"\xff\xfe": b""},
    "text that is no UTF-8": lambda n, c: _entry(b"\xc1", run=b"\xff\xfe", name=b"\x80"),
    "an unknown kind": lambda n, c: _entry(b"\xc1", kind=c.choice(["", "unknown", "STEP", "workflow "])),
    "an absurd spec": lambda n, c: _entry(b"\xc1", spec=c.choice(["", "x", "-1", "9" * 40, "9" * 5_000, "²"])),
    "a wake that is none": lambda n, c: _entry(c.randbytes(40), kind="workflow", reason="x" * 500),
    "a message of no kind": lambda n, c: _entry(_pack(_good(n) | {"kind": "nothing"}), kind="workflow"),
    "trailing bytes": lambda n, c: _entry(_pack(_good(n)) + b"\x01"),
}


def entries(count: int, seed: int) -> Iterator[tuple[str, Fields]]:
    """So many entries of all kinds in turn, with their kinds; a huge one now and then."""
    chance = random.Random(seed)
    kinds = list(KINDS.items())
    for number in range(count):
        if number % 1_000 == 999:
            yield "huge", _entry(chance.randbytes(3_000_000))
            continue
        name, make = kinds[number % len(kinds)]
        yield name, make(number, chance)
