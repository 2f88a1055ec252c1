"""Which errors can a caller meet, and what decision does each one ask for?

RedisworldError
├── InvalidInput            what was given cannot work; nothing was written
│   ├── InvalidArguments    arguments do not fit the signature
│   ├── InvalidValue        a value would not survive the round trip, or is too big
│   └── NotRegistered       no such workflow or step in this registry
├── NamespaceNotFound       nothing has been started in this namespace yet
├── NamespaceMismatch       the namespace was made with another partition count or data version
├── RedisUnavailable        Redis did not answer, or refused for now; the call may have happened all the same
├── RunNotFound             no such run (never started, or past its retention)
├── RunConflict             the run id belongs to a run of another workflow
├── RunGone                 the run has ended, so it takes no more events
├── LetterNotFound          no such dead letter: redriven, dropped, or never there
├── DeploymentBusy          live workers hold messages of a deployment that is to be moved
├── HookError
│   ├── HookNotFound        no living hook holds this token
│   ├── HookConflict        in the body: another run's hook holds the token
│   └── HookDisposed        in the body: the hook takes no more payloads
├── OutputClosed            in a step: the output stream takes no more chunks
├── StaleAttempt            in a step: another attempt of it goes on, or none does
├── ResumeConflict          the resume id was used with another payload or token
├── RunUnsuccessful         the run ended without a result
│   ├── RunFailed           with the error that ended it, and its code
│   └── RunCancelled
├── StepError               what a step raises, or what an awaited step raises in the body
│   ├── FatalError          do not retry
│   ├── RetryableError      retry after the given time
│   ├── StepTimeout         the step's body ran beyond its timeout
│   └── RemoteError         an exception whose class cannot be given to a body
├── ForbiddenInWorkflow     the body called something that cannot be replayed
├── ReplayDivergence        log and code disagree
└── MalformedMessage        bytes in Redis that are no message or event of ours
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

E = TypeVar("E", bound=BaseException)


class RedisworldError(Exception):
    """Base of every error this library raises on purpose. Pickled or copied it keeps its text and attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: Any = super().__reduce__()
        _, args, *attributes = reduced
        return made_without_init, (type(self), args), *attributes


class InvalidInput(RedisworldError, ValueError):
    """What was given cannot work; nothing was written."""


class InvalidArguments(InvalidInput):
    """The arguments do not fit the signature of the workflow or step."""


class InvalidValue(InvalidInput):
    """A value would not come back from Redis as itself, or is bigger than ``max_payload``."""


class NotRegistered(InvalidInput):
    """The registry knows no workflow or step of that name."""


class NamespaceNotFound(RedisworldError):
    """There is no such namespace, and it was not to be made."""


class NamespaceMismatch(RedisworldError):
    """The namespace in Redis was made with another partition count, or by a newer data version."""


class RedisUnavailable(RedisworldError):
    """Redis did not answer in time, refused the write for now, or cannot be reached.

    What was asked for may have happened: the answer can be lost on its way. To repeat the call is safe, but for three
    that would then happen twice: ``world.start`` without a ``run_id``, ``world.resume`` without a ``resume_id``, and
    ``write`` to an output stream.
    """


class RunNotFound(RedisworldError):
    """There is no run with this id: it was never started, or its retention is over."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r} in this namespace (never started, or past its retention)")
        self.run_id = run_id


class RunConflict(RedisworldError):
    """The run id is taken by a run of another workflow, ``workflow``."""

    run_id: str = ""
    """Of the class, too, like all attributes below: one recorded by an earlier version has none of its own."""
    workflow: str = ""

    def __init__(self, message: str = "", *, run_id: str = "", workflow: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.workflow = workflow


class RunGone(RedisworldError):
    """The run has ended; it accepts no more events."""

    run_id: str = ""

    def __init__(self, message: str = "", *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class LetterNotFound(RedisworldError):
    """There is no dead letter of this name: it was redriven or dropped, or never there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no dead letter {name!r}: it was redriven or dropped already, or never there")
        self.name = name


class DeploymentBusy(RedisworldError):
    """Live workers hold messages of a deployment whose runs are to be moved; nothing was written."""


class HookError(RedisworldError):
    """What a hook's token cannot be used for."""


class HookConflict(HookError):
    """Another run's living hook holds the token; ``run_id`` is that run. Raised where the body awaits the hook."""

    def __init__(self, token: str, run_id: str) -> None:
        super().__init__(f"the hook token {token!r} is held by run {run_id!r}")
        self.token = token
        self.run_id = run_id


class HookDisposed(HookError):
    """The hook was disposed of and takes no more payloads. Raised where the body awaits it."""

    def __init__(self, token: str) -> None:
        super().__init__(f"the hook with token {token!r} was disposed of")
        self.token = token


class HookNotFound(HookError):
    """No living hook holds this token: it was never created, is disposed, or its run has ended."""

    def __init__(self, token: str) -> None:
        super().__init__(f"no hook holds the token {token!r} (never created, disposed, or its run has ended)")
        self.token = token


class OutputClosed(RedisworldError):
    """The output stream ``name`` was closed; only a later attempt of the step that closed it may go on."""

    run_id: str = ""
    name: str = ""
    closed_by: str = ""
    """The id of that step."""

    def __init__(self, message: str = "", *, run_id: str = "", name: str = "", closed_by: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.name = name
        self.closed_by = closed_by


class StaleAttempt(RedisworldError):
    """This attempt of a step is not the running one any more: its lease or its timeout is over. It should stop."""

    run_id: str = ""
    step_id: str = ""
    attempt: int = 0

    def __init__(self, message: str = "", *, run_id: str = "", step_id: str = "", attempt: int = 0) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.step_id = step_id
        self.attempt = attempt


class ResumeConflict(RedisworldError):
    """The resume id was used before, with another payload or for another token; nothing was written."""

    resume_id: str = ""
    token: str = ""

    def __init__(self, message: str = "", *, resume_id: str = "", token: str = "") -> None:
        super().__init__(message)
        self.resume_id = resume_id
        self.token = token


_MEMBERS_TOLD = 3
"""Errors of a group that a line about it names."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as it is recorded: the payload of ``step_failed``, ``step_retrying`` and ``run_failed``.

    ``traceback`` is text for people; nothing is ever rebuilt from it. ``cause`` is the error that this one was raised
    from, ``context`` the one that was being handled, ``exceptions`` those of a group.
    """

    type: str
    message: str
    traceback: str | None = None
    code: str | None = None
    cause: ErrorInfo | None = None
    context: ErrorInfo | None = None
    notes: tuple[str, ...] = ()
    exceptions: tuple[ErrorInfo, ...] = ()
    base: str = ""
    """The nearest class that every process knows, a builtin or one of redisworld's, where ``type`` is none."""
    contents: bytes = b""
    """Arguments and attributes as an encoded value, where the type may come back as itself."""

    def __str__(self) -> str:
        told = f"{self.type}: {self.message}" if self.message else self.type
        if not self.exceptions:
            return told
        # What a TaskGroup calls its errors says nothing of them.
        left_out = len(self.exceptions) - _MEMBERS_TOLD
        more = [f"{left_out} more"] if left_out > 0 else []
        return f"{told} ({'; '.join([*map(str, self.exceptions[:_MEMBERS_TOLD]), *more])})"


class RunUnsuccessful(RedisworldError):
    """The run ended without a result."""


class RunFailed(RunUnsuccessful):
    """The run ended ``failed``. ``error`` says how, ``code`` why.

    - USER_ERROR: the body raised ``error``, or could not be given its arguments or return its result
    - REPLAY_DIVERGENCE: log and code disagreed, also when replayed again; ``error`` names both sides
    - DEPLOYMENT_MISMATCH: no worker of its deployment took it
    - MAX_DELIVERIES_EXCEEDED: a message of it was delivered too often without being processed
    - MAX_EVENTS_EXCEEDED: its log was full
    - INVALID_COMMIT: Redis could not record what the body asked for
    - CORRUPTED_EVENT_LOG: its log cannot be read
    """

    def __init__(self, run_id: str, error: ErrorInfo) -> None:
        code = error.code or "USER_ERROR"
        super().__init__(f"run {run_id!r} failed with {code}: {error}")
        self.run_id = run_id
        self.error = error
        self.code = code


class RunCancelled(RunUnsuccessful):
    """The run ended ``cancelled``."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class StepError(RedisworldError):
    """What a step raises on purpose, and what awaiting a failed step raises in the body.

    ``info`` is set where the error came back from the log.
    """

    info: ErrorInfo | None = None


class FatalError(StepError):
    """Raise it in a step: no retry, the step fails at once."""


class RetryableError(StepError):
    """Raise it in a step: retry after ``retry_after`` (default 1 s) instead of the step's own backoff.

    Seconds, a timedelta, text like ``"5m"``, or an aware datetime: a moment.
    """

    retry_after: timedelta | float | str | datetime = 1.0
    """Of the class, too: a subclass may forget to call ``__init__``."""

    def __init__(self, message: str = "", *, retry_after: timedelta | float | str | datetime = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StepTimeout(StepError):
    """The step's body ran beyond its ``timeout``; counts as an ordinary failed attempt."""


class RemoteError(StepError):
    """A step failed with an exception whose class cannot be given to a body (docs/values.md); see ``info``."""


class ForbiddenInWorkflow(RedisworldError):
    """The body called something whose result could not be replayed; do it in a step."""


class ReplayDivergence(RedisworldError):
    """The log holds something this code does not ask for, or the other way round."""


class MalformedMessage(RedisworldError):
    """Bytes in Redis that are no message or event of ours."""


def made_without_init(kind: type[E], args: Any) -> E:
    """An error with these ``args``. The ``__init__`` of its class is not run: it may take other arguments."""
    builtin: Any = builtin_class(kind)
    error: E = builtin.__new__(kind, *args)
    builtin.__init__(error, *args)
    return error


def builtin_class(kind: type[BaseException]) -> type[BaseException]:
    """The nearest class above it that Python itself has."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")
