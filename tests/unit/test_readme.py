"""Does the README say what is true?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import redisworld

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_in_the_readme_is_the_file_it_names() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    source = (ROOT / "examples" / "thumbnails.py").read_text()
    assert source.partition("\n\n")[2] == blocks[0]


def test_every_page_the_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_page_of_the_docs_links_to_pages_that_exist() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+\.md)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_public_names_are_exactly_those_listed() -> None:
    tree = ast.parse((ROOT / "redisworld" / "__init__.py").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(redisworld.__all__)
    assert list(redisworld.__all__) == sorted(redisworld.__all__)
