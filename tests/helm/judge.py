"""What do Kubernetes' schemas and those of custom resources say of manifests? Runs in the judges' own environment.

Reads ``[{"name": …, "versions": […], "documents": […]}, …]`` as JSON, and writes how much it checked and what is wrong.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import kubernetes_validate

MODELS = {
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
}


def of_kubernetes(document: dict[str, Any], version: str) -> Iterator[str]:
    """What the strict schema of a Kubernetes version has against a document."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{version}: at {'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"{version}: there is no {document['apiVersion']} {document['kind']}"


def of_custom(document: dict[str, Any]) -> Iterator[str]:
    """What its model has against a custom resource; models ignore fields they do not know, so what they lose counts."""
    model = getattr(importlib.import_module(MODELS[document["apiVersion"]]), document["kind"])
    try:
        read = model.model_validate(document)
    except ValueError as error:
        yield from str(error).splitlines()
        return
    for path in lost(document, read.model_dump(by_alias=True, exclude_unset=True, mode="json")):
        yield f"unknown field {path}"


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The paths of what was there before and is no more."""
    if isinstance(before, dict):
        for key, value in before.items():
            if not isinstance(after, dict) or key not in after:
                yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        for index, value in enumerate(before):
            if not isinstance(after, list) or index >= len(after):
                yield f"{path}[{index}]"
            else:
                yield from lost(value, after[index], f"{path}[{index}]")


def main() -> None:
    validated = custom = 0
    problems = []
    for manifest in json.load(sys.stdin):
        for document in manifest["documents"]:
            found: list[str] = []
            if document["apiVersion"] in MODELS:
                custom += 1
                found += of_custom(document)
            else:
                for version in manifest["versions"]:
                    validated += 1
                    found += of_kubernetes(document, version)
            at = f"{manifest['name']}: {document['kind']} {document['metadata']['name']}"
            problems += [f"{at}: {problem}" for problem in found]
    json.dump({"validated": validated, "custom": custom, "problems": problems}, sys.stdout)


if __name__ == "__main__":
    main()
