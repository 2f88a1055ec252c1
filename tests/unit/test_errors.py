"""Do the public errors reach whoever catches them, in another process as well?"""

from __future__ import annotations

import copy
import pickle
import pydoc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import redisworld
from redisworld import failures
from redisworld.errors import (
    ErrorInfo,
    HookConflict,
    HookDisposed,
    HookNotFound,
    LetterNotFound,
    OutputClosed,
    RedisworldError,
    ResumeConflict,
    RetryableError,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunGone,
    RunNotFound,
    StaleAttempt,
    StepError,
)

ROOT = Path(__file__).parents[2]
EXPORTED = [kind for kind in vars(redisworld).values() if isinstance(kind, type) and issubclass(kind, RedisworldError)]

EXAMPLES: dict[type[RedisworldError], RedisworldError] = {
    RunNotFound: RunNotFound("order-7"),
    LetterNotFound: LetterNotFound("0/1-0"),
    HookConflict: HookConflict("order:7", "order-7"),
    HookDisposed: HookDisposed("order:7"),
    HookNotFound: HookNotFound("order:7"),
    RunFailed: RunFailed("order-7", ErrorInfo(type="ValueError", message="bad", code="USER_ERROR", notes=("n",))),
    RunCancelled: RunCancelled("order-7", "sold out"),
    RunConflict: RunConflict("taken", run_id="order-7", workflow="bill"),
    RunGone: RunGone("it has ended", run_id="order-7"),
    OutputClosed: OutputClosed("closed", run_id="order-7", name="default", closed_by="s1"),
    StaleAttempt: StaleAttempt("not the running one", run_id="order-7", step_id="s1", attempt=2),
    ResumeConflict: ResumeConflict("used", resume_id="mail-7", token="order:7"),
    RetryableError: RetryableError("later", retry_after="5m"),
}
"""Of each class that makes its text itself or has attributes; all others take a text."""

COPIES: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {p}": lambda exc, p=p: pickle.loads(pickle.dumps(exc, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


class OutOfStock(redisworld.FatalError):
    """A user's error: its __init__ takes what args do not hold."""

    def __init__(self, article: int, *, left: int) -> None:
        super().__init__(f"article {article} is sold out")
        self.article, self.left = article, left


class Unreachable(RetryableError, OSError):
    """One that builtins have a say in."""


def test_an_error_with_its_own_arguments_has_an_example_here() -> None:
    own = {
        kind for kind in EXPORTED if any("__init__" in vars(k) for k in kind.__mro__ if k.__module__ == kind.__module__)
    }

    assert own == EXAMPLES.keys()


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", EXPORTED, ids=lambda kind: kind.__name__)
def test_every_public_error_survives_pickle_and_copies(kind: type[RedisworldError], way: str) -> None:
    error = EXAMPLES.get(kind) or kind("what happened")
    error.__notes__ = ["order 7"]

    back = COPIES[way](error)

    assert type(back) is kind
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(
    "error", [OutOfStock(7, left=0), Unreachable("camera 7")], ids=lambda error: type(error).__name__
)
def test_a_users_error_below_a_public_one_survives_without_its_init(error: StepError, way: str) -> None:
    error.info = ErrorInfo(type="OutOfStock", message="7")

    back = COPIES[way](error)

    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_what_the_log_holds_of_an_error_does_not_change_by_it() -> None:
    recorded = failures.describe(RunCancelled("order-7", "sold out"))

    assert recorded.contents.hex() == (
        "92c7280191d92572756e20276f726465722d3727207761732063616e63656c6c65643a20736f6c64206f7574"
        "92d80192a672756e5f6964a76f726465722d37c7110192a6726561736f6ea8736f6c64206f7574"
    )


@pytest.mark.parametrize(
    "kind", [RunConflict, RunGone, OutputClosed, StaleAttempt, ResumeConflict], ids=lambda kind: kind.__name__
)
def test_one_recorded_before_its_class_had_attributes_has_empty_ones(kind: type[RedisworldError]) -> None:
    before = ErrorInfo(
        type=f"redisworld.errors.{kind.__name__}", message="x", contents=failures.describe(StepError("x")).contents
    )

    back = failures.rebuild(before)

    assert (type(back), str(back)) == (kind, "x")
    assert not any(getattr(back, name) for name in vars(EXAMPLES[kind]) if name != "__notes__")


def test_run_failed_tells_every_code_that_a_run_can_fail_with() -> None:
    sources = [*(ROOT / "consumers").glob("*.py"), *(ROOT / "redisworld" / "scripts").rglob("*.lua")]
    words = {word for path in sources for word in re.findall(r"""["']([A-Z]+(?:_[A-Z]+)+)["']""", path.read_text())}

    assert set(re.findall(r"- ([A-Z_]+):", RunFailed.__doc__ or "")) == words


@pytest.mark.parametrize("name", redisworld.__all__)
def test_what_help_shows_refers_to_nothing_that_a_user_does_not_have(name: str) -> None:
    shown = pydoc.render_doc(getattr(redisworld, name), renderer=pydoc.plaintext)

    assert not re.search(r"\bdesign\b|\bsections? \d", shown)


def test_redis_unavailable_names_the_calls_that_a_repeat_would_make_twice() -> None:
    told = redisworld.RedisUnavailable.__doc__ or ""

    assert all(call in told for call in ("may have happened", "run_id", "resume_id", "write"))
