"""Which fixtures do these tests share? ``connect``, as the conformance tests have it."""

from tests.conformance.conftest import connect

__all__ = ["connect"]
