"""What happened in one run, counted from this process's own observations?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from redisworld.observe import (
    Observation,
    PrologueTaken,
    RedisCalled,
    RunFetched,
    StepClaimed,
    StepEnded,
    StepStarted,
)


class Tally:
    """Counts what belongs to ``run_id``; ``observe`` is the observer. Times are seconds since ``begin``.

    Redis calls carry no run: all of this process count, the worker's own polling included.
    """

    def __init__(self, run_id: str, *, branch_step: str, on_change: Callable[[Tally], None]) -> None:
        self.prologue: Counter[str] = Counter({"run_context": 0, "runs_get": 0})
        self.lazy_run_fetches = 0
        self.inline_steps = 0
        self.queued_steps_started = 0
        self.step_bodies = 0
        self.retries = 0
        self.branches_done = 0
        self.redis_calls = 0
        self.first_step_s: float | None = None
        self.last_step_s: float | None = None
        """Start of the branch that was the last to start for the first time."""
        self._run_id = run_id
        self._branch_step = branch_step
        self._on_change = on_change
        self._began = time.monotonic()

    def begin(self) -> None:
        """Time counts from now."""
        self._began = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since ``begin``."""
        return time.monotonic() - self._began

    def observe(self, seen: Observation) -> None:
        """Count one observation."""
        if isinstance(seen, RedisCalled):
            self.redis_calls += 1
        elif isinstance(seen, PrologueTaken | StepClaimed):
            if ours := sum(run_id == self._run_id for run_id, _ in seen.steps):
                self._count_together(seen, ours)
                self._on_change(self)
        elif getattr(seen, "run_id", None) == self._run_id:
            self._count(seen)
            self._on_change(self)

    def _count_together(self, seen: PrologueTaken | StepClaimed, ours: int) -> None:
        if isinstance(seen, PrologueTaken):
            self.prologue[seen.path] += ours
        elif seen.outcome == "started" and seen.inline:
            self.inline_steps += ours
        elif seen.outcome == "started":
            self.queued_steps_started += ours

    def _count(self, seen: Observation) -> None:
        match seen:
            case RunFetched():
                self.lazy_run_fetches += 1
            case StepStarted():
                self._started(seen)
            case StepEnded():
                self.retries += seen.outcome == "retrying"
                self.branches_done += seen.outcome == "completed" and seen.step == self._branch_step

    def _started(self, seen: StepStarted) -> None:
        self.step_bodies += 1
        if self.first_step_s is None:
            self.first_step_s = self.elapsed()
        if seen.step == self._branch_step and seen.attempt == 1:
            self.last_step_s = self.elapsed()
