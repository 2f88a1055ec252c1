"""Is docs/steps.md true? Its code runs, and its tables name the options and fields that there are."""

from __future__ import annotations

import inspect
import re
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, StepError, StepInfo, Workflows, World
from tests.integration.cli_process import ROOT

PAGE = (ROOT / "docs" / "steps.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def names() -> dict[str, Any]:
    """What the blocks define, one after another."""
    found: dict[str, Any] = {"__name__": "steps_page"}
    for block in BLOCKS:
        exec(compile(block, "docs/steps.md", "exec"), found)
    return found


def rows(heading: str) -> list[str]:
    """First cells of the table of a section."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [cell for cell in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) if cell != "---"]


def test_the_table_of_options_is_that_of_the_decorator() -> None:
    options = list(inspect.signature(Workflows.step).parameters)[2:]

    assert sorted(cell.strip("`") for cell in rows("Options")[1:]) == sorted(options)


def test_the_table_of_fields_is_that_of_the_metadata() -> None:
    told = re.findall(r"`(\w+)`", " ".join(rows("Who am I")))

    assert sorted(told) == sorted(StepInfo.__struct_fields__)


@pytest.mark.anyio
async def test_the_code_of_the_page_runs_as_it_says(redis_url: str, names: dict[str, Any]) -> None:
    wf: Workflows = names["wf"]

    @wf.workflow
    async def call(name: str, args: list[Any]) -> Any:
        try:
            return await wf.steps[name](*args)
        except StepError as error:
            return f"{type(error).__name__}: {error}"
        except ValueError as error:
            return f"ValueError: {error}"

    async with World.connect(settings=Settings(url=redis_url)) as world, anyio.create_task_group() as tasks:
        worker = Worker(world, wf)
        tasks.start_soon(worker.run)

        async def result(name: str, *args: Any) -> Any:
            return await (await world.start(call, name, list(args))).result(timeout=20)

        assert await (await world.start(names["pay"], "42")).result(timeout=20) == "42: 999"
        assert await result("thumbnail-v2", "cat", 64) == "cat@64"
        assert await result("digest", b"x") == names["digest"](b"x")
        assert await result("reserve", "discontinued") == "FatalError: there is no more of it"
        assert await result("reserve", "lamp") == "lamp at attempt 2"
        assert await result("upload", "") == "ValueError: no name"
        assert await result("fetch", "http://x") == "http://x"
        assert await result("query", 1.0) == "attempt 2 of 2"
        assert list(await result("refund", 5)) == ["Idempotency-Key"]
        paid = await (await world.start(names["payday"], redis_url, ["1", "2"], run_id="top")).result(timeout=20)
        assert await world.run(paid[1]).result(timeout=20) == "2: 999"
        assert sorted(paid) == sorted(run.run_id for run in (await world.listing.runs(root="top")).runs)
        assert await result("receipt", "42") == "42: 999 " + names["digest"](b"paid")[:6]
        assert await result("archive", "42") == "42: 999"
        worker.stop()
