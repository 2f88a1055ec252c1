"""Does the embedded Redis do what a real one does, without a server?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli_process import check_counts, demo

pytest.importorskip("fakeredis")


@pytest.mark.parametrize("branches", [1, 32])
def test_the_demo_has_the_same_exact_counts_on_the_embedded_redis(branches: int) -> None:
    report = demo("--branches", str(branches), "--url", "redisworld://embedded")

    assert report["redis"] == "embedded"
    check_counts(report, branches)


def test_the_demo_takes_the_embedded_redis_where_there_is_no_server(tmp_path: Path) -> None:
    report = demo("--branches", "4", PATH=str(tmp_path))

    assert report["redis"] == "embedded"
    check_counts(report, 4)
