"""Are the bytes on the wire and in the log still the ones that running deployments write and read?

A golden file is hex text and is never edited: when this test fails, messages in flight during an upgrade would break.
A change that must be made takes a new spec version with files of its own, and this version's must still decode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from redisworld import messages
from redisworld.errors import ErrorInfo
from redisworld.events import EventKind, RunCreated, parse
from redisworld.messages import RunContext, RunInput, StepMessage, WorkflowMessage

GOLDEN = Path(__file__).parent.parent / "golden"

SPEC_1: dict[str, Any] = {
    "step_full": StepMessage(
        message_id="msg-7",
        run_id="publish-cat",
        workflow_name="publish",
        step_id="s2_7k0h3vq1m5fa",
        step_name="thumbnail",
        run_context=RunContext(
            deployment_id="blue", spec_version=1, started_at=1_764_628_800_123, root_run_id="publish-all"
        ),
        step_input=b"\x92\xa7cat.png\x40",
        deliveries=3,
        first_refused_at=1_764_628_805_000,
        requested_at=1_764_628_801_000,
        trace_carrier={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        deployment_mismatch_retry_count=2,
    ),
    "step_minimal": StepMessage(
        message_id="msg-7",
        run_id="publish-cat",
        workflow_name="publish",
        step_id="s2_7k0h3vq1m5fa",
        step_name="thumbnail",
    ),
    "workflow_full": WorkflowMessage(
        message_id="msg-1",
        run_id="publish-cat",
        workflow_name="publish",
        reason="start",
        run_input=RunInput(input=b"\x91\xa7cat.png", deployment_id="blue", spec_version=1, root_run_id="publish-all"),
        deliveries=2,
        first_refused_at=1_764_628_805_000,
        requested_at=1_764_628_800_000,
        trace_carrier={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    ),
    "workflow_minimal": WorkflowMessage(message_id="msg-1", run_id="publish-cat", workflow_name="publish"),
    "run_input": RunInput(input=b"\x91\xa7cat.png", deployment_id="blue", spec_version=1, root_run_id="publish-all"),
    "error_info": ErrorInfo(
        type="StepTimeout",
        message="thumbnail ran beyond its timeout of 120000 ms",
        traceback="Traceback (most recent call last):\n  …\n",
        code="USER_ERROR",
        cause=ErrorInfo(type="builtins.ValueError", message="höchstens 3"),
    ),
    "error_info_minimal": ErrorInfo(type="builtins.KeyError", message=""),
    "run_created": RunCreated(
        input=b"\x91\xa7cat.png", deployment_id="blue", spec_version=1, root_run_id="publish-all"
    ),
    "run_created_minimal": RunCreated(input=b"\x90"),
}


def encode(value: Any) -> bytes:
    return messages.encode(value) if isinstance(value, StepMessage | WorkflowMessage) else msgspec.msgpack.encode(value)


def decode(data: bytes, like: Any) -> Any:
    if isinstance(like, StepMessage | WorkflowMessage):
        return messages.decode(data)
    return msgspec.msgpack.decode(data, type=type(like))


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / "spec1" / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", SPEC_1)
def test_what_is_written_today_is_what_spec_1_writes(name: str) -> None:
    assert encode(SPEC_1[name]).hex() == golden(name).hex()


@pytest.mark.parametrize("name", SPEC_1)
def test_what_spec_1_wrote_is_read_today(name: str) -> None:
    assert decode(golden(name), like=SPEC_1[name]) == SPEC_1[name]


def test_every_golden_file_belongs_to_a_value() -> None:
    assert {file.stem for file in (GOLDEN / "spec1").iterdir()} == {*SPEC_1, "event_header"}


def test_the_header_of_a_log_element_is_the_one_of_spec_1() -> None:
    event = parse(golden("event_header"))

    assert (event.kind, event.id, event.attempt) == (EventKind.STEP_CREATED, "s2_7k0h3vq1m5fa", 0)
    assert (event.at, event.detail, event.payload) == (1_764_628_800_123, "thumbnail", b"\x92\xa7cat.png\x40")
