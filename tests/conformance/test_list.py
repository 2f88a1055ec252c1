"""Has every behaviour of the lists a test that is named after it?

S, C and H are those of the reference (reference-semantics 4.9, 9.1, 9.2): ``pytest tests/conformance -v`` shows them:
``test_s5_…``, ``test_c31_…``, ``test_h2_…``. A are cases from bug reports of others (cases.md) that ask how work is
delivered, and mostly for real processes: a test anywhere names them in its docstring, ``A07: two clients, then …``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

IDS = (
    {f"S{number}" for number in range(1, 11)}
    | {f"C{number}" for number in range(1, 41)}
    | {f"H{number}" for number in range(1, 10)}
)
CASES = {f"A{number:02}" for number in (*range(1, 25), *range(36, 46))}

HERE = Path(__file__).parent
_NAME = re.compile(r"test_([sch])0?(\d+)_")
_CASE = re.compile(r"\bA\d\d\b")

Test = ast.FunctionDef | ast.AsyncFunctionDef


def of_file(path: Path) -> list[Test]:
    """The tests of a file."""
    body = ast.parse(path.read_text()).body
    return [node for node in body if isinstance(node, Test) and node.name.startswith("test_")]


def ids_of(test: Test) -> set[str]:
    """The id at the beginning of a test's name."""
    found = _NAME.match(test.name)
    return {f"{found[1].upper()}{found[2]}"} if found else set()


def cases_of(test: Test) -> set[str]:
    """The cases that a test's docstring names."""
    return set(_CASE.findall(ast.get_docstring(test) or ""))


def test_the_list_is_whole() -> None:
    found = set[str]().union(*(ids_of(test) for path in HERE.glob("test_*.py") for test in of_file(path)))

    assert sorted(IDS - found) == []
    assert sorted(found - IDS) == []


def test_every_case_of_delivery_is_named_by_a_test() -> None:
    found = set[str]().union(*(cases_of(test) for path in HERE.parent.rglob("test_*.py") for test in of_file(path)))

    assert sorted(CASES - found) == []
