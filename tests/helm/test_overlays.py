"""Do values that people lay over the chart's own make what a cluster takes?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm import checks
from tests.helm.rendering import VERSIONS, Document, Refused, container, least, merged, of_kind, one, pods, render
from tests.helm.schema import CHART

TRIAL = {"url": "", "trial": {"enabled": True}}


def rendered(release: str = "rel", **values: Any) -> list[Document]:
    """A render that holds together."""
    documents = render(least(**values), release=release)
    assert checks.problems(documents) == []
    return documents


def test_a_label_that_the_chart_sets_too_stands_there_once() -> None:
    documents = rendered(
        commonLabels={"app.kubernetes.io/part-of": "platform", "team": "a", "grafana_dashboard": "no"},
        defaults={"podLabels": {"app.kubernetes.io/version": "v9", "team": "b"}},
        metrics={"podMonitor": {"enabled": True, "labels": {"app.kubernetes.io/instance": "prometheus"}}},
        dashboards={"enabled": True},
    )

    worker = one(documents, "Deployment", "-default")
    labels, of_pods = worker["metadata"]["labels"], worker["spec"]["template"]["metadata"]["labels"]
    assert {document["metadata"]["labels"]["app.kubernetes.io/part-of"] for document in documents} == {"platform"}
    assert (labels["team"], of_pods["team"], of_pods["app.kubernetes.io/version"]) == ("a", "b", "v9")
    monitor, board = of_kind(documents, "PodMonitor")[0], of_kind(documents, "ConfigMap")[0]
    assert monitor["metadata"]["labels"]["app.kubernetes.io/instance"] == "prometheus"
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize("release", ["true", "on", "n", "a" * 53])
def test_a_release_may_have_any_name_that_is_one(release: str) -> None:
    documents = rendered(release)

    instance = one(documents, "Deployment", "-default")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"]
    assert instance == release


@pytest.mark.parametrize("release", ["1st", "v1.2"])
def test_a_release_whose_name_is_none_of_a_service_is_told_what_to_set(release: str) -> None:
    with pytest.raises(Refused, match="set fullnameOverride to small letters"):
        render(least(), release=release)
    assert render(least(fullnameOverride="first"), release=release)


def test_names_of_digits_stay_texts() -> None:
    documents = rendered(
        redis={"existingSecret": "1", "existingSecretPasswordKey": "2"},
        namespaceOverride="123",
        serviceAccount={"create": False, "name": "7"},
        defaults={"priorityClassName": "9"},
    )

    assert {document["metadata"]["namespace"] for document in documents} == {"123"}
    spec = dict(pods(documents))["rel-redisworld-default"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("7", "9")


@pytest.mark.parametrize("kind", [{"tcpSocket": {"port": "metrics"}}, {"exec": {"command": ["true"]}}])
def test_a_probe_of_another_kind_takes_the_place_of_the_default(kind: Document) -> None:
    documents = rendered(defaults={"livenessProbe": kind, "startupProbe": None})

    worker = container(documents, "-default/worker")
    assert worker["livenessProbe"] == kind | {"periodSeconds": 15, "timeoutSeconds": 10, "failureThreshold": 8}
    assert "startupProbe" not in worker


def test_a_probe_with_the_number_of_the_port_asks_each_pod_at_its_own() -> None:
    rendered(defaults={"livenessProbe": {"httpGet": {"port": 9464}}})


def test_pods_may_be_recreated() -> None:
    documents = rendered(defaults={"updateStrategy": {"type": "Recreate"}})

    assert one(documents, "Deployment", "-default")["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("context", "group"),
    [({}, 10001), ({"fsGroup": 2000}, 2000), ({"runAsUser": None, "runAsGroup": None}, None)],
    ids=("as it is", "own", "OpenShift"),
)
def test_the_trial_redis_takes_the_group_of_the_pods(context: Document, group: int | None) -> None:
    documents = render(least(redis=TRIAL, defaults={"podSecurityContext": context}))

    assert dict(pods(documents))["rel-redisworld-trial-redis"]["securityContext"].get("fsGroup") == group


@pytest.mark.parametrize(
    ("redis", "ports"),
    [
        ({}, [6379]),
        ({"url": "rediss://redis.example.com:6380/0"}, [6380]),
        ({"url": "redis://[fd00::1]/2"}, [6379]),
        ({"url": "", "sentinel": {"nodes": ["a:26379", "b:26379"], "master": "m"}}, [26379, 6379]),
        ({"url": "", "cluster": {"nodes": ["a:7000", "b:7001"]}}, [7000, 7001]),
        ({"url": "", "existingSecret": "s", "existingSecretUrlKey": "url"}, [6379]),
        (TRIAL, [6379]),
    ],
)
def test_the_network_policy_lets_out_to_the_ports_that_redis_has(redis: Document, ports: list[int]) -> None:
    def let_out(**policy: Any) -> list[int]:
        documents = rendered(redis=redis, networkPolicy={"enabled": True, **policy})
        (_, to_redis) = one(documents, "NetworkPolicy", "-redisworld")["spec"]["egress"]
        return [port["port"] for port in to_redis["ports"]]

    assert let_out() == ports
    assert let_out(redisPorts=[7777]) == [7777]


@pytest.mark.parametrize(
    ("url", "address", "database"),
    [
        ("redis://h", "h:6379", "0"),
        ("redis://h:6380/4", "h:6380", "4"),
        ("redis://h:6379?db=3", "h:6379", "3"),
        ("redis://h:6379/4?protocol=3&db=12", "h:6379", "12"),
        ("redis://[fd00::1]/2", "[fd00::1]:6379", "2"),
    ],
)
def test_keda_looks_at_the_database_that_workers_use(url: str, address: str, database: str) -> None:
    documents = render(least(redis={"url": url}, autoscaling={"mode": "keda"}))

    told = {
        (trigger["metadata"]["address"], trigger["metadata"]["databaseIndex"])
        for trigger in of_kind(documents, "ScaledObject")[0]["spec"]["triggers"]
    }
    assert told == {(address, database)}


def paths(values: Document, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from paths(value, (*path, key))


EMPTY = [path for path in paths(yaml.safe_load((CHART / "values.yaml").read_text())) if path != ("enabled",)]


def test_a_key_with_nothing_behind_it_is_as_good_as_none_or_refused_by_its_name() -> None:
    """To Helm it takes the default away, and the template failed on words of its own, like a nil pointer."""

    def made_of(path: tuple[str, ...]) -> str:
        *parents, key = path
        empty: Any = {key: None}
        for parent in reversed(parents):
            empty = {parent: empty}
        everything: Document = {"metrics": {name: {"enabled": True} for name in ("podMonitor", "serviceMonitor")}}
        everything |= {name: {"enabled": True} for name in ("networkPolicy", "prometheusRule", "dashboards")}
        everything["defaults"] = {"resources": {"requests": {"cpu": 1}}}
        try:
            scaling = {"mode": "hpa" if "hpa" in path else "keda", "hpa": {"metrics": [{"type": "Pods"}]}}
            render(merged(least(autoscaling=scaling), everything, empty))
        except Refused as refused:
            return str(refused)
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = dict(zip(EMPTY, pool.map(made_of, EMPTY), strict=True))
    wordless = {
        path: words
        for path, words in told.items()
        if words and not re.search(rf"{path[-1]}\b", words.partition("<")[0])
    }
    assert len(told) > 200
    assert wordless == {}
    assert not told[("commonLabels",)] and not told[("defaults", "podAnnotations")]  # noqa: PT018
    assert "at '/runs': missing property 'namespace'" in told[("runs", "namespace")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_parent_chart_turns_it_on_and_off_by_its_condition(version: str, tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "charts" / "redisworld")
    condition = {"name": "redisworld", "version": "*", "repository": "", "condition": "redisworld.enabled"}
    parent = {"apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [condition]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))

    def parts(enabled: bool) -> int:
        values = {"redisworld": least(enabled=enabled), "global": {"imageRegistry": "mirror", "others": {"a": 1}}}
        return len(render(values, chart=tmp_path, version=version))

    assert parts(enabled=True) > 3
    assert parts(enabled=False) == 0
