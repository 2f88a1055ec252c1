"""Does the command line show every value that a run can hold, and as JSON that other programs read?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from redisworld import values
from redisworld.cli.plain import as_json


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (10**4000, 10**4000),
        (10**5000, hex(10**5000)),
        (-(10**5000), hex(-(10**5000))),
        ([{"n": {10**5000}}], [{"n": [hex(10**5000)]}]),
        ({10**5000: 1}, {hex(10**5000): 1}),
    ],
    ids=("all digits", "hexadecimal", "negative", "in a set", "as a key"),  # pytest would write the digits
)
def test_a_number_of_more_digits_than_python_writes_is_shown_in_hexadecimal(value: Any, shown: Any) -> None:
    assert json.loads(as_json(values.decode(values.encode(value)))) == shown


def test_keys_that_would_be_one_in_json_are_all_shown() -> None:
    assert json.loads(as_json({1: "a", "1": "b"})) == [[1, "a"], ["1", "b"]]
    assert json.loads(as_json({1: "a", "2": "b"})) == {"1": "a", "2": "b"}
