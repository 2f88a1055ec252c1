"""Does each construct give on the real consumers what it gives in Python?"""

from __future__ import annotations

import pytest

from tests.constructs.conftest import Recorded
from tests.constructs.everything import CATALOGUE

pytestmark = pytest.mark.parametrize("name", CATALOGUE)


def test_it_gives_what_it_should(warm: dict[str, Recorded], name: str) -> None:
    assert not warm[name].trouble, warm[name].trouble
    assert warm[name].outcome == CATALOGUE[name].expected


def test_it_gives_the_same_when_all_its_steps_go_through_the_queue(queued: dict[str, Recorded], name: str) -> None:
    assert not queued[name].trouble, queued[name].trouble
    assert queued[name].outcome == CATALOGUE[name].expected


def test_a_body_that_stays_in_memory_writes_the_log_of_one_that_is_replayed_each_time(
    warm: dict[str, Recorded], cold: dict[str, Recorded], name: str
) -> None:
    """Byte for byte: ids, order, payloads and times."""
    one, other = warm[name].recording, cold[name].recording
    assert one is not None, warm[name].trouble
    assert other is not None, cold[name].trouble
    assert one.elements == other.elements
    assert one.commits == other.commits


def test_two_workers_that_take_turns_write_the_log_of_one(
    warm: dict[str, Recorded], alternating: dict[str, Recorded], name: str
) -> None:
    """Each comes back to a body that the other one has overtaken."""
    one, other = warm[name].recording, alternating[name].recording
    assert one is not None, warm[name].trouble
    assert other is not None, alternating[name].trouble
    assert one.elements == other.elements
