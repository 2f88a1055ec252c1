"""Do the headers of the scripts tell the truth, and do scripts and keys.py agree on names?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redisworld import scripts
from tests.scripts.driver import RUN, Consumer, end, inline, step
from tests.scripts.headers import COMMANDS, EVERY_FILE, FOLDER


def test_names_lists_every_command() -> None:
    assert scripts.names() == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("tag", ["key", "arg", "returns", "include"])
def test_the_header_of_a_command_has_every_tag(name: str, tag: str) -> None:
    assert re.search(rf"^-- @{tag}\s+\S", (FOLDER / f"{name}.lua").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_begins_by_saying_its_name_and_what_it_does(name: str) -> None:
    assert (FOLDER / f"{name}.lua").read_text().startswith(f"-- {name}: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_include_exists(name: str) -> None:
    included = " ".join(re.findall(r"^-- @include\s+(.*)$", (FOLDER / f"{name}.lua").read_text(), re.MULTILINE))

    assert [part for part in included.split() if not (FOLDER / "include" / f"{part}.lua").exists()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_word_a_command_answers_is_in_its_header(name: str) -> None:
    source = (FOLDER / f"{name}.lua").read_text()
    header = "".join(line for line in source.splitlines(keepends=True) if line.startswith("--"))
    promised = set(re.findall(r"\w+", header.partition("@returns")[2].partition("@include")[0]))

    answered = set(re.findall(r"return \{'(\w+)'", source)) | set(re.findall(r"finish_call\('(\w+)'", source))

    assert answered - promised == set()


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda path: path.name)
@pytest.mark.parametrize("forbidden", [r"cmsgpack", r"\bstruct\.", r"\bbit\.", r"\A#!", r"KEYS\[2\]", r"sha1hex"])
def test_a_script_uses_only_what_every_server_has(path: Path, forbidden: str) -> None:
    assert not re.search(forbidden, path.read_text())


@pytest.mark.anyio
async def test_the_keys_of_a_run_are_those_that_keys_py_names(a: Consumer) -> None:
    # given a run that used steps, an inline step, a timer, a retry with delay, a dead letter and reached its end
    turn = await a.begin()
    await a.commit(
        turn,
        step("s1"),
        step("s2", target="steps:gpu"),
        ["wait", "w1", a.clock.now + 1],
        inline("s3", a.world.next_token()),
    )
    queued = await a.steps_delivered()
    await a.retry(await a.claim(queued["s1"]), delay_ms=5)
    gpu = (await a.steps_delivered(stream="steps:gpu"))["s2"]
    await a.world.deliveries.bury(gpu, run_id=RUN, reason="undecodable", detail="")
    a.clock.advance(2)
    await a.world.upkeep.promote(a.partition)
    await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)
    wake = await a.load((await a.read("workflows"))[0])
    assert (await a.commit(wake, end())).outcome == "ended"

    # when its keys are listed
    found = {key.decode() for key in await a.redis.keys("*")}

    # then they are these, all but the namespace's own in the slot of the partition
    p = a.partition
    assert found == {
        "rw:test:meta",
        *(
            p.steps(),
            p.steps("gpu"),
            p.workflows(),
            p.delayed,
            p.delayed_body,
            p.dead,
            p.nudge,
            p.reclaim_ticket("steps"),
        ),
        *(p.run(RUN), p.log(RUN), p.stats, p.expiring, p.index("created"), p.index("status:completed")),
    }
    assert {key for key in found if not key.startswith("rw:{test:0}:")} == {"rw:test:meta"}


@pytest.mark.anyio
async def test_the_tag_in_lua_is_the_tag_in_python_whatever_the_partition(both: list[Consumer], redis_url: str) -> None:
    from redisworld.settings import Settings
    from redisworld.world import World

    settings = Settings(url=redis_url, partitions=7, namespace="a.b-c")
    async with World.connect(settings=settings) as world:
        for number in range(20):
            await world.create_run(f"run-{number}", "wf", b"\x90")
            partition = world.partition(f"run-{number}")

            assert (
                await world.connection.commands.exists(partition.run(f"run-{number}"), partition.log(f"run-{number}"))
                == 2
            )
