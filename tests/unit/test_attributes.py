"""Which attributes can a run have, and are all others refused by name?"""

from __future__ import annotations

from typing import Any

import pytest

from redisworld import attributes
from redisworld.errors import InvalidInput, MalformedMessage


def test_a_dict_and_keywords_go_together() -> None:
    assert attributes.checked({"order id": "7", "old": None}, {"stage": "paid"}) == {
        "order id": "7",
        "old": None,
        "stage": "paid",
    }


@pytest.mark.parametrize(
    ("changes", "more", "complaint"),
    [
        (None, {}, "no attribute was given"),
        ({}, {}, "no attribute was given"),
        ([("a", "b")], {}, "a dict of texts"),
        ({"a": "1"}, {"a": "2"}, "'a' is given twice"),
        ({"": "1"}, {}, "1 to 256 characters"),
        ({"k" * 257: "1"}, {}, "1 to 256 characters"),
        ({7: "1"}, {}, "attribute 7: a key is a text"),
        ({"$root": "1"}, {}, "reserved"),
        ({}, {"progress": 42}, r"'progress': values are texts, not int; write str\(42\)"),
        ({}, {"done": True}, "not bool"),
        ({}, {"note": "ä" * 129}, "at most 256 bytes, this one has 258"),
        ({}, {"note": "\ud800"}, "no text that can be stored"),
        ({"\ud800": "x"}, {}, "no text that can be stored"),
    ],
)
def test_what_cannot_be_an_attribute_is_refused_by_name(changes: Any, more: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        attributes.checked(changes, more)


def test_the_longest_key_and_value_are_accepted() -> None:
    assert attributes.checked({"k" * 256: "ä" * 128}, {})


def test_a_runtime_may_set_its_reserved_keys() -> None:
    assert attributes.checked({"$root": "r1"}, {}, reserved=True) == {"$root": "r1"}


def test_the_payload_of_the_event_comes_back() -> None:
    payload = attributes.encode({"a": "1", "b": None}, "s1_x")

    assert attributes.decode(payload) == attributes.AttributesSet({"a": "1", "b": None}, "s1_x")
    with pytest.raises(MalformedMessage, match="attr_set"):
        attributes.decode(b"\x93rubbish")


def test_none_takes_an_attribute_away_and_the_others_stay() -> None:
    assert attributes.merge({"a": "1", "b": "2"}, {"a": None, "c": "3", "nothing": None}) == {"b": "2", "c": "3"}
