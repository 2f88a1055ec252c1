"""What is explored, and how much may go wrong in each?"""

from __future__ import annotations

from tests.explorer.model import Budget, Scenario


def _case(
    name: str,
    workflow: str,
    result: int,
    budget: Budget,
    *,
    ends: str = "completed",
    workers: int = 2,
    helpers: int = 0,
    slots: int = 1,
    chunk: int = 500,
    sticky: bool = False,
    early: bool = False,
) -> list[Scenario]:
    """A scenario with inline steps and without."""
    allowed = set(ends.split()) | ({"cancelled"} if budget.cancel else set())
    suffix = f", {budget.cancel}" if budget.cancel else ""
    return [
        Scenario(
            f"{name} {how}{suffix}",
            workflow,
            budget,
            frozenset(allowed),
            bytes([result]),
            workers,
            helpers,
            slots,
            how == "inline",
            chunk,
            sticky,
            early,
        )
        for how in ("inline", "queued")
    ]


def _both(
    name: str, workflow: str, result: int, budget: Budget, *, ends: str = "completed", chunk: int = 500
) -> list[Scenario]:
    """The scenario with a cancel request at any moment, and with a terminate."""
    return [
        scenario
        for mode in ("request", "terminate")
        for scenario in _case(name, workflow, result, budget._replace(cancel=mode), ends=ends, chunk=chunk)
    ]


def ci() -> list[Scenario]:
    """What every build explores."""
    calm, crash, steal, both = Budget(), Budget(crashes=1), Budget(steals=1), Budget(crashes=1, steals=1)
    return [
        *_case("one", "one", 1, Budget(1, 1, 1)),
        *_case("drained", "one", 1, Budget(1, 0, 1, 1)),
        *_case("sequence", "sequence", 2, both),
        *_case("sequence lost", "sequence", 2, Budget(lost=1, steals=1)),
        *_case("gather2", "gather2", 2, both),
        *_case("gather3", "gather3", 3, steal),
        *_case("gather then", "gather_then", 3, steal),
        *_case("task group", "task_group", 2, steal),
        *_case("gather all bad", "gather_all_bad", 2, steal),
        *_case("fail_fast2", "fail_fast2", 2, steal, ends="failed"),
        *_case("fail_fast3", "fail_fast3", 2, calm, ends="failed", early=True),
        *_case("two bad", "two_bad", 2, steal, ends="failed"),
        *_case("regroup", "regroup", 2, steal),
        *_case("chains", "chains", 4, calm),
        *_case("race", "race", 1, crash, early=True),
        *_case("race then", "race_then", 2, steal),
        *_case("step or timer", "step_or_timer", 1, steal, early=True),
        *_case("step or hook", "step_or_hook", 1, Budget(crashes=1, hook=1), early=True),
        *_case("step and hook", "step_and_hook", 1, Budget(steals=1, hook=1)),
        *_case("step and timer", "step_and_timer", 1, steal),
        *_case("dropped timer", "dropped_timer", 1, crash),
        *_case("retry", "retry", 1, both),
        *_case("retry beside", "retry_beside", 2, crash),
        *_case("exhausted", "exhausted", 1, both, ends="completed failed"),
        *_case("one of three", "one", 1, both, workers=3),
        *_case("hook then", "hook_then", 1, Budget(crashes=1, steals=1, hook=1)),
        *_case("sticky", "race_then", 2, steal, sticky=True),
        *_case("sticky regroup", "regroup", 2, calm, sticky=True),
        *_case("helper", "gather_then", 3, steal, helpers=1),
        *_case("two slots", "one", 1, Budget(0, 2), slots=2),
        *_case("chunks", "gather2", 2, crash, chunk=1),
        *_case("then chunks", "then_gather", 3, both, chunk=1),
        *_case("then chunks lost", "then_gather", 3, Budget(lost=1), chunk=1),
        *_both("one", "one", 1, crash),
        *_both("sequence", "sequence", 2, calm),
        *_both("clean up", "cleanup", 1, calm),
        *_both("gather2", "gather2", 2, calm),
        *_both("then chunks", "then_gather", 3, calm, chunk=1),
        *_both("fail_fast2", "fail_fast2", 2, calm, ends="failed"),
        *_both("race", "race", 1, calm),
        *_both("step or timer", "step_or_timer", 1, calm),
        *_both("step and hook", "step_and_hook", 1, Budget(hook=1)),
        *_both("retry", "retry", 1, crash),
    ]


def long() -> list[Scenario]:
    """What takes minutes."""
    return [
        *ci(),
        *_case("more: one", "one", 1, Budget(2, 1, 1, 1)),
        *_case("more: sequence", "sequence", 2, Budget(1, 2, 1, 1)),
        *_case("more: gather2", "gather2", 2, Budget(1, 1, 1, 1)),
        *_case("more: gather3", "gather3", 3, Budget(1, 1)),
        *_case("more: gather then", "gather_then", 3, Budget(1, 1)),
        *_case("more: chains", "chains", 4, Budget(steals=1)),
        *_case("more: regroup", "regroup", 2, Budget(1, 1)),
        *_case("more: dropped timer", "dropped_timer", 1, Budget(1, 1)),
        *_case("more: retry beside", "retry_beside", 2, Budget(1, 1)),
        *_case("more: chunks", "gather3", 3, Budget(1, 1), chunk=1),
        *_case("more: three workers", "gather2", 2, Budget(1, 1), workers=3),
        *_case("more: two slots", "sequence", 2, Budget(0, 2), slots=2),
        *_case("more: fail_fast3", "fail_fast3", 2, Budget(1, 1), ends="failed"),
        *_case("more: two bad", "two_bad", 2, Budget(1, 1), ends="failed"),
        *_case("more: sticky", "race_then", 2, Budget(1, 1), sticky=True),
        *_case("more: sticky chains", "chains", 4, Budget(), sticky=True),
        *_case("more: sticky gather then", "gather_then", 3, Budget(1, 1), sticky=True),
        *_case("more: sticky regroup", "regroup", 2, Budget(1, 1), sticky=True),
        *_case("more: race", "race", 1, Budget(1, 1)),
        *_both("more: one", "one", 1, Budget(1, 1)),
        *_both("more: clean up", "cleanup", 1, Budget(1, 1)),
        *_both("more: gather2", "gather2", 2, Budget(1, 1)),
        *_both("more: fail_fast2", "fail_fast2", 2, Budget(1, 1), ends="failed"),
        *_case("more: fail_fast2", "fail_fast2", 2, Budget(1, 1), ends="failed"),
        *_case("more: step or timer", "step_or_timer", 1, Budget(1, 1)),
        *_case("more: step and hook", "step_and_hook", 1, Budget(1, 1, 0, 0, "", 1)),
        *_case("more: step or hook", "step_or_hook", 1, Budget(1, 1, 1, 0, "", 1)),
        *_both("more: race", "race", 1, Budget(1, 1)),
        *_both("more: step or timer", "step_or_timer", 1, Budget(1, 1)),
        *_both("more: retry", "retry", 1, Budget(1, 1)),
        *_both("more: chains", "chains", 4, Budget()),
    ]
