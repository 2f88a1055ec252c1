"""Which exceptions of a step are tried again, and are policies that cannot be meant refused?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redisworld.errors import FatalError, InvalidInput, InvalidValue, RetryableError, StepTimeout
from redisworld.retries import Retries
from redisworld.workflows import Workflows


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ValueError("x"), True),
        (StepTimeout("x"), True),
        (RetryableError("x"), True),
        (FatalError("x"), False),
        (InvalidValue("a lock"), False),
        (ExceptionGroup("two", [ValueError("x"), FatalError("y")]), False),
        (ExceptionGroup("two", [ValueError("x"), ExceptionGroup("one", [KeyError("y")])]), True),
    ],
)
def test_without_a_policy_all_is_tried_again_but_what_is_fatal_by_itself(error: Exception, again: bool) -> None:
    assert Retries.checked().allow(error) is again


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ValueError("x"), False),
        (UnicodeError("a ValueError too"), False),
        (KeyError("x"), True),
        (StepTimeout("x"), True),
        (RetryableError("asked for"), True),
        (ExceptionGroup("one", [ValueError("x")]), False),
    ],
)
def test_fatal_types_and_those_below_are_not_tried_again(error: Exception, again: bool) -> None:
    assert Retries.checked(fatal=ValueError).allow(error) is again


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionResetError("x"), True),
        (ValueError("x"), False),
        (StepTimeout("x"), True),
        (RetryableError("asked for"), True),
        (FatalError("x"), False),
        (ExceptionGroup("two", [ConnectionError("x"), ValueError("y")]), False),
    ],
)
def test_with_retry_on_only_those_are_tried_again_and_timeouts(error: Exception, again: bool) -> None:
    assert Retries.checked(retry_on=(ConnectionError, KeyError)).allow(error) is again


@pytest.mark.parametrize(
    ("error", "again"),
    [(FileNotFoundError("x"), False), (ConnectionError("x"), True), (OSError("x"), True), (ValueError("x"), False)],
)
def test_of_both_the_nearest_type_decides(error: Exception, again: bool) -> None:
    assert Retries.checked(fatal=FileNotFoundError, retry_on=OSError).allow(error) is again


def test_the_nearest_type_decides_the_other_way_round_too() -> None:
    policy = Retries.checked(fatal=OSError, retry_on=[ConnectionError])

    assert policy.allow(ConnectionResetError("x"))
    assert not policy.allow(FileNotFoundError("x"))


def test_a_timeout_can_be_fatal() -> None:
    assert not Retries.checked(fatal=StepTimeout).allow(StepTimeout("x"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fatal": "ValueError"}, r"fatal takes types of exceptions, like fatal=\(ValueError"),
        ({"fatal": (ValueError, "KeyError")}, "'KeyError' is no type of exception"),
        ({"fatal": ValueError("x")}, "fatal takes types of exceptions"),
        ({"fatal": int}, "is no type of exception"),
        ({"retry_on": asyncio.CancelledError}, "CancelledError is no error of a step"),
        ({"retry_on": KeyboardInterrupt}, "KeyboardInterrupt is no error of a step"),
        ({"retry_on": ()}, "say max_retries=0"),
        ({"fatal": ValueError, "retry_on": (ValueError, KeyError)}, "ValueError cannot be both"),
        ({"fatal": RetryableError}, "asks for a retry"),
        ({"retry_on": FatalError}, "is never retried"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_at_registration(options: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=f"step charge: .*{complaint}"):

        @Workflows().step(**options)
        def charge() -> None: ...
