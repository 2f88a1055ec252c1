"""How does a step, wait or hook get the same id in every replay?"""

from __future__ import annotations

import base64
from hashlib import blake2b

_PAIRS = tuple(a + b for a in "abcdefghijklmnopqrstuvwxyz234567" for b in "abcdefghijklmnopqrstuvwxyz234567")
"""Base32 of ten bits each: the library's is in Python, and takes as long as a body of one step."""


def number_from(run_id: str) -> int:
    """64 bits that tell this run from others, alike in every replay."""
    return int.from_bytes(blake2b(run_id.encode(), digest_size=8).digest())


def ending_of(number: int) -> str:
    """What all correlation ids of a run end in: twelve letters and digits.

    The run's second step is ``s2_mfzwizltoq2t``, its first wait after that ``w3_mfzwizltoq2t``, and so on: hooks are
    ``h``, attributes ``a``. Ids of different runs differ by their ends, so that a step id alone can be an idempotency
    key elsewhere.
    """
    n, pairs = number >> 4, _PAIRS  # twelve letters of five bits
    letters = (n >> 50, n >> 40 & 1023, n >> 30 & 1023, n >> 20 & 1023, n >> 10 & 1023, n & 1023)
    return "".join([pairs[bits] for bits in letters])


def secret_id(run_id: str, number: int) -> str:
    """The token of the run's ``number``-th hook when the body names none: 24 letters and digits, alike in every replay.

    It cannot be read off the hook's id. Who knows the run id can compute it: a token guards nothing by itself.
    """
    digest = blake2b(f"{run_id}:{number}:token".encode(), digest_size=15).digest()
    return base64.b32encode(digest).decode().lower()


def hash_base(number: int) -> int:
    """What the hashes of the run's tasks and futures count from.

    Counting from zero in every run would make all first tasks of a process collide where asyncio and anyio keep the
    tasks of all loops: with a thousand bodies in memory a new task cost a thousand comparisons. The low bits stay
    zero, so that a small set of tasks iterates in the order they were made.
    """
    return (number & 0xFF_FFFF_FFFF) << 20


def number_of(identifier: str) -> int | None:
    """The number in a correlation id, or None when it is none of ours."""
    number = identifier[1:].partition("_")[0]
    return int(number) if number.isdecimal() else None
