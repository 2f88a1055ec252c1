"""Is a log element read back as the event it is?"""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld.errors import MalformedMessage
from redisworld.events import Event, EventKind, RunCreated, carried, parse, run_created


def test_an_element_is_its_clear_header_and_its_payload() -> None:
    event = parse(b"step_retrying s1 2 1764628800123 drain\n\x81\xa1a\x01")

    assert event == Event(
        kind=EventKind.STEP_RETRYING, id="s1", attempt=2, at=1_764_628_800_123, detail="drain", payload=b"\x81\xa1a\x01"
    )


def test_a_dash_stands_for_no_id_and_no_attempt() -> None:
    event = parse(b"run_started - - 5\n")

    assert (event.id, event.attempt, event.detail, event.payload) == ("", 0, "", b"")


def test_an_element_without_payload_needs_no_line_end() -> None:
    assert parse(b"run_started - - 5") == parse(b"run_started - - 5\n")


def test_line_ends_in_the_payload_belong_to_the_payload() -> None:
    assert parse(b"step_completed s1 1 5\n\n\xa1\n\n").payload == b"\n\xa1\n\n"


def test_a_detail_may_hold_any_letters() -> None:
    assert parse("step_created s1 - 5 größe.naïve\n".encode()).detail == "größe.naïve"


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_is_read(kind: EventKind) -> None:
    assert parse(f"{kind} - - 0\n".encode()).kind is kind


@pytest.mark.parametrize(
    "element",
    [
        b"",
        b"\n",
        b"step_created",
        b"step_created s1 -",
        b"step_exploded s1 - 5\n",
        b"step_created s1 one 5\n",
        b"step_created s1 - soon\n",
        b"step_created s1 - 5.5\n",
        b"\xff\xfe s1 - 5\n",
        b"step_created s1 - " + b"9" * 10_000,
    ],
)
def test_bytes_that_are_no_event_are_malformed_and_the_header_is_shown(element: bytes) -> None:
    with pytest.raises(MalformedMessage, match="not a log element: header"):
        parse(element)


def test_a_long_header_is_cut_in_the_error() -> None:
    with pytest.raises(MalformedMessage) as caught:
        parse(b"x" * 1_000_000)

    assert len(str(caught.value)) < 300


@given(st.binary(max_size=200) | st.binary(max_size=50).map(lambda tail: b"step_created s1 - 5 " + tail))
def test_random_bytes_never_raise_anything_else(element: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        parse(element)


def test_the_trace_carrier_of_a_start_comes_back_and_none_leaves_the_bytes_as_they_were() -> None:
    carrier = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    data = msgspec.msgpack.encode(RunCreated(b"\x90", trace_carrier=carried(carrier)))

    assert msgspec.msgpack.decode(data, type=RunCreated).carrier == carrier
    assert msgspec.msgpack.encode(RunCreated(b"\x90", trace_carrier=carried(None))) == b"\x81\xa5input\xc4\x01\x90"
    assert RunCreated(b"\x90").carrier is None


@pytest.mark.parametrize("carrier", [b"\x07", b"\xa1x", b"\x81\xa1a\xa1\xff", b"\x81\xa1a\x07", b"\x91\xc0"])
def test_a_malformed_trace_carrier_costs_a_start_nothing_but_its_trace(carrier: bytes) -> None:
    data = b"\x82\xa5input\xc4\x01\x90\xadtrace_carrier" + carrier
    created = msgspec.msgpack.decode(data, type=RunCreated)

    assert (created.input, created.carrier) == (b"\x90", None)


@pytest.mark.parametrize(
    "payload", [b"", b"\x07", b"\x80", b"\x81\xa5input", b"\x82\xa5input\xc4\x00\xaddeployment_id\xa1\xff"]
)
def test_a_first_event_that_does_not_say_what_start_was_given_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedMessage, match="run_created cannot be read"):
        run_created(parse(b"run_created - - 5 wf\n" + payload))


def test_a_log_that_begins_with_another_event_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="begins with run_started, not with run_created"):
        run_created(parse(b"run_started - - 5\n"))
