"""Does the measure of what metrics cost measure both paths? Its figures are the machine's."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.integration.cli_process import ROOT, environment


def test_it_prints_what_pairs_of_slices_cost_for_each_path() -> None:
    command = [sys.executable, "-m", "tests.bench.metrics_cost", "--pairs", "2"]
    answer = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stderr
    line = r"(\w+): ([\d.]+) us of CPU a step without metrics, ([\d.]+) with; in 2 pairs [+-][\d.]+ us, ratio [\d.]+ .*"
    found = [re.fullmatch(line, told) for told in answer.stdout.splitlines()]
    assert [told[1] for told in found if told] == ["queued", "inline"]
    assert all(told and float(told[2]) > 1 and float(told[3]) > 1 for told in found)
