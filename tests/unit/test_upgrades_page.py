"""Does docs/upgrades.md say what is true?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from redisworld import Workflows
from tests.unit.replay_driver import Driver

PAGE = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text()
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GATE = """    if patched("fraud-check"):
        done.append(await check_fraud(order))
"""

pytestmark = pytest.mark.anyio


def workflow(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    wf: Workflows = names["wf"]
    return wf.workflows["place"]


def test_the_example_goes_with_the_patch_in_a_new_run() -> None:
    driver = Driver(workflow(CODE), 7, created=True)

    assert driver.run() == ["reserve:7", "check_fraud:7", "charge:7"]
    assert driver.store.patches == ["fraud-check"]


async def test_a_run_under_way_fits_the_example_and_diverges_as_the_page_shows_without_the_gate() -> None:
    assert GATE in CODE
    driver = Driver(workflow(CODE.replace(GATE, "")), 7, created=True)
    driver.finish(driver.named("reserve")[0])

    driver.workflow = workflow(CODE.replace(GATE, "    done.append(await check_fraud(order))\n"))
    verdict = await driver.checked()
    shown = f"{verdict.word}  event {verdict.event}: {verdict.detail}"
    assert re.sub(r"w2_\w+|'\d+'", "…", shown) in re.sub(r"w2_\w+|'\d+'", "…", PAGE)

    driver.deploy(workflow(CODE).func)
    assert (await driver.checked()).fits
    assert driver.run() == ["reserve:7", "charge:7"]
