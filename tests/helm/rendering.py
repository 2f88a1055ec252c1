"""What does helm make of the chart?"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.helm import tools
from tests.helm.schema import CHART

Document = dict[str, Any]

VERSIONS = tuple(tools.HELM)
MATRIX = tuple(sorted((CHART / "ci").glob("*-values.yaml")))
NAMESPACE = "team-x"
RELEASE = "rel"

LEAST = {"image": {"repository": "registry.example.com/team/app", "tag": "v1"}, "app": "app:wf",
         "redis": {"url": "redis://redis.example.com:6379/0"}}  # fmt: skip
"""Values that suffice."""


class Once(yaml.SafeLoader):
    """Reads YAML as a cluster does: a key that stands twice in a map is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice at line {node.start_mark.line}: {keys}"
        return super().construct_mapping(node, deep)


class Refused(Exception):
    """helm's answer to values it does not take."""


def helm(version: str, *arguments: str, values: dict[str, Any] | None = None) -> str:
    """Run helm; what it says. ``values`` come through its standard input. Raises Refused, ToolMissing."""
    command = [str(tools.helm(version)), *arguments]
    if values is not None:
        command += ["--values", "-"]
    done = subprocess.run(
        command, input=yaml.safe_dump(values or {}), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout + done.stderr


def render(
    values: dict[str, Any] | None = None,
    *more: str,
    file: Path | None = None,
    version: str = VERSIONS[0],
    chart: Path = CHART,
    release: str = RELEASE,
) -> list[Document]:
    """The documents that a release consists of. Raises Refused."""
    files = [] if file is None else ["--values", str(file)]
    text = helm(version, "template", release, str(chart), "--namespace", NAMESPACE, *files, *more, values=values)
    return [document for document in yaml.load_all(text, Once) if document]


def merged(*values: dict[str, Any]) -> dict[str, Any]:
    """Values laid over each other, as helm does."""
    result: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            deeper = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if deeper else value
    return result


def least(**values: Any) -> dict[str, Any]:
    """Values that suffice, and these."""
    return merged(LEAST, values)


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def one(documents: list[Document], kind: str, name: str) -> Document:
    """The document of a kind whose name ends like this."""
    found = [document for document in of_kind(documents, kind) if document["metadata"]["name"].endswith(name)]
    assert len(found) == 1, [document["metadata"]["name"] for document in documents]
    return found[0]


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Name and specification of every pod, and of every pod that is made from a template."""
    for document in documents:
        if document["kind"] == "Pod":
            yield document["metadata"]["name"], document["spec"]
        elif document["kind"] in ("Deployment", "StatefulSet"):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def containers(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Name and specification of every container."""
    for name, spec in pods(documents):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{name}/{container['name']}", container


def container(documents: list[Document], name: str) -> Document:
    """One container, by the end of its name, like ``-default/worker``."""
    (found,) = (spec for at, spec in containers(documents) if at.endswith(name))
    return found


def environment(spec: Document) -> dict[str, str]:
    """The plain variables of a container; those from a Secret as ``secret/key``."""
    found = {}
    for variable in spec.get("env", []):
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            found[variable["name"]] = f"{reference['name']}/{reference['key']}"
        else:
            found[variable["name"]] = variable["value"]
    return found
