"""What do answers of Redis mean? A script's begins with a word of the design; ``broken`` is never passed on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from redisworld.errors import MalformedMessage
from redisworld.keys import GROUP
from redisworld.world.deliveries import MOST_DIGITS, Claim, Loaded

Reply = TypeVar("Reply", bound=Sequence[Any])

_MOST_SCORE = 2**53
"""Whole numbers are exact up to here, as scores are."""


def text_of(value: Any) -> str:
    """A name, an id or a number in an answer, as text; a stranger's may be no UTF-8, or cut in a character."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number_of(text: str) -> int:
    """A number that a row holds, 0 where it holds none. Raises ValueError for what is none, or is too long for one."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:80]!r} is too long for a number")
    return int(text or 0)


def score_of(score: float) -> int:
    """A score of a sorted set, as a whole number that a score can be; a stranger's may be infinite."""
    return int(max(-_MOST_SCORE, min(score, _MOST_SCORE)))


def entry_number(entry: bytes | str) -> tuple[int, int]:
    """Both numbers of an entry id, by which entries are in order."""
    ms, _, count = text_of(entry).partition("-")
    return int(ms), int(count)


def entry_ms(entry: bytes | str) -> int:
    """When an entry was sent, in epoch ms by Redis."""
    return entry_number(entry)[0]


def our_group(groups: Iterable[Any]) -> dict[str, Any] | None:
    """What XINFO GROUPS says of the one group that workers read through; None where the stream has none."""
    return next((group for group in groups if text_of(group["name"]) == GROUP), None)


def checked(reply: Reply) -> Reply:
    """The answer, unless its word is ``broken``: raises MalformedMessage with what the script found."""
    if reply and reply[0] == b"broken":
        raise MalformedMessage(f"the script found something it cannot work with: {detail_of(reply)}")
    return reply


def word_of(reply: Sequence[Any]) -> str:
    """The outcome word. Raises MalformedMessage for ``broken``."""
    word: str = checked(reply)[0].decode()
    return word


def items_of(reply: Sequence[Any]) -> Sequence[Any]:
    """The answers to the items of a batch, each in its parts."""
    return [answer.split() if isinstance(answer, bytes) else answer for answer in reply]  # the usual ones come as text


def detail_of(reply: Sequence[Any]) -> str:
    """What comes with the word, as text, or ``""``."""
    if len(reply) < 2:
        return ""
    return text_of(reply[1])


def claim_of(reply: Sequence[Any]) -> Claim:
    """One answer of claim_many; here ``broken`` is an outcome, since its neighbours are not."""
    word = reply[0].decode()
    if word == "started":
        return Claim(
            outcome=word,
            attempt=int(reply[1]),
            charged=int(reply[2]),
            first_started_at=int(reply[3]),
            started_at=int(reply[4]),
            input=reply[5] if len(reply) > 5 else None,
        )
    if word == "too_early":
        return Claim(outcome=word, wait_ms=int(reply[1]))
    return Claim(outcome=word, detail=detail_of(reply), step_id=text_of(reply[2]) if len(reply) > 2 else "")


def loaded_of(reply: Sequence[Any]) -> Loaded:
    """The answer of load_run."""
    word = word_of(reply)
    if word != "loaded":
        return Loaded(outcome=word, detail=detail_of(reply))
    fields = [text_of(value) if value is not None else "" for value in reply[1]]
    try:
        spec, *numbers = (number_of(value) for value in (fields[2], *fields[4:9]))
    except ValueError as error:
        raise MalformedMessage(f"the row of the run cannot be read: {error}") from error
    return Loaded(
        outcome=word,
        workflow=fields[0],
        deployment=fields[1],
        spec_version=spec or 1,
        root_run_id=fields[3],
        created_at=numbers[0],
        started_at=numbers[1],
        woken_at=numbers[2],
        replayed_to=numbers[3],
        begun_to=numbers[4],
        patches=frozenset(fields[9].split()),
        length=int(reply[2]),
        owned=text_of(reply[3]),
        elements=tuple(reply[4]),
    )
