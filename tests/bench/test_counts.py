"""Does a change make steps dearer? Counts, never times, against bounds. (design section 13)

``python -m pytest tests/bench/test_counts.py -s`` prints what was measured beside its bound. Bounds are what holds
today with a few per cent of room for ids of another length: tighten them with each improvement. Where today misses
what is to be reached, the aim stands beside it in ``AIMS``; the table shows it, and nothing is asserted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import redis

from redisworld.bench.session import Options
from redisworld.bench.workloads import idle
from tests.apps import conf_app
from tests.bench.costs import BATCH, Cost, check_finished, cost_of, weight_of
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio

GROWTH = 1.1
"""Of 1,024 branches against 64, and of 1,000 steps against 10: costs per step must not grow with the run."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """At most so much per step of a run, or per branch of a fan-out; the names are those of ``Cost``."""

    commands: float
    script_calls: float
    inner_commands: float
    bytes_in: float
    bytes_out: float


FANOUT = {
    64: Bound(commands=0.20, script_calls=0.145, inner_commands=3.5, bytes_in=700, bytes_out=660),
    256: Bound(commands=0.09, script_calls=0.065, inner_commands=1.95, bytes_in=690, bytes_out=665),
    1_024: Bound(commands=0.065, script_calls=0.043, inner_commands=1.55, bytes_in=695, bytes_out=670),
}
"""A start, commits of 8, 32, 128 and at most 256 steps, two calls for each batch of 64, a load and a commit by the
last completer."""

SEQUENCE = {
    10: Bound(commands=1.5, script_calls=1.25, inner_commands=15.5, bytes_in=860, bytes_out=100),
    1_000: Bound(commands=1.02, script_calls=1.01, inner_commands=9.5, bytes_in=785, bytes_out=60),
}
"""One script call a step: its end, and the next one's start."""

AIMS: dict[tuple[str, str], float] = {}
"""What is to be reached and is not yet, as the best of the peers does."""

IDLE_S = 30
IDLE_COMMANDS_PER_S = 2.0
"""Of one worker on four partitions: three blocking reads and a heartbeat in five seconds, in ten a look at each
partition's timers and at open runs, in thirty one at what is pending in each stream. What one that has just started
does at once is over by then, and thirty seconds hold at most one of all else. Measured over a minute: 1.87."""
RUN_BYTES = 2_560
"""Of a finished run of five steps without the values it holds."""

_printed: list[tuple[str, str, float, float, float | None]] = []


@pytest.fixture(autouse=True, scope="module")
def _table() -> Iterator[None]:
    yield
    print(f"\n{'what':<16}{'of one step, or as said':<26}{'measured':>10}{'bound':>10}{'aim':>8}")
    for what, name, value, bound, aim in _printed:
        print(f"{what:<16}{name:<26}{value:>10.3f}{bound:>10.3f}{'' if aim is None else aim:>8}")


@pytest.fixture(autouse=True)
def _consumer_name_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes with every script call, and holds the host's name."""
    monkeypatch.setattr("socket.gethostname", lambda: "worker-0123456789")


def judged(what: str, name: str, value: float, bound: float) -> str:
    """A line for the table; what is wrong with the value, or nothing."""
    _printed.append((what, name, value, bound, AIMS.get((what.split()[0], name))))
    return f"{what}: {value:.3f} {name}, at most {bound}" if value > bound else ""


def within(what: str, cost: Cost, bound: Bound) -> None:
    """All figures of a cost are judged before one of them fails the test."""
    names = Bound.__struct_fields__
    wrong = [judged(f"{what} {cost.size}", name, getattr(cost, name), getattr(bound, name)) for name in names]
    assert not any(wrong), "\n".join(filter(None, wrong))


def no_growth(small: Cost, large: Cost) -> None:
    """Nothing costs more per step in the larger run."""
    for name in Bound.__struct_fields__:
        before, after = getattr(small, name), getattr(large, name)
        assert after <= GROWTH * before, f"{name}: {after:.3f} at {large.size}, {before:.3f} at {small.size}"


async def test_a_branch_costs_no_more_than_its_bound_and_no_more_in_a_wider_fan_out(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    costs = {}
    for branches in FANOUT:
        raw.flushall()
        async with connect() as consumers:
            costs[branches] = await cost_of(redis_url, raw, consumers, conf_app.wide, branches)
            check_finished(raw, consumers)
    for branches, cost in costs.items():
        within("fan-out", cost, FANOUT[branches])
        assert cost.spent.commands == sum(cost.sent.values()), "the meter of the bench counts what MONITOR saw"
    no_growth(costs[64], costs[1_024])


async def test_no_branch_reads_the_run_and_the_last_completer_fetches_it_once(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        cost = await cost_of(redis_url, raw, consumers, conf_app.wide, 256)
        check_finished(raw, consumers)
    assert cost.row_reads == 0, cost.sent
    assert cost.paths == {"run_context": 255}
    assert cost.fetches == ["last_completer"]
    assert cost.sent["claim_many"] == 256 // BATCH


async def test_a_sequential_step_costs_no_more_than_its_bound_and_no_more_in_a_longer_run(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    costs = {}
    for steps in SEQUENCE:
        raw.flushall()
        async with connect() as consumers:
            costs[steps] = await cost_of(redis_url, raw, consumers, conf_app.chain, steps)
            check_finished(raw, consumers)
    for steps, cost in costs.items():
        within("sequence", cost, SEQUENCE[steps])
        assert cost.spent.commands == sum(cost.sent.values()), "the meter of the bench counts what MONITOR saw"
        assert cost.row_reads == 0, cost.sent
        assert cost.fetches == []
    no_growth(costs[10], costs[1_000])


async def test_a_finished_run_of_five_steps_weighs_at_most_2_5_kb_beside_its_values(connect: Connect) -> None:
    async with connect() as consumers:
        # So many, because now and then used_memory has some buffers of 20 KB more or less.
        weight = await weight_of(consumers, conf_app.wide, 5, runs=1_000)
    wrong = judged("memory", "bytes of a run of 5 steps", weight, RUN_BYTES)
    assert not wrong, wrong
    assert weight > 500, "a run that leaves nothing was not measured"


async def test_an_idle_worker_sends_few_commands() -> None:
    [result] = await idle.measure(Options(), _quiet, seconds=IDLE_S)
    assert result.commands_per_s is not None
    wrong = judged("idle", "commands per second", result.commands_per_s, IDLE_COMMANDS_PER_S)
    assert not wrong, wrong
    assert result.commands_per_s > 0


def _quiet(label: str, done: int, total: int) -> None:
    """No progress is shown."""
