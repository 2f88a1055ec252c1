"""Is a log element read back as the event it is?"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld.errors import MalformedMessage
from redisworld.events import Event, EventKind, parse


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
