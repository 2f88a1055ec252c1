"""Do clocks and chance repeat in a body, and stay real everywhere else?"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redisworld import values
from redisworld.events import Event, EventKind
from redisworld.replay import Instance, install, now, sleep
from redisworld.replay import random as run_random
from redisworld.workflows import Workflow, Workflows
from tests.unit import early
from tests.unit.replay_driver import START, Driver

install()

wf = Workflows()


@wf.step
async def ask(text: str) -> str:
    return text


@wf.workflow
async def captured(name: str) -> str:
    first = early.STABLE[name]()
    await ask(repr(first))
    await sleep(60)
    return repr((first, early.STABLE[name]()))


@wf.workflow
async def moments() -> list[float]:
    first = time.time()
    await sleep("1h")
    return [first, time.time(), now().timestamp(), datetime.datetime.now().timestamp()]


@wf.workflow
async def own_generator(noise: bool) -> float:
    if noise:
        random.random()
        uuid.uuid4()
        random.seed(1)
    return run_random().random()


@wf.workflow
async def seeding() -> tuple[float, float, str]:
    state = random.getstate()
    random.seed(3)
    first = random.random()
    random.setstate(state)
    return first, random.gauss(0, 1), str(uuid.uuid4())


@wf.workflow
async def from_a_default() -> str:
    return repr(await make())


@dataclass
class Ticket:
    """Made after the guard, as in an application that `redisworld worker` imports."""

    at: float = field(default_factory=time.time)
    when: datetime.datetime = field(default_factory=partial(datetime.datetime.now, datetime.UTC))
    id: uuid.UUID = field(default_factory=uuid.uuid4)


@wf.step
async def make() -> Ticket:
    return Ticket()


@wf.workflow
async def slow(milliseconds: int) -> float:
    barrier.wait()
    barrier.wait()
    return time.time()


barrier = threading.Barrier(2, timeout=10)


@pytest.mark.parametrize("name", early.STABLE)
def test_what_was_captured_early_repeats_in_every_replay(name: str) -> None:
    driver = Driver(captured, name)
    result = driver.run()
    driver.check_every_prefix()

    assert Driver(captured, name).run() == result


@pytest.mark.parametrize("name", sorted(set(early.STABLE) - {"time", "monotonic", "now", "subclass"}))
def test_two_runs_differ_in_chance(name: str) -> None:
    assert Driver(captured, name, run_id="a").run() != Driver(captured, name, run_id="b").run()


@pytest.mark.parametrize("name", early.STABLE)
def test_outside_of_bodies_everything_is_real(name: str) -> None:
    before = time.monotonic()
    first = early.STABLE[name]()
    while time.monotonic() == before:
        pass

    assert early.STABLE[name]() != first


_IN_ANOTHER_PROCESS = """
from tests.unit.test_ambient import *
for name in sorted(early.STABLE):
    print(Driver(captured, name).run())
"""


def test_another_process_with_another_hash_seed_sees_the_same() -> None:
    root = Path(__file__).parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }

    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(early.STABLE)


def test_clocks_of_a_body_give_body_time_and_go_on_with_it() -> None:
    first, *later = Driver(moments).run()

    assert first == START / 1_000
    assert len(set(later)) == 1
    assert later[0] - first >= 3_600


def test_the_generators_of_redisworld_do_not_depend_on_the_ambient_ones() -> None:
    assert Driver(own_generator, True).run() == Driver(own_generator, False).run()


def test_a_seed_set_in_a_body_is_the_bodys_alone() -> None:
    before = random.getstate()
    one, other = Driver(seeding, run_id="a").run(), Driver(seeding, run_id="b").run()

    assert random.getstate() == before
    assert one[0] == other[0] == random.Random(3).random()
    assert one[1:] != other[1:]


def test_the_second_half_of_a_gauss_pair_does_not_cross_into_a_body() -> None:
    expected = Driver(captured, "gauss").run()
    random.gauss(0, 1)
    pending = random._inst.gauss_next  # type: ignore[attr-defined]

    assert Driver(captured, "gauss").run() == expected
    assert random._inst.gauss_next == pending  # type: ignore[attr-defined]


def test_the_generator_of_the_process_gives_what_its_seed_promises() -> None:
    state = random.getstate()
    try:
        random.seed(42)
        drawn = [random.random(), random.choice(range(1000)), random.gauss(0, 1), random.randbytes(3)]
    finally:
        random.setstate(state)
    fresh = random.Random(42)

    assert drawn == [fresh.random(), fresh.choice(range(1000)), fresh.gauss(0, 1), fresh.randbytes(3)]


def test_a_result_is_decoded_as_part_of_the_body() -> None:
    outcomes = set()
    for _ in range(2):
        instance = Instance(run_id="r", workflow=from_a_default, input=values.encode({}), at=START)
        instance.start()
        [step] = instance.commands().steps
        instance.deliver(Event(EventKind.STEP_CREATED, step.id, 0, START + 1, step.name, step.input))
        instance.deliver(Event(EventKind.STEP_COMPLETED, step.id, 0, START + 2, "", values.encode({})))
        outcomes.add(repr(instance.outcome))

    assert len(outcomes) == 1
    assert "Failed" not in outcomes.pop()


def test_a_step_in_a_thread_sees_real_time_while_a_body_runs() -> None:
    seen: list[Any] = []

    def step_in_a_thread() -> None:
        barrier.wait()
        seen.extend([time.time(), datetime.datetime.now().timestamp(), random.random(), os.urandom(4)])
        barrier.wait()

    before = time.time()
    thread = threading.Thread(target=step_in_a_thread)
    thread.start()
    in_the_body = Driver(slow, 1).run()
    thread.join()

    assert in_the_body == START / 1_000
    assert before <= seen[0] <= time.time()
    assert before - 1 <= seen[1] <= time.time() + 1


def test_an_asynchronous_step_sees_real_time() -> None:
    async def step_in_the_loop() -> float:
        return time.time()

    before = time.time()
    assert before <= asyncio.run(step_in_the_loop()) <= time.time()


def test_subclasses_of_datetime_give_their_own_class() -> None:
    assert {type(moment) for moment in early.STABLE["subclass"]()} == {early.Moment}
    assert Driver(captured, "subclass").run().count("Moment(") == 6


def test_utcnow_is_replaced_and_its_warning_names_the_caller() -> None:
    if sys.version_info < (3, 12):
        value = datetime.datetime.utcnow()
    else:
        with pytest.warns(DeprecationWarning, match="utcnow") as caught:
            value = datetime.datetime.utcnow()
        assert caught[0].filename == __file__

    assert abs(value.replace(tzinfo=datetime.UTC).timestamp() - time.time()) < 60


@pytest.mark.parametrize("function", [time.time, os.urandom, random.random, time.sleep, uuid.uuid1])
def test_a_stand_in_passes_for_the_original(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) == function
    assert function.__name__ in repr(function)
    assert function.__doc__ == inspect.getdoc(function) or function.__doc__
    inspect.signature(function)


def test_installing_again_changes_nothing() -> None:
    before = time.time, random.random, datetime.datetime.__dict__["now"], random.Random.seed
    install()

    assert before == (time.time, random.random, datetime.datetime.__dict__["now"], random.Random.seed)


def test_the_workflows_of_this_module_are_workflows() -> None:
    assert all(isinstance(workflow, Workflow) for workflow in wf.workflows.values())
