"""Are lengths of time read as people mean them?"""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld.durations import MAX_MS, parse_ms
from redisworld.errors import InvalidInput


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("2m", 120_000),
        ("1h 30m", 5_400_000),
        ("1h30m", 5_400_000),
        (" 1.5 h ", 5_400_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("1d 1ms", 86_400_001),
        ("0s", 0),
        (0, 0),
        (2, 2_000),
        (0.25, 250),
        (0.1, 100),
        (timedelta(minutes=2), 120_000),
        (timedelta(0), 0),
        (timedelta(days=365 * 100), MAX_MS),
    ],
)
def test_a_duration_is_read_as_milliseconds(duration: Any, ms: int) -> None:
    assert parse_ms(duration) == ms


@pytest.mark.parametrize("duration", ["0.1ms", 0.0001, timedelta(microseconds=1)])
def test_a_part_of_a_millisecond_is_rounded_up_so_that_short_never_becomes_none(duration: Any) -> None:
    assert parse_ms(duration) == 1


@pytest.mark.parametrize(
    "duration", ["", "  ", "90", "s", "1 hour", "1h and 30m", "-5s", "1h-30m", "1e3s", "5M", "P1D"]
)
def test_text_that_is_no_duration_is_refused_with_an_example(duration: str) -> None:
    with pytest.raises(InvalidInput, match="write it like"):
        parse_ms(duration)


@pytest.mark.parametrize("duration", [None, True, [], b"5s", 1j])
def test_other_types_are_refused(duration: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot read duration"):
        parse_ms(duration)


@pytest.mark.parametrize(
    "duration",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        "101000w",
        "9" * 400 + "s",
        timedelta.max,
    ],
)
def test_what_no_clock_can_count_is_out_of_range(duration: Any) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        parse_ms(duration)


@given(st.integers(0, MAX_MS))
def test_whole_milliseconds_come_back_exactly(ms: int) -> None:
    assert parse_ms(f"{ms}ms") == ms
    assert parse_ms(timedelta(milliseconds=ms)) == ms


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert 0 <= parse_ms(text) <= MAX_MS
