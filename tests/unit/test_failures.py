"""Do exceptions survive the log as what they were, and never as something that acts?"""

from __future__ import annotations

import asyncio

import pytest

from redisworld import failures
from redisworld.errors import ErrorInfo, FatalError, InvalidValue, MalformedMessage, RemoteError, StepTimeout


class OrderLost(Exception):
    """A user's exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def there_and_back(exc: BaseException) -> Exception:
    return failures.rebuild(failures.decode(failures.encode(failures.describe(exc))))


@pytest.mark.parametrize(
    "exc",
    [
        *(ValueError("bad"), KeyError("image"), TimeoutError("late"), FileNotFoundError("gone")),
        *(FatalError("stop"), StepTimeout("2m")),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_builtins_and_our_own_come_back_as_themselves(exc: Exception) -> None:
    back = there_and_back(exc)

    assert type(back) is type(exc)
    assert str(back) == str(exc)
    assert back.info == failures.describe(exc)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "exc",
    [
        *(SystemExit("1"), KeyboardInterrupt("x"), asyncio.CancelledError("x"), GeneratorExit("x")),
        *(StopIteration("x"), StopAsyncIteration("x"), OrderLost("x")),
        *(ExceptionGroup("x", [ValueError()]), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_what_ends_a_process_a_loop_or_is_unknown_here_comes_back_as_remote_error(exc: BaseException) -> None:
    back = there_and_back(exc)

    assert type(back) is RemoteError
    assert type(exc).__name__ in str(back)


def test_a_name_that_is_a_builtin_but_no_exception_is_never_called() -> None:
    assert type(failures.rebuild(ErrorInfo(type="exit", message="1"))) is RemoteError
    assert type(failures.rebuild(ErrorInfo(type="eval", message="1/0"))) is RemoteError


def test_type_message_and_traceback_are_recorded() -> None:
    try:
        raise OrderLost("order 7")
    except OrderLost as exc:
        info = failures.describe(exc, code="USER_ERROR")

    assert info.type == f"{__name__}.OrderLost"
    assert str(info) == f"{__name__}.OrderLost: order 7"
    assert info.code == "USER_ERROR"
    assert "in test_type_message_and_traceback_are_recorded" in (info.traceback or "")


def test_the_cause_chain_comes_back_and_is_bounded() -> None:
    error = ValueError("0")
    error.__cause__ = error  # a cycle, which must end

    back: BaseException | None = there_and_back(error)

    depth = 0
    while back is not None:
        assert type(back) is ValueError
        back, depth = back.__cause__, depth + 1
    assert depth == 1 + failures.MAX_CAUSES


def test_huge_and_hostile_texts_are_recorded_within_bounds() -> None:
    info = failures.describe(ValueError("\ud800" + "x" * 100_000))

    assert len(failures.encode(info)) < 3 * failures.MAX_TEXT
    assert "RuntimeError" in failures.describe(Unprintable()).message


def test_rubbish_is_no_error_info() -> None:
    with pytest.raises(MalformedMessage):
        failures.decode(b"\x93rubbish")


def test_fatal_is_what_would_fail_again() -> None:
    assert failures.is_fatal(FatalError("x"))
    assert failures.is_fatal(InvalidValue("a lock"))
    assert not failures.is_fatal(ValueError("x"))
    assert not failures.is_fatal(StepTimeout("x"))
