"""Does mypy infer of the public API what tests/typing says? (``assert_type``, and errors that must be there)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in (ROOT / "tests" / "typing").glob("*.py") if not path.name.startswith(("test_", "__")))


def test_a_type_checker_infers_what_the_files_here_assert() -> None:
    pytest.importorskip("mypy", reason="mypy comes with the dev extra")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache"),
         *map(str, FILES)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert (checked.returncode, checked.stdout) == (0, "")
