"""Is the run right in every schedule that the explorer knows, and would the explorer notice if it were not?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from redisworld.spawn import PrivateRedis
from tests.explorer import scenarios
from tests.explorer.__main__ import HEAD, in_all, line
from tests.explorer.broken import BROKEN, Broken
from tests.explorer.explore import Report, explore
from tests.explorer.model import Scenario
from tests.explorer.store import Store

AT_LEAST = 100_000
"""Schedules in all; the scenarios must not become empty unnoticed."""


@pytest.fixture(scope="module")
def store(redis_server: PrivateRedis) -> Iterator[Store]:
    with Store(redis_server.socket_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """What has been explored so far, by scenario."""
    return {}


@pytest.mark.parametrize("scenario", scenarios.ci(), ids=lambda scenario: scenario.name)
def test_every_schedule_ends_right(scenario: Scenario, store: Store, reports: dict[str, Report]) -> None:
    report = explore(store, scenario)

    reports[scenario.name] = report
    assert report.violation is None, f"\n{report.violation}"
    assert report.complete


def test_enough_schedules_have_been_explored(
    reports: dict[str, Report], record_property: Callable[[str, object], None]
) -> None:
    if len(reports) < len(scenarios.ci()):
        pytest.skip("only some scenarios have been chosen")

    schedules = sum(report.schedules for report in reports.values())

    record_property("schedules", schedules)
    record_property("states", sum(report.states for report in reports.values()))
    print(HEAD, *map(line, reports.values()), line(in_all(list(reports.values()))), sep="\n")
    assert schedules >= AT_LEAST


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_the_explorer_finds(broken: Broken, store: Store) -> None:
    scenario = next(s for s in scenarios.long() if s.name == broken.scenario)

    report = explore(store, scenario, broken.scripts())

    assert report.violation is not None, f"{report.states} states, and nothing found"
