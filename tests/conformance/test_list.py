"""Has every behaviour of the list a test that is named after it? (reference-semantics 4.9, 9.1 and 9.2)

``pytest tests/conformance -v`` shows them: ``test_s5_…``, ``test_c31_…``, ``test_h2_…``.
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
_NAME = re.compile(r"test_([sch])0?(\d+)_")


def ids_of(path: Path) -> set[str]:
    """The ids at the beginning of the names of a file's tests."""
    functions = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {f"{found[1].upper()}{found[2]}" for function in functions if (found := _NAME.match(function.name))}


def test_the_list_is_whole() -> None:
    found = set[str]().union(*(ids_of(path) for path in Path(__file__).parent.glob("test_*.py")))

    assert sorted(IDS - found) == []
    assert sorted(found - IDS) == []
