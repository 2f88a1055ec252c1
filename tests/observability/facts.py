"""Which lines can the log have? Read from the calls in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.chaos.processes import ROOT

_SHARED = {
    "job.where": "run workflow",
    "where": "run workflow step entry deliveries",
    "place": "run workflow step entry deliveries",
    "attempts:_where": "run workflow step name attempt",
    "recovery:_where": "run lost id",
    "worker:_described": "consumer namespace url partitions streams concurrency tracing",
    "exporter:_described": "namespace url partitions",
}
"""Fields that several lines share, by the name of what makes them."""
_MACHINERY = {ROOT / "redisworld/facts.py", ROOT / "redisworld/world/faults.py"}
_STATUSES = ("completed", "cancelled")
"""Of the runs whose end ``f"run {status}"`` tells."""


class Line(msgspec.Struct, frozen=True):
    """What a line may have."""

    levels: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()


def lines() -> dict[str, Line]:
    """Every line, by what it says has happened."""
    found: dict[str, Line] = {}
    for package in ("redisworld", "consumers"):
        for path in sorted({*(ROOT / package).rglob("*.py")} - _MACHINERY):
            for what, line in _lines_of(path):
                known = found.get(what, Line())
                found[what] = Line(known.levels | line.levels, known.fields | line.fields)
    return found


def _lines_of(path: Path) -> Iterator[tuple[str, Line]]:
    tree = ast.parse(path.read_text())
    texts = dict(_texts(tree))
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        owner = ast.unparse(call.func).rpartition(".")[0]
        if name == "fact":
            fields = _fields(call, call.args[2:], path.stem)
            for what in _said(call.args[1], texts):
                yield what, Line(_levels(call.args[0]), fields)
        elif name == "warn" and owner.endswith("faults") and path.stem != "pauses":
            level = next((keyword.value for keyword in call.keywords if keyword.arg == "level"), None)
            for what in _said(call.args[1], texts):
                levels = frozenset({"warning"}) if level is None else _levels(level)
                yield what, Line(levels, _fields(call, call.args[2:], path.stem) | {"more"})
        elif name == "after" and owner == "pauses":
            for what in _said(call.args[0], texts):
                yield what, Line(frozenset({"warning", "error"}), frozenset({"error", "more"}))


def _texts(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that are set to a text, also two at once."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        targets, values = ([target], [value]) if isinstance(target, ast.Name) else ([], [])
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            targets, values = list(target.elts), list(value.elts)
        for name, said in zip(targets, values, strict=True):
            if isinstance(name, ast.Name) and name.id == "what":
                yield name.id, said


def _said(node: ast.expr, texts: dict[str, ast.expr]) -> Iterator[str]:
    if isinstance(node, ast.Name):
        node = texts[node.id]
    if isinstance(node, ast.Constant):
        yield str(node.value)
        return
    text = "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)  # type: ignore[attr-defined]
    yield from (text.replace("…", status) for status in _STATUSES) if text == "run …" else (text,)


def _levels(node: ast.expr) -> frozenset[str]:
    return frozenset({ast.unparse(node).rpartition(".")[2].lower()})


def _fields(call: ast.Call, shared: list[ast.expr], stem: str) -> frozenset[str]:
    fields = {keyword.arg for keyword in call.keywords if keyword.arg and keyword.arg not in ("level", "trace")}
    names = [ast.unparse(node.func if isinstance(node, ast.Call) else node) for node in shared]
    names += [ast.unparse(k.value.func) for k in call.keywords if k.arg is None and isinstance(k.value, ast.Call)]
    for name in names:
        known = _SHARED.get(f"{stem}:{name}") or _SHARED[name]
        fields |= set(known.split())
    return frozenset(fields)
