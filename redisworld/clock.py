"""What time is it for the process itself, whatever bodies see? Stand-ins leave ``clock.monotonic()`` as it is."""

from time import monotonic, monotonic_ns, perf_counter

__all__ = ["monotonic", "monotonic_ns", "perf_counter"]
