"""Do scripts, enumerations, board, alerts and pages name the same things?"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redisworld import scripts
from redisworld.cli.program import parser
from redisworld.metrics import BURY_REASONS
from redisworld.state_metrics import RECORDED
from redisworld.world.dead import REASONS
from tests.chaos.processes import ROOT

SCRIPTS = Path(scripts.__file__).parent
ALERTS = (ROOT / "helm/redisworld/rules/alerts.yaml").read_text()
RUNBOOKS = ROOT / "docs/runbooks"
ENDINGS = {
    "runs_": ("completed", "failed", "cancelled"),
    "steps_": ("completed", "failed"),
    "waits_": ("completed", "cancelled"),
}
"""What scripts put together from a prefix and the word of an outcome."""


def counted_by_scripts() -> Iterator[str]:
    for path in SCRIPTS.rglob("*.lua"):
        for arguments in re.findall(r"(?<!function )\bcount\(([^()]*)\)", path.read_text()):
            for name in re.findall(r"'(\w+)'", arguments):
                yield from (name + ending for ending in ENDINGS[name]) if ".." in arguments else (name,)


def test_every_count_of_the_scripts_is_exported_and_nothing_else() -> None:
    exported = [stat for _, _, stats in RECORDED.values() for stat in stats]

    assert len(exported) == len(set(exported))
    assert set(exported) == set(counted_by_scripts())


def test_the_reasons_of_a_burial_are_there_from_the_start() -> None:
    assert set(BURY_REASONS) == set(REASONS)


def test_every_alert_has_a_page_that_its_annotation_names() -> None:
    alerts = dict(re.findall(r"alert: (\w+)\n(?:.*\n)*?\s+runbook_url: (\S+)", ALERTS))

    assert len(alerts) == ALERTS.count("- alert:")
    for name, page in alerts.items():
        assert page == f"docs/runbooks/{name}.md"
        text = (ROOT / page).read_text()
        assert text.startswith(f"# {name}\n")
        assert all(f"\n## {part}\n" in text for part in ("What it means", "Look", "Causes, and what to do"))
    index = (RUNBOOKS / "README.md").read_text()
    assert set(re.findall(r"^\| \[(\w+)\]\(\1\.md\)", index, re.MULTILINE)) == set(alerts)
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {"README", *alerts}


def test_every_link_and_command_of_a_runbook_exists() -> None:
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (path.parent / link).resolve().is_file(), f"{path.name}: {link}"
        for command in re.findall(r"^\$ redisworld (.+)$", text, re.MULTILINE):
            parser().parse_args([word.strip("'") for word in command.split()])


def board_source() -> ModuleType:
    pytest.importorskip("grafana_foundation_sdk", reason="the board is made with grafana-foundation-sdk (extra dev)")
    spec = importlib.util.spec_from_file_location("overview", ROOT / "helm/redisworld/dashboards/overview.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_board_that_ships_is_the_one_its_source_makes() -> None:
    source = board_source()

    assert source.JSON.read_text() == source.board(), "run: python helm/redisworld/dashboards/overview.py"


def test_the_board_is_tied_to_no_installation_and_counters_stand_inside_rates_only() -> None:
    """A49."""
    board = json.loads((ROOT / "helm/redisworld/dashboards/overview.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    ids = [panel["id"] for panel in board["panels"]]

    assert len(ids) == len(set(ids))
    assert board["uid"] == "redisworld-overview"
    assert board.get("id") is None
    assert {variable["name"] for variable in board["templating"]["list"]} == {
        "datasource",
        "cluster",
        "namespace",
        "job",
        "workflow",
    }
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            assert 'cluster=~"$cluster",namespace=~"$namespace"' in expression
            assert not re.search(r"(?:cluster|job|namespace)=\"", expression), expression
            for labels in re.findall(r"sum(?: by \([^)]*\) )?\(max by \(([^)]*)\)", expression):
                # Releases of one name in other namespaces have the same job; merged, the board told only the larger.
                assert {"cluster", "namespace", "job"} <= set(labels.split(", ")), expression
            for counter in re.finditer(r"\w+(?:_total|_bucket|_count|_sum)\{", expression):
                before = expression[: counter.start()]
                assert before.endswith(("rate(", "increase(")), expression
