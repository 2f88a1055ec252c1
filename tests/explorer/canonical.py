"""When are two states the same?

Entry ids, tokens and workers count by order of appearance, not by what they are called. Who has dropped a delivery
that anybody may take over now makes no difference either.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from tests.explorer import hands
from tests.explorer.model import Outside
from tests.explorer.store import Entry, Stored

_CONSTANT = frozenset({b"workflow", b"deployment", b"pin", b"spec", b"root", b"created_at", b"pass"})
_NAMES = re.compile(rb"\b(?:\d{13}-\d+|t\d+|w[ABC]\b)")


def key(stored: Stored, state: Outside, helpers: int) -> bytes:
    """A digest that equal states share."""
    number = _Numbered()
    workers: list[str] = []
    worked_on: set[tuple[str, str, str]] = set()
    for index, worker in enumerate(state.workers):
        texts = sorted(hand.text() for hand in worker.hands)
        workers.append(f"{index < helpers:d} {';'.join(texts)} {worker.body or ''} {worker.name}")
        worked_on.update((worker.name, hand.held.stream, hand.held.entry) for hand in worker.hands)
    outside = f"{chr(10).join(sorted(workers))}\n{state.budget}\n{state.now}".encode()
    # a pass that nobody repeats any more is forgotten
    last_pass = stored.view.row.get(b"pass", b"")
    if last_pass and b" %s " % last_pass.partition(b" ")[0] in outside:
        outside += last_pass
    if stored.shape is None:
        text = _text(stored)
        names = tuple(_NAMES.findall(text))
        stored.shape = (blake2b(_NAMES.sub(b"#", text), digest_size=16).digest(), names)
    digest, names = stored.shape
    holders = (_holder(entry, worked_on) for entry in stored.view.entries)
    parts = [_NAMES.sub(number.match, outside), digest, *map(number.name, names), *map(number.name, holders)]
    return blake2b(b"\n".join(parts), digest_size=16).digest()


def _text(stored: Stored) -> bytes:
    """All that stands in Redis, but who holds what."""
    view = stored.view
    return b"\n".join(
        [
            *(b"%s=%s" % item for item in view.row.items() if item[0] not in _CONSTANT),
            *(element.partition(b"\n")[0] for element in view.log),
            *(f"{e.stream} {e.id} {e.deliveries} {hands.decoded(e.fields[-1])[1]}".encode() for e in view.entries),
            *(b"%s %d %s" % (member, due, _delayed(body)) for member, due, body in view.delayed),
            b"%d" % view.dead,
            *(b"%s=%s" % item for item in view.hooks),
        ]
    )


def _holder(entry: Entry, worked_on: set[tuple[str, str, str]]) -> bytes:
    if entry.holder in ("", "?") or (entry.holder, entry.stream, entry.id) in worked_on:
        return entry.holder.encode()
    return b"dropped"


class _Numbered:
    """Names of things by the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, bytes] = {b"": b"", b"?": b"?", b"dropped": b"-"}

    def name(self, name: bytes) -> bytes:
        return self._numbers.setdefault(name, b"#%d" % len(self._numbers))

    def match(self, found: re.Match[bytes]) -> bytes:
        return self.name(found.group())


def _delayed(body: bytes) -> bytes:
    header, _, message = body.partition(b"\n")
    return header + hands.decoded(message)[1].encode() if message else b""
