"""What does docs/fences.md say? ``python -m tests.conformance.fence_page`` writes it from redisworld.fences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from redisworld.events import EventKind
from redisworld.fences import FENCES, Cell, Fence, Row, Subject, transitions
from redisworld.runs import Status

PAGE = Path(__file__).parents[2] / "docs" / "fences.md"

_HEAD = """# Fences: which event may be written when

Every event of a run is written by one Lua script that checks the state, changes the row and appends to the log, or does
none of it. This page shows all of them: for each kind of event and each state it can meet, the word it answers and what
it writes. It is made from `redisworld/fences.py` (`python -m tests.conformance.fence_page`); a test fails when the two
differ, and `tests/conformance/test_matrix.py` fires every event in every state at a real Redis and compares.

How to read the tables: a cell is the **word** the caller is answered, then the event that is appended and the state
after it. No arrow: nothing is written. An event marked *wakes* is one the body can see: the same call leaves a message
that continues the run (of a step in a join group, only those the group shows). An event marked *bounded* ends the run
with `MAX_EVENTS_EXCEEDED` and answers `full` when the log is at its ceiling. A run that does not exist answers
`not_found`, and no key is created, unless the table says otherwise.

A repeat (the reply was lost, so the caller asks again with the same token or id) is a row of its own: it answers the
same and writes nothing.

The words are those of an event written by itself. A replay pass commits many events in one script and passes over those
that would answer `conflict`, since another pass has written them already.

Orders of events are another matter than states. `python -m tests.explorer` enumerates all interleavings of the script
calls of a few workers, a timer, a canceller and a resume, with crashes, lost leases and lost replies at every point, on
a real Redis, and checks every state; it also finds each of a list of fences that were broken on purpose.
`python -m tests.model` plays random games of all operations against a model in plain Python. The tests do both.
"""

_SUBJECTS: dict[Subject, str] = {
    "run": "Runs",
    "step": "Steps",
    "wait": "Waits",
    "hook": "Hooks",
    "attributes": "Attributes",
    "patch": "Patches",
}


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for subject, title in _SUBJECTS.items():
        parts.append(f"## {title}\n")
        if diagram := list(_diagram(subject)):
            parts.append("\n".join(diagram) + "\n")
        parts += [_table(kind, fence) for kind, fence in FENCES.items() if fence.subject == subject]
    return "\n".join(parts)


def _diagram(subject: Subject) -> Iterator[str]:
    arrows = transitions(subject)
    if not arrows:
        return
    yield "```mermaid"
    yield "stateDiagram-v2"
    for before, event, after in arrows:
        yield f"    {_node(before)} --> {after}: {event}"
    befores = {before for before, _, _ in arrows}
    for last in dict.fromkeys(after for _, _, after in arrows if after not in befores):
        yield f"    {last} --> [*]"
    yield "```"


def _node(state: str) -> str:
    return "[*]" if state in ("absent", "missing") else state


def _table(kind: EventKind, fence: Fence) -> str:
    notes = [word for word, holds in (("wakes", fence.observed), ("bounded", fence.bounded)) if holds]
    lines = [f"### `{kind}`" + (f" ({', '.join(notes)})" if notes else ""), ""]
    if fence.absent.answer != "not_found":
        lines += [f"A run that does not exist: {_cell(fence.absent)}.", ""]
    lines += [f"| {fence.subject} | run pending or running | run completed, failed or cancelled |", "|---|---|---|"]
    lines += [f"| {state} | {_open(row)} | {_terminal(row)} |" for state, row in fence.rows.items()]
    return "\n".join(lines) + "\n"


def _open(row: Row) -> str:
    if row.pending is None:
        return _cell(row.open)
    return f"pending: {_cell(row.pending)}; running: {_cell(row.open)}"


def _terminal(row: Row) -> str:
    if row.cancelled is None:
        return _cell(row.terminal)
    return f"cancelled: {_cell(row.cancelled)}; else: {_cell(row.terminal)}"


def _cell(cell: Cell) -> str:
    written = " and ".join(f"`{kind}`" for kind in cell.writes)
    after = f", now {cell.becomes}" if cell.becomes else ""
    return f"**{cell.answer}**" + (f" → {written}{after}" if written else "")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render())
    print(f"{PAGE.name}: {len(FENCES)} kinds of events, {sum(len(f.rows) for f in FENCES.values())} states,", end=" ")
    print(f"{sum(len(f.rows) for f in FENCES.values()) * len(Status)} cells")


if __name__ == "__main__":
    main()
