"""Which fixtures do the tests of the chart share? A tool that cannot be had skips them, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helm import tools
from tests.helm.rendering import MATRIX, VERSIONS, Document, render


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without helm nothing can be said of the chart; one look suffices."""
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    if mine:
        try:
            for version in VERSIONS:
                tools.helm(version)
        except tools.ToolMissing as missing:
            for item in mine:
                item.add_marker(pytest.mark.skip(reason=str(missing)))


@pytest.fixture(scope="session")
def judges() -> Path:
    """The Python of the judges."""
    try:
        return tools.judges()
    except tools.ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def rendered() -> Callable[[str, str], list[Document]]:
    """The documents of a file of the matrix, by its stem and the version of helm; each is rendered once."""
    found: dict[tuple[str, str], list[Document]] = {}

    def get(stem: str, version: str) -> list[Document]:
        if (stem, version) not in found:
            (file,) = (file for file in MATRIX if file.stem == stem)
            found[stem, version] = render(file=file, version=version)
        return found[stem, version]

    return get


@pytest.fixture
def everything(rendered: Callable[[str, str], list[Document]]) -> dict[str, list[Document]]:
    """The whole matrix, as the first helm renders it."""
    return {file.stem: rendered(file.stem, VERSIONS[0]) for file in MATRIX}


@pytest.fixture
def outage_s(request: pytest.FixtureRequest) -> float:
    """How long Redis is away. A case of A48 says 60 s; CI takes less, for what is asked does not depend on it."""
    return float(request.config.getoption("--helm-outage"))
