"""Which text can be the id of a run, and what does one look like that nobody chose?"""

from __future__ import annotations

import re
import secrets
import time

from redisworld.errors import InvalidInput

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(a + b for a in _LETTERS for b in _LETTERS)
"""Crockford's base 32, ten bits each."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/+=-]{0,127}")


def new_run_id() -> str:
    """A run id that sorts by the time it was made: 48 bits of ms and 80 random bits, in Crockford's base 32."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "run_" + "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def check_run_id(run_id: str) -> str:
    """The run id, if it can be one. Raises InvalidInput."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise InvalidInput(
            f"run id {run_id!r} cannot be used: 1 to 128 letters, digits and . _ ~ / + = -, "
            "beginning with a letter or digit"
        )
    return run_id
