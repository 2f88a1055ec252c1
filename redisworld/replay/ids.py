"""How does a step, wait or hook get the same id in every replay?"""

from __future__ import annotations

import base64
from hashlib import blake2b


def ending_of(run_id: str) -> str:
    """What all correlation ids of a run end in: twelve letters and digits, alike in every replay.

    The run's second step is ``s2_mfzwizltoq2t``, its first wait after that ``w3_mfzwizltoq2t``, and so on: hooks are
    ``h``, attributes ``a``. Ids of different runs differ by their ends, so that a step id alone can be an idempotency
    key elsewhere.
    """
    return base64.b32encode(blake2b(run_id.encode(), digest_size=8).digest()).decode()[:12].lower()


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
