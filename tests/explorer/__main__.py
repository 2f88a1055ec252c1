"""How many schedules are there, and is each right? ``python -m tests.explorer [--scenario NAME] [--long]``"""

from __future__ import annotations

import argparse
import sys

from redisworld.spawn import private_redis
from tests.explorer import scenarios
from tests.explorer.explore import Report, explore
from tests.explorer.store import Store

HEAD = f"{'scenario':34}{'schedules':>20}{'states':>9}{'transitions':>13}{'rests':>7}{'seconds':>9}"


def line(report: Report) -> str:
    """A report as a line of the table."""
    return (
        f"{report.scenario:34}{report.schedules:20,}{report.states:9,}{report.transitions:13,}"
        f"{report.rests:7,}{report.seconds:9.1f}{'' if report.violation is None else '  VIOLATION'}"
    )


def in_all(reports: list[Report]) -> Report:
    """The sums of a table."""
    return Report(
        "all",
        sum(report.states for report in reports),
        sum(report.transitions for report in reports),
        sum(report.schedules for report in reports),
        sum(report.rests for report in reports),
        sum(report.seconds for report in reports),
        None,
    )


def main() -> int:
    """Explore, print the table, and answer 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.explorer", description=__doc__)
    parser.add_argument("--scenario", default="", help="only those whose name begins so")
    parser.add_argument("--long", action="store_true", help="more may go wrong; takes minutes")
    asked = parser.parse_args()
    chosen = [s for s in (scenarios.long() if asked.long else scenarios.ci()) if s.name.startswith(asked.scenario)]
    wrong, reports = 0, []
    print(HEAD)
    with private_redis(allow_wheel=True) as server, Store(server.socket_path) as store:
        for scenario in chosen:
            reports.append(report := explore(store, scenario))
            print(line(report), flush=True)
            if report.violation is not None:
                wrong = 1
                print(report.violation, flush=True)
    print(line(in_all(reports)))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
