"""How does a step, wait or hook get the same id in every replay?"""

from __future__ import annotations

import base64
from functools import lru_cache
from hashlib import blake2b

_PAIRS = tuple(a + b for a in "abcdefghijklmnopqrstuvwxyz234567" for b in "abcdefghijklmnopqrstuvwxyz234567")
"""Base32 of ten bits each: the library's is in Python, and most of what an id would cost."""


def correlation_id(kind: str, run_id: str, number: int) -> str:
    """The id of the run's ``number``-th step (kind ``s``), wait (``w``), hook (``h``) or attributes (``a``).

    Like ``s2_mfzwizltoq2t``. The hash makes ids of different runs differ, so that a step id alone can be an
    idempotency key elsewhere.
    """
    of_run = _hash_of_run(run_id).copy()
    of_run.update(str(number).encode())
    n, pairs = int.from_bytes(of_run.digest()) >> 4, _PAIRS  # twelve letters of five bits
    letters = (n >> 50, n >> 40 & 1023, n >> 30 & 1023, n >> 20 & 1023, n >> 10 & 1023, n & 1023)
    return f"{kind}{number}_{''.join([pairs[bits] for bits in letters])}"


@lru_cache(maxsize=1_024)
def _hash_of_run(run_id: str) -> blake2b:
    return blake2b(f"{run_id}:".encode(), digest_size=8)


def secret_id(run_id: str, number: int) -> str:
    """The token of the run's ``number``-th hook when the body names none: 24 letters and digits, alike in every replay.

    It cannot be read off the hook's id. Who knows the run id can compute it: a token guards nothing by itself.
    """
    digest = blake2b(f"{run_id}:{number}:token".encode(), digest_size=15).digest()
    return base64.b32encode(digest).decode().lower()


def hash_base(run_id: str) -> int:
    """What the hashes of the run's tasks and futures count from, alike in every replay.

    Counting from zero in every run would make all first tasks of a process collide where asyncio and anyio keep the
    tasks of all loops: with a thousand bodies in memory a new task cost a thousand comparisons. The low bits stay
    zero, so that a small set of tasks iterates in the order they were made.
    """
    return int.from_bytes(blake2b(run_id.encode(), digest_size=5).digest()) << 20


def number_of(identifier: str) -> int | None:
    """The number in a correlation id, or None when it is none of ours."""
    number = identifier[1:].partition("_")[0]
    return int(number) if number.isdecimal() else None
