"""Is every value documented and judged, and does a wrong one get a message that names it?"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from redisworld.settings import Settings
from tests.helm import readme, schema
from tests.helm.rendering import VERSIONS, Refused, least, render
from tests.helm.schema import CHART


def test_the_schema_file_is_what_its_source_says() -> None:
    assert schema.SCHEMA.read_text() == schema.text(), "python -m tests.helm.schema"


def test_the_readme_is_what_the_values_say() -> None:
    assert readme.README.read_text() == readme.text(), "python -m tests.helm.readme"


def test_every_value_is_documented() -> None:
    told = readme.documented()

    for path in readme.leaves(yaml.safe_load(readme.VALUES.read_text())):
        parents = [path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1)]
        assert any(parent in told for parent in parents), path


def test_the_schema_has_the_keys_of_the_values_and_those_of_a_pool() -> None:
    def keys(values: Any, judged: dict[str, Any], path: str) -> None:
        if "properties" not in judged or path in ("pools", "defaults.settings"):
            return
        assert set(values) <= set(judged["properties"]), path
        missing = set(judged["properties"]) - set(values)
        inherited = set(schema.POD) | {"image"} if path == "alwaysOn" else set()
        assert missing <= inherited, f"{path}: {missing}"
        for key, value in values.items():
            keys(value, judged["properties"][key], f"{path}.{key}".lstrip("."))

    keys(yaml.safe_load(readme.VALUES.read_text()), schema.schema(), "")


def test_every_other_setting_of_the_program_may_be_given() -> None:
    names = schema.POD["settings"]["properties"]

    assert set(names) | schema.OF_THE_CHART == set(Settings.__struct_fields__)
    documents = render(
        least(defaults={"settings": {"retention_ms": "7d", "max_deliveries": 3, "sticky_runs": 100000000}})
    )
    text = yaml.safe_dump_all(documents)
    for variable, value in (("RETENTION_MS", "7d"), ("MAX_DELIVERIES", "'3'"), ("STICKY_RUNS", "'100000000'")):
        assert f"name: REDISWORLD_{variable}\n          value: {value}" in text


WRONG = yaml.safe_load(Path(__file__).with_name("wrong_values.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "message"), [(each["values"], each["message"]) for each in WRONG], ids=[each["case"] for each in WRONG]
)
def test_a_wrong_value_fails_with_a_message_that_names_it(values: dict[str, Any], message: str) -> None:
    version = VERSIONS[len(message) % len(VERSIONS)]  # both helms get their share

    with pytest.raises(Refused) as refused:
        render(least(**values), version=version)

    told = str(refused.value).replace("\n", " ")
    assert message in told
    assert "s3cret-pass" not in told


def test_a_field_that_the_cluster_does_not_know_is_refused() -> None:
    values = least(
        podDisruptionBudget={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, pools={"default": {"replicas": 2}}
    )

    with pytest.raises(Refused, match=r"unhealthyPodEvictionPolicy needs Kubernetes 1\.27 or newer"):
        render(values, "--kube-version", "1.26.0")
    assert render(values, "--kube-version", "1.27.0")


def test_an_old_kubernetes_is_refused() -> None:
    with pytest.raises(Refused, match=r">=1\.25\.0-0"):
        render(least(), "--kube-version", "1.24.0")


def test_the_version_of_the_program_is_that_of_the_package() -> None:
    package = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())

    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == package["project"]["version"]
