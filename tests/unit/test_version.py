"""Does all that tells its version do without one, in a checkout on the path that was never installed?"""

from __future__ import annotations

import subprocess
import sys

import pytest

NEVER_INSTALLED = """
import importlib.metadata as metadata

known = metadata.version

def version(name):
    if name == "redisworld":
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("from redisworld.cli.program import main; main(['--version'])", "redisworld (not installed)"),
        ("from redisworld.metrics import Metrics; print(Metrics().exposition().decode())", 'version=""'),
        ("from redisworld.tracing import Tracing; Tracing(); print('traced')", "traced"),
        ("from consumers.presence import VERSION; print([VERSION])", "['']"),
    ],
)
def test_a_checkout_that_was_never_installed_works(code: str, told: str) -> None:
    if "tracing" in code:
        pytest.importorskip("opentelemetry", reason="the extra otel")

    ran = subprocess.run([sys.executable, "-c", NEVER_INSTALLED + code], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert told in ran.stdout
