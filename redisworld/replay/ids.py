"""How does a step, wait or hook get the same id in every replay?"""

from __future__ import annotations

import base64
from hashlib import blake2b


def correlation_id(kind: str, run_id: str, number: int) -> str:
    """The id of the run's ``number``-th step (kind ``s``), wait (``w``), hook (``h``) or attributes (``a``).

    Like ``s2_mfzwizltoq2t``. The hash makes ids of different runs differ, so that a step id alone can be an
    idempotency key elsewhere.
    """
    digest = blake2b(f"{run_id}:{number}".encode(), digest_size=8).digest()
    return f"{kind}{number}_{base64.b32encode(digest)[:12].decode().lower()}"


def secret_id(run_id: str, number: int) -> str:
    """The token of the run's ``number``-th hook when the body names none: 24 letters and digits, alike in every replay.

    It cannot be read off the hook's id. Who knows the run id can compute it: a token guards nothing by itself.
    """
    digest = blake2b(f"{run_id}:{number}:token".encode(), digest_size=15).digest()
    return base64.b32encode(digest).decode().lower()


def number_of(identifier: str) -> int | None:
    """The number in a correlation id, or None when it is none of ours."""
    number = identifier[1:].partition("_")[0]
    return int(number) if number.isdecimal() else None
