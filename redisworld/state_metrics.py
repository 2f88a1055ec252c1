"""Which metrics show the state of a namespace? (``redisworld exporter``)

What Redis says at the moment of the scrape, never what a process remembers: while Redis cannot be asked there are no
numbers at all but ``redisworld_redis_up 0``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redisworld.state import Backlog, State

_BACKLOGS: tuple[tuple[str, str, Callable[[Backlog], float]], ...] = (
    ("stream_length", "Entries in the streams of a queue: unread and pending", lambda b: b.length),
    ("stream_lag_messages", "Entries that no worker has been handed", lambda b: b.lag),
    (
        "stream_lag_unknown",
        "1 while Redis cannot tell a lag, so autoscalers are blind",
        lambda b: b.lag_unknown,
    ),
    ("stream_pending_messages", "Entries that some consumer holds", lambda b: b.pending),
    ("stream_oldest_pending_age_seconds", "Since the oldest of them was sent", lambda b: b.oldest_pending_ms / 1000),
    ("stream_oldest_unread_age_seconds", "Since the oldest unread one was sent", lambda b: b.oldest_unread_ms / 1000),
    ("stream_consumers", "Consumers of the group, dead ones until a worker removes them", lambda b: b.consumers),
)

_VALUES: tuple[tuple[str, str, Callable[[State], float]], ...] = (
    ("timers_pending", "Timers, delayed starts, retries and handed back messages", lambda s: s.timers_pending),
    ("timers_overdue", "Those of them that are due and not promoted yet", lambda s: s.timers_overdue),
    (
        "timers_overdue_seconds",
        "How late the most overdue one is, 0 for none",
        lambda s: s.timers_overdue_ms / 1000,
    ),
    ("dead_letters", "Messages in the dead letters", lambda s: s.dead_letters),
)

RECORDED: dict[str, tuple[str, str, dict[str, str]]] = {
    "runs_created": ("Runs created", "", {"runs_created": ""}),
    "runs_started": ("Runs that began", "", {"runs_started": ""}),
    "runs_finished": (
        "Runs that ended",
        "status",
        {"runs_completed": "completed", "runs_failed": "failed", "runs_cancelled": "cancelled"},
    ),
    "runs_moved": ("Open runs given to another deployment", "", {"runs_moved": ""}),
    "runs_reaped": ("Finished runs deleted after their retention", "", {"runs_reaped": ""}),
    "steps_created": ("Steps created", "", {"steps_created": ""}),
    "steps_started": ("Attempts started", "", {"steps_started": ""}),
    "steps_finished": ("Steps that ended", "outcome", {"steps_completed": "completed", "steps_failed": "failed"}),
    "steps_retried": ("Attempts that failed and are to be repeated", "", {"steps_retried": ""}),
    "steps_handed_back": ("Attempts given up by a worker that drained", "", {"steps_handed_back": ""}),
    "waits_finished": (
        "Durable timers that ended",
        "outcome",
        {"waits_completed": "completed", "waits_cancelled": "cancelled"},
    ),
    "hooks_received": ("Payloads handed to hooks", "", {"hooks_received": ""}),
    "wakes": ("Wakes published", "", {"wakes": ""}),
    "messages_moved": ("Messages handed back or sent on", "", {"messages_moved": ""}),
    "messages_reclaimed": ("Deliveries taken over after their lease", "", {"messages_reclaimed": ""}),
    "delayed_lost": ("Delayed messages that were due without a body", "", {"delayed_lost": ""}),
    "messages_buried": ("Messages moved to the dead letters", "", {"buried": ""}),
    "letters_redriven": ("Dead letters sent again", "", {"redriven": ""}),
    "letters_dropped": ("Dead letters deleted", "", {"dropped": ""}),
    "recovered": ("Lost messages sent again", "kind", {"runs_recovered": "wake", "steps_redispatched": "step"}),
    "mended": (
        "Repairs of listings and delayed sets",
        "kind",
        {"runs_mended": "run", "delayed_mended": "delayed"},
    ),
}
"""Counters ``redisworld_recorded_…_total``: help, label, and the label's value by name in ``{ns:p}:stats``.

The scripts keep these counts, each in the very call that makes it true: they are exact, whoever is killed.
"""


class StateCollector(Collector):
    """Asks for the state at each scrape; ``look`` answers None where Redis cannot be asked now."""

    def __init__(self, look: Callable[[], State | None]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        state = self._look()
        yield _gauge(
            "redis_up", "1 when the state could be read for this scrape, else there is none", state is not None
        )
        if state is not None:
            yield from _families(state)


def _families(state: State) -> Iterator[Metric]:
    backlogs = state.queues
    for name, text, of_backlog in _BACKLOGS:
        yield _labelled(name, text, "queue", {queue: of_backlog(backlog) for queue, backlog in backlogs.items()})
    for name, text, of_state in _VALUES:
        yield _gauge(name, text, of_state(state))
    yield _labelled("runs", "Open runs by status", "status", state.runs)
    yield _labelled(
        "workers",
        "Live workers that take messages, by state",
        "state",
        state.workers_by_state,
    )
    for name, (text, label, stats) in RECORDED.items():
        family = CounterMetricFamily(f"redisworld_recorded_{name}", text, labels=[label] if label else [])
        for stat, value in stats.items():
            family.add_metric([value] if label else [], state.recorded.get(stat, 0))
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"redisworld_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"redisworld_{name}", text, labels=[label])
    for of, value in values.items():
        family.add_metric([of], value)
    return family
