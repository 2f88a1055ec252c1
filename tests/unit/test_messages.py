"""Does a message survive the wire, and is everything else refused in one way?"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld.errors import MalformedMessage
from redisworld.messages import (
    Message,
    RunContext,
    RunInput,
    StepMessage,
    WorkflowMessage,
    decode,
    encode,
    moved,
    touched,
)

STEP: dict[str, Any] = {
    "kind": "step",
    "message_id": "m1",
    "run_id": "r1",
    "workflow_name": "publish",
    "step_id": "s1",
    "step_name": "thumbnail",
}
WORKFLOW: dict[str, Any] = {"kind": "workflow", "message_id": "m1", "run_id": "r1", "workflow_name": "publish"}
CONTEXT: dict[str, Any] = {"deployment_id": "blue", "spec_version": 1}
DEEP = 100_000

FULL_STEP = StepMessage(
    message_id="m1",
    run_id="r1",
    workflow_name="publish",
    step_id="s1",
    step_name="thumbnail",
    run_context=RunContext(deployment_id="blue", spec_version=1, started_at=1_764_628_800_123, root_run_id="r0"),
    step_input=b"\x92\x01\x02",
    deliveries=2,
    first_refused_at=1_764_628_800_000,
    requested_at=1_764_628_799_000,
    trace_carrier={"traceparent": "00-1-2-01"},
    deployment_mismatch_retry_count=1,
)


def pack(fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


def step(**fields: Any) -> StepMessage:
    message = decode(pack(STEP | fields))
    assert isinstance(message, StepMessage)
    return message


@pytest.mark.parametrize(
    "message",
    [
        FULL_STEP,
        StepMessage(message_id="m", run_id="r", workflow_name="w", step_id="s", step_name="n"),
        WorkflowMessage(
            message_id="m", run_id="r", workflow_name="w", reason="start", run_input=RunInput(input=b"\x90")
        ),
        WorkflowMessage(message_id="m", run_id="r", workflow_name="w"),
    ],
)
def test_a_message_comes_back_as_itself(message: Message) -> None:
    assert decode(encode(message)) == message


def test_an_empty_step_input_is_not_a_missing_one() -> None:
    assert step(step_input=b"").step_input == b""
    assert step().step_input is None


def test_the_kind_stands_in_the_message_and_defaults_do_not() -> None:
    message = WorkflowMessage(message_id="m1", run_id="r1", workflow_name="publish")

    assert msgspec.msgpack.decode(encode(message)) == WORKFLOW


def test_fields_of_a_newer_producer_are_ignored() -> None:
    newer = step(priority=7, run_context=CONTEXT | {"region": "eu"})

    assert newer.run_context == RunContext(deployment_id="blue", spec_version=1)


@pytest.mark.parametrize("started_at", [1_764_628_800_123, 1_764_628_800_123.5])
def test_the_start_time_in_the_run_context_may_be_any_number(started_at: float) -> None:
    context = step(run_context=CONTEXT | {"started_at": started_at}).run_context

    assert context is not None
    assert context.started_at == started_at


@pytest.mark.parametrize("carrier", [None, "00-1-2-01", 7, [], {"traceparent": None}, {"traceparent": b"x"}, {1: "x"}])
def test_a_malformed_trace_carrier_is_dropped_and_the_message_kept(carrier: object) -> None:
    assert step(trace_carrier=carrier, deliveries=3) == step(deliveries=3)


def test_a_trace_carrier_that_is_no_utf8_is_dropped_and_the_message_kept() -> None:
    data = pack(STEP | {"trace_carrier": {"a": "#"}}).replace(b"#", b"\xff")

    assert decode(data) == step()


@pytest.mark.parametrize(
    "requested_at", [None, "1764628800123", True, math.nan, math.inf, -math.inf, 1e300, [], b"\x00", {"ms": 1}]
)
def test_a_malformed_request_time_is_dropped_and_the_message_kept(requested_at: object) -> None:
    assert step(requested_at=requested_at, deliveries=3) == step(deliveries=3)


def test_a_request_time_written_as_a_double_is_read() -> None:
    assert step(requested_at=1_764_628_800_123.0).requested_at == 1_764_628_800_123


def test_one_malformed_diagnostic_field_does_not_cost_the_other() -> None:
    message = step(trace_carrier=7, requested_at=5, step_input=b"\x90", run_context=CONTEXT)

    assert message == step(requested_at=5, step_input=b"\x90", run_context=CONTEXT)


@pytest.mark.parametrize("diagnostics", [{}, {"trace_carrier": 7}, {"requested_at": math.nan}])
@pytest.mark.parametrize(
    "fields",
    [
        # Text instead of bytes was once read as base64 on the lenient path: "aGk=" became b"hi".
        {"step_input": "aGk="},
        {"step_input": [1, 2]},
        {"step_input": {}},
        {"run_context": "blue"},
        {"run_context": {}},
        {"run_context": {"deployment_id": "blue"}},
        {"run_context": CONTEXT | {"spec_version": "1"}},
        {"run_context": CONTEXT | {"spec_version": True}},
        {"run_context": CONTEXT | {"deployment_id": 7}},
        {"run_context": CONTEXT | {"started_at": "2026-01-01"}},
        {"run_context": CONTEXT | {"root_run_id": 7}},
        {"run_id": b"r1"},
        {"run_id": None},
        {"deliveries": "2"},
        {"first_refused_at": "now"},
    ],
)
def test_what_decides_about_a_step_is_read_strictly(fields: dict[str, object], diagnostics: dict[str, object]) -> None:
    with pytest.raises(MalformedMessage, match="not a message"):
        step(**fields, **diagnostics)


@pytest.mark.parametrize("run_input", [b"\x90", {}, {"input": "aGk="}, {"input": b"", "spec_version": "1"}])
def test_a_run_input_is_read_strictly(run_input: object) -> None:
    with pytest.raises(MalformedMessage):
        decode(pack(WORKFLOW | {"run_input": run_input}))


@pytest.mark.parametrize("missing", ["kind", "message_id", "run_id", "workflow_name", "step_id", "step_name"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {name: value for name, value in STEP.items() if name != missing}

    with pytest.raises(MalformedMessage, match=missing):
        decode(pack(fields))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(MalformedMessage, match="'signal'"):
        step(kind="signal")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xc0",
        b"\x90",
        b"\x80",
        b"not msgpack",
        b'{"kind":"step"}',
        encode(FULL_STEP) + b"\x00",
        # Headers that promise four thousand million elements must not be believed.
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        # A map as the key of a map.
        b"\x81\x80\x01",
        b"\x81\xa4kind\xa1\xff",
    ],
)
def test_bytes_that_are_no_message_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="not a message"):
        decode(data)


def test_every_truncation_of_a_message_is_malformed() -> None:
    data = encode(FULL_STEP)

    for length in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * DEEP + b"\xc0",
        b"\x81\xa1a" * DEEP + b"\xc0",
        b"\x87" + pack(STEP)[1:] + pack("novel") + b"\x91" * DEEP + b"\xc0",
        b"\x87" + pack(STEP)[1:] + pack("trace_carrier") + b"\x91" * DEEP + b"\xc0",
    ],
    ids=["lists", "maps", "in an unknown field", "in a diagnostic field"],
)
def test_nesting_deeper_than_the_stack_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*StepMessage.__struct_fields__, "kind", "novel"]), values), st.booleans())
def test_random_fields_never_raise_anything_else(fields: dict[str, object], keep_names: bool) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(pack(STEP | fields if not keep_names else fields | STEP))


@given(st.integers(0, len(encode(FULL_STEP)) - 1), st.integers(0, 255))
def test_one_flipped_byte_never_raises_anything_else(position: int, byte: int) -> None:
    data = bytearray(encode(FULL_STEP))
    data[position] = byte
    with contextlib.suppress(MalformedMessage):
        decode(bytes(data))


def test_a_moved_message_counts_its_delivery_and_keeps_its_identity() -> None:
    # when
    again = moved(FULL_STEP)

    # then
    assert again == msgspec.structs.replace(FULL_STEP, deliveries=3)


def test_a_moved_message_remembers_only_its_first_refusal() -> None:
    first = moved(WorkflowMessage(message_id="m", run_id="r", workflow_name="w"), refused_at=100)

    second = moved(first, refused_at=200)

    assert (first.first_refused_at, second.first_refused_at, second.deliveries) == (100, 100, 3)


def test_a_first_refusal_that_is_still_to_come_is_a_strangers_and_does_not_count() -> None:
    """It would never be an hour ago, and the message would be handed back for ever."""
    ahead = WorkflowMessage(message_id="m", run_id="r", workflow_name="w", first_refused_at=10**15)

    assert moved(ahead, refused_at=100).first_refused_at == 100
    assert touched(encode(ahead), refused_at=100)[2] == 100
    assert moved(ahead).first_refused_at == 10**15  # a re-route is no refusal
    assert touched(encode(moved(ahead, refused_at=100)), refused_at=200)[2] == 100
