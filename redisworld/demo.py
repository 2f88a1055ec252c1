"""What does ``redisworld demo`` run? Thumbnails of pictures in one fan-out, a durable sleep, a contact sheet.

An application like any other: ``redisworld worker redisworld.demo:wf`` and
``redisworld start redisworld.demo:contact_prints --args '[64]' --wait`` run it too.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from redisworld import Backoff, Workflows, get_step_metadata, sleep

wf = Workflows()

_SIZE = 96
_SCALE = 4
_FLAKY_ATTEMPTS = 2
_DIGEST_ON_SHEET = 16
"""Hex digits of each digest on the sheet: whole ones of 100,000 pictures would be more than max_payload."""


@dataclass(frozen=True)
class Thumbnail:
    """A picture scaled down."""

    width: int
    height: int
    sha256: str


@wf.step(backoff=Backoff.exponential("200ms"))
def thumbnail(number: int, flaky: bool) -> Thumbnail:
    """Render picture ``number`` and scale it down: a few ms of CPU. A flaky one fails on its first two attempts."""
    if flaky and (attempt := get_step_metadata().attempt) <= _FLAKY_ATTEMPTS:
        raise OSError(f"the camera of picture {number} did not answer (attempt {attempt})")
    pixels = _scaled_down(_rendered(number))
    side = _SIZE // _SCALE
    return Thumbnail(side, side, hashlib.sha256(pixels).hexdigest())


@wf.step
def contact_sheet(digests: list[str]) -> dict[str, int | str]:
    """Put the thumbnails on one sheet."""
    return {"pictures": len(digests), "sha256": hashlib.sha256("".join(digests).encode()).hexdigest()}


@wf.workflow
async def contact_prints(branches: int) -> dict[str, int | str]:
    """Make ``branches`` thumbnails at once, sleep durably, and combine them."""
    thumbnails = await asyncio.gather(*(thumbnail(n, flaky=n == branches - 1) for n in range(branches)))
    await sleep("500ms")
    return await contact_sheet([made.sha256[:_DIGEST_ON_SHEET] for made in thumbnails])


def _rendered(number: int) -> bytes:
    """A grey picture: a gradient with noise, the same for the same number on every machine."""
    noise, picture = number + 1, bytearray()
    for y in range(_SIZE):
        for x in range(_SIZE):
            noise = (noise * 1_103_515_245 + 12_345) & 0x7FFFFFFF
            picture.append((x + y + (noise >> 24) + number) & 0xFF)
    return bytes(picture)


def _scaled_down(picture: bytes) -> bytes:
    """Each pixel the mean of a box of ``_SCALE`` by ``_SCALE``."""
    small = bytearray()
    for top in range(0, _SIZE, _SCALE):
        rows = [picture[y * _SIZE : (y + 1) * _SIZE] for y in range(top, top + _SCALE)]
        small.extend(
            sum(sum(row[left : left + _SCALE]) for row in rows) // _SCALE**2 for left in range(0, _SIZE, _SCALE)
        )
    return bytes(small)
