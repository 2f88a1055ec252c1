"""Are numbers counted as Prometheus' own client counts them, under labels that stay bounded?"""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from redisworld import observe as o
from redisworld.metrics import MOST_STEPS, MOST_WORKFLOWS, Metrics
from redisworld.observe import observe, observing


def ended(*, step: str = "s", workflow: str = "w", seconds: float = 0.1) -> o.StepEnded:
    return o.StepEnded(workflow, step, "r", "i", 1, "completed", "", seconds)


def see(metrics: Metrics, seen: o.Observation) -> None:
    metrics.observers[type(seen)](seen)


def lines(exposition: bytes, name: str) -> set[str]:
    return {line for line in exposition.decode().splitlines() if name in line}


def test_a_histogram_and_a_counter_read_as_those_of_the_client_do() -> None:
    metrics = Metrics(workflows=["w"], steps=["s"])
    registry = CollectorRegistry()
    labels = ("workflow", "step")
    theirs = Histogram(
        "redisworld_step_duration_seconds",
        "Body of one attempt, until its outcome is recorded",
        labels,
        buckets=metrics.step_seconds.bounds,
        registry=registry,
    ).labels("w", "s")
    counter = Counter("redisworld_steps_finished_total", "Attempts by outcome", (*labels, "outcome"), registry=registry)

    for seconds in (0.0, 0.0004, 0.001, 0.00100001, 0.1, 0.1, 7.0, 3_600.0, 3_601.0):  # at bounds, and beyond them
        see(metrics, ended(seconds=seconds))
        theirs.observe(seconds)
        counter.labels("w", "s", "completed").inc()

    for name in ("redisworld_step_duration_seconds", "redisworld_steps_finished"):
        assert lines(metrics.exposition(), name) == lines(generate_latest(registry), name)


def test_what_has_not_happened_yet_is_0_and_a_gauge_is_what_was_seen_last() -> None:
    metrics = Metrics(workflows=["w"])
    see(metrics, o.Saturation("step", 3, 64))
    see(metrics, o.Saturation("step", 2, 64))

    value = metrics.registry.get_sample_value
    assert value("redisworld_worker_in_flight", {"kind": "step"}) == 2
    assert value("redisworld_leases_lost_total") == 0
    assert value("redisworld_timer_lateness_seconds_count") == 0
    assert value("redisworld_runs_finished_total", {"workflow": "w", "status": "failed"}) == 0


def test_names_that_are_not_registered_or_beyond_the_limits_are_other() -> None:
    workflows = [f"w{number}" for number in range(MOST_WORKFLOWS + 1)]
    steps = [f"s{number}" for number in range(MOST_STEPS + 1)]
    metrics = Metrics(workflows=workflows, steps=steps)
    for workflow, step in ((workflows[-2], steps[-2]), (workflows[-1], steps[-1]), ("stranger", "stranger")):
        see(metrics, ended(workflow=workflow, step=step))
    metrics.settle()

    assert {labels[:2]: count for labels, count in metrics.step_seconds.counts().items()} == {
        (workflows[-2], steps[-2]): 1,
        ("other", "other"): 2,
    }


def test_what_is_noted_is_counted_when_the_loop_moves() -> None:
    metrics = Metrics()
    see(metrics, o.RedisCalled("claim", 0.001))
    assert metrics.round_trips.counts() == {}
    see(metrics, o.LoopMoved(0.0))
    assert metrics.round_trips.counts() == {"claim": 1}
    assert metrics.loop_lag.counts() == {(): 1}


def test_every_kind_of_observation_is_counted() -> None:
    assert set(Metrics().observers) == set(o.Observation.__args__)


def test_an_observer_by_kind_hears_of_its_kinds_while_it_listens_and_of_no_other() -> None:
    heard: list[object] = []
    with observing({o.LeaseLost: heard.append}):
        observe(o.LeaseLost("1-0"))
        observe(o.GroupRecreated("steps"))
        with observing(heard.append):
            observe(o.GroupRecreated("steps"))
    observe(o.LeaseLost("2-0"))

    assert heard == [o.LeaseLost("1-0"), o.GroupRecreated("steps")]


def test_calls_of_the_thread_that_renews_leases_are_counted_beside_those_of_the_loop() -> None:
    metrics = Metrics()

    def call() -> None:
        for _ in range(20_000):
            see(metrics, o.RedisCalled("renew", 0.001))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert b"redisworld_redis_round_trip_seconds" in metrics.exposition()
    for thread in threads:
        thread.join()

    count = metrics.registry.get_sample_value("redisworld_redis_round_trip_seconds_count", {"op": "renew"})
    assert count == 80_000
