"""Is what a row says of a step read as it stands there?"""

from __future__ import annotations

import pytest

from redisworld.errors import MalformedMessage
from redisworld.runs import Status, Step


def test_the_state_of_a_running_inline_step_is_read_as_it_stands_in_the_row() -> None:
    step = Step.parse("running|2|1|77ca5adf.3|start|1796172304231-0/w|g1|5|7|0|6")
    assert step == Step(
        status=Status.RUNNING, attempt=2, uncharged=1, token="77ca5adf.3", message_id="start",
        entry_id="1796172304231-0/w", group="g1", input_event=5, error_event=7, retry_at=0, started_event=6,
    )  # fmt: skip


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="no state of a step"):
        Step.parse("nonsense")
