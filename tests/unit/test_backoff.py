"""Does the backoff stay finite, ordered and within its band, however often a step has failed?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld.backoff import Backoff
from redisworld.errors import InvalidInput

ATTEMPTS = [*range(1, 2_001), 10**6]


@pytest.mark.parametrize("factor", [1.0, 1.001, 2.0, 5.0, 10.0])
def test_delays_are_in_range_and_never_fall_up_to_a_million_attempts(factor: float) -> None:
    backoff = Backoff(factor=factor)

    delays = [backoff.delay_ms(attempt) for attempt in ATTEMPTS]

    assert delays == sorted(delays)
    assert all(0 < delay <= 60_000 for delay in delays)


def test_the_default_doubles_from_one_second_to_one_minute() -> None:
    assert [Backoff().delay_ms(n) for n in range(1, 9)] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


@given(attempt=st.integers(1, 10**6), seed=st.integers(), jitter=st.floats(0, 1))
def test_jitter_only_shortens_and_by_no_more_than_its_share(attempt: int, seed: int, jitter: float) -> None:
    backoff = Backoff(jitter=jitter)

    delay, full = backoff.delay_ms(attempt, Random(seed)), backoff.delay_ms(attempt)

    assert max(1, int(full * (1 - jitter))) <= delay <= full


def test_a_cap_below_the_first_delay_wins() -> None:
    assert Backoff(first_ms=5_000, cap_ms=100).delay_ms(1) == 100


@pytest.mark.parametrize(
    "options",
    [
        *({"first_ms": 0}, {"first_ms": 1.5}, {"first_ms": "1s"}, {"cap_ms": 0}, {"cap_ms": True}),
        *({"first_ms": 10**18}, {"cap_ms": 10**18}),  # no script takes so long a delay: the step would stay running
        *({"factor": 0.5}, {"factor": float("inf")}, {"factor": float("nan")}, {"factor": "2"}),
        *({"jitter": 1.1}, {"jitter": float("nan")}, {"jitter": None}),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Backoff(**options)  # type: ignore[arg-type]


def test_a_fixed_backoff_waits_as_long_each_time() -> None:
    backoff = Backoff.fixed("5s")

    assert [backoff.delay_ms(n, Random(n)) for n in (1, 2, 1_000)] == [5_000] * 3


def test_an_exponential_backoff_takes_durations_as_people_write_them() -> None:
    backoff = Backoff.exponential(timedelta(seconds=2), factor=3, max="1m", jitter=0)

    assert [backoff.delay_ms(n, Random(n)) for n in (1, 2, 3, 4, 5)] == [2_000, 6_000, 18_000, 54_000, 60_000]
    assert Backoff.exponential() == Backoff()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Backoff.fixed("soon"), "backoff: delay: cannot read duration 'soon'"),
        (lambda: Backoff.fixed(0), "delay must be at least 1 ms"),
        (lambda: Backoff.exponential(-1), "backoff: first: "),
        (lambda: Backoff.exponential("10s", max="5s"), "max='5s' is shorter than first='10s'"),
        (lambda: Backoff.exponential(factor=0), "factor must be"),
    ],
)
def test_durations_that_make_no_sense_are_refused_by_name(make: Callable[[], Backoff], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        make()
