"""Does every query of a board and every rule say something? Asked of a real Prometheus that has scraped real work.

A query is wrong when it fails, brings nothing or nothing but NaN, groups by a label that none of its metrics has, or
names its lines by a label that they have not.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from typing import Any

from tests.observability.scraping import Prometheus

MAY_BE_EMPTY = frozenset({"Redis memory"})
"""Panels of somebody else's exporter, which may not be there."""

INTERVAL = "15s"
_SHOWN_S = 15
_METRIC = re.compile(r"(?<![\w:])((?:redisworld|process|redis)_\w+|namespace\w*:redisworld_\w+:\w+)(\{[^}]*\})?")
_COMPARED = re.compile(r"\s(?:[<>]=?|==|!=)\s*-?[\d.]+")
_GROUPED = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")


class Checker:
    """Asks one Prometheus; ``asked`` is how many queries it took, ``problems`` what is wrong with them."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._labels: dict[str, frozenset[str]] = {}
        self.asked = 0
        self.problems: list[str] = []

    def check_board(self, text: str, chosen: dict[str, str]) -> None:
        """Every panel and every variable of a board, with these values of its variables."""
        board = json.loads(text)
        values = {f"${name}": value for name, value in chosen.items()} | {"$__rate_interval": INTERVAL}
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                self._check_variable(variable, values)
        for panel in _panels(board["panels"]):
            self._check_panel(panel, values)

    def check_rules(self) -> None:
        """Every rule that Prometheus has loaded."""
        for group in self._prometheus.get("rules")["groups"]:
            for rule in group["rules"]:
                self.check_rule(rule)

    def check_rule(self, rule: dict[str, Any]) -> None:
        """One rule, as Prometheus tells it: each of its selectors, and all of it without what makes it quiet."""
        where = f"rule {rule['name']}"
        if rule["health"] != "ok":
            self.problems.append(f"{where}: {rule['health']} {rule.get('lastError', '')}")
        if rule["type"] == "recording":
            self._check(where, rule["name"])
        self._check(where, _unfiltered(rule["query"]))
        for metric, matchers in _METRIC.findall(rule["query"]):
            self._check(where, metric + matchers)

    def _check_variable(self, variable: dict[str, Any], values: dict[str, str]) -> None:
        query = variable["query"] if isinstance(variable["query"], str) else variable["query"]["query"]
        found = re.fullmatch(r"label_values\((.*), ?(\w+)\)", _filled(query, values))
        assert found is not None, query
        self.asked += 1
        if not self._prometheus.get(f"label/{found[2]}/values", **{"match[]": found[1]}):
            self.problems.append(f"variable {variable['name']}: no values of {query}")

    def _check_panel(self, panel: dict[str, Any], values: dict[str, str]) -> None:
        title = panel.get("title", "")
        if not title or not panel.get("description") or not panel.get("targets"):
            self.problems.append(f"panel {title!r} lacks a title, a description or a query")
        for target in panel.get("targets", []):
            sources = (panel.get("datasource"), target.get("datasource"))
            if any((source or {}).get("uid") != "${datasource}" for source in sources):
                self.problems.append(f"panel {title!r} does not use the data source that was chosen")
            legend = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
            instant = bool(target.get("instant"))
            self._check(f"panel {title!r}", _filled(target["expr"], values), legend, instant=instant, title=title)

    def _check(
        self, where: str, expression: str, legend: list[str] | None = None, *, instant: bool = True, title: str = ""
    ) -> None:
        self.asked += 1
        if "$" in expression:
            self.problems.append(f"{where}: an unknown variable is left in {expression}")
            return
        try:
            series = self._series(expression, instant=instant)
        except AssertionError as error:
            self.problems.append(f"{where}: ERROR {error}")
            return
        if title in MAY_BE_EMPTY and not series:
            return
        points = [point for _, values in series for point in values]
        if not points:
            self.problems.append(f"{where}: EMPTY {expression}")
        elif all(math.isnan(point) for point in points):
            self.problems.append(f"{where}: NaN {expression}")
        if lacking := sorted({label for label in legend or () if not all(label in labels for labels, _ in series)}):
            self.problems.append(f"{where}: LABEL its lines have no {', '.join(lacking)}: {expression}")
        if unknown := sorted(set(_grouped(expression)) - self._labels_of(expression)):
            self.problems.append(f"{where}: LABEL no metric has {', '.join(unknown)}: {expression}")

    def _series(self, expression: str, *, instant: bool) -> list[tuple[dict[str, str], list[float]]]:
        if instant:
            return [(labels, [value]) for labels, value in self._prometheus.samples(expression)]
        now = time.time()
        found = self._prometheus.get("query_range", query=expression, start=now - _SHOWN_S, end=now, step=1)["result"]
        return [(one["metric"], [float(value) for _, value in one["values"]]) for one in found]

    def _labels_of(self, expression: str) -> frozenset[str]:
        return frozenset({"le"}).union(*(self._labels_of_metric(metric) for metric, _ in _METRIC.findall(expression)))

    def _labels_of_metric(self, metric: str) -> frozenset[str]:
        if metric not in self._labels:
            self._labels[metric] = frozenset().union(*self._prometheus.get("series", **{"match[]": metric}))
        return self._labels[metric]


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        if panel["type"] != "row":
            yield panel
        yield from _panels(panel.get("panels") or [])


def _filled(expression: str, values: dict[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(name, values[name])
    return expression


def _unfiltered(expression: str) -> str:
    """An alert's expression without the comparisons that make it quiet, and without ``absent``."""
    return _COMPARED.sub(" ", re.sub(r"\babsent\(([^)]*)\)", r"\1", expression))


def _grouped(expression: str) -> Iterator[str]:
    for labels in _GROUPED.findall(expression):
        yield from (label.strip() for label in labels.split(",") if label.strip())
