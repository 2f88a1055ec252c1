"""How does a step, wait or hook get the same id in every replay?"""

from __future__ import annotations

import base64
from hashlib import blake2b


def correlation_id(kind: str, run_id: str, number: int) -> str:
    """The id of the run's ``number``-th step (kind ``s``) or wait (kind ``w``), like ``s2_mfzwizltoq2t``.

    The hash makes ids of different runs differ, so that a step id alone can be an idempotency key elsewhere.
    """
    digest = blake2b(f"{run_id}:{number}".encode(), digest_size=8).digest()
    return f"{kind}{number}_{base64.b32encode(digest)[:12].decode().lower()}"


def number_of(identifier: str) -> int | None:
    """The number in a correlation id, or None when it is none of ours."""
    number = identifier[1:].partition("_")[0]
    return int(number) if number.isdecimal() else None
