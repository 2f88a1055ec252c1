"""Do A47 and A48 hold: nothing in clear, one who scales, and every value of a pod reaches it?"""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from redisworld.keys import GROUP, Partition
from tests.helm.rendering import (
    NAMESPACE,
    RELEASE,
    VERSIONS,
    container,
    containers,
    environment,
    helm,
    least,
    of_kind,
    one,
    pods,
    render,
)
from tests.helm.schema import CHART

ALL_ON: dict[str, Any] = {
    "autoscaling": {"mode": "keda"},
    "alwaysOn": {"timers": "always"},
    "metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "networkPolicy": {"enabled": True},
    "test": {"workflow": "app:publish"},
}


def test_a_secret_that_exists_is_used_everywhere_and_none_is_made() -> None:
    secret = {"existingSecret": "r1", "existingSecretPasswordKey": "pw"}

    documents = render(least(redis=secret, **ALL_ON))

    assert not of_kind(documents, "Secret")
    names = set()
    for name, spec in containers(documents):
        assert environment(spec)["REDISWORLD_PASSWORD"] == "r1/pw", name
        names.add(spec["name"])
    assert names == {"worker", "exporter", "doctor", "round-trip"}
    (authentication,) = of_kind(documents, "TriggerAuthentication")
    assert authentication["spec"]["secretTargetRef"] == [{"parameter": "password", "name": "r1", "key": "pw"}]
    for trigger in of_kind(documents, "ScaledObject")[0]["spec"]["triggers"]:
        assert trigger["authenticationRef"] == {"name": authentication["metadata"]["name"]}


def notes_of(values: dict[str, Any]) -> str:
    """What helm tells after an install. Helm 3 asks a cluster even for a dry run."""
    told = helm(
        VERSIONS[-1], "install", RELEASE, str(CHART), "--dry-run=client", "--namespace", NAMESPACE, values=values
    )
    return told.partition("NOTES:")[2]


def test_a_password_in_the_values_stands_in_a_secret_only() -> None:
    values = least(redis={"password": "s3cret-pass"}, **ALL_ON)

    documents = render(values)

    (secret,) = of_kind(documents, "Secret")
    assert base64.b64decode(secret["data"]["password"]) == b"s3cret-pass"
    name = secret["metadata"]["name"]
    for at, spec in containers(documents):
        assert environment(spec)["REDISWORLD_PASSWORD"] == f"{name}/password", at
    others = yaml.safe_dump_all(document for document in documents if document is not secret)
    notes = notes_of(values)
    assert "Watch the workers" in notes
    for text in ("s3cret-pass", base64.b64encode(b"s3cret-pass").decode()):
        assert text not in others
        assert text not in notes


def test_a_new_password_restarts_the_pods_that_were_given_the_old_one() -> None:
    sums = [
        one(render(least(redis={"password": text})), "Deployment", "-default")["spec"]["template"]["metadata"][
            "annotations"
        ]
        for text in ("one", "two")
    ]

    assert sums[0] != sums[1]


@pytest.mark.parametrize(
    ("scaling", "replicas", "kind"),
    [
        ({"mode": "none"}, 3, None),
        ({"mode": "hpa"}, None, "HorizontalPodAutoscaler"),
        ({"mode": "keda"}, None, "ScaledObject"),
        ({"mode": "external"}, None, None),
    ],
)
def test_the_number_of_pods_has_one_master(scaling: dict[str, Any], replicas: int | None, kind: str | None) -> None:
    pool = {"replicas": 3, "resources": {"requests": {"cpu": 1}}}

    documents = render(least(autoscaling=scaling, pools={"default": pool}))

    assert one(documents, "Deployment", "-default")["spec"].get("replicas") == replicas
    scalers = [document["kind"] for document in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject")]
    assert scalers == ([kind] if kind else [])


LIVENESS = {"exec": {"command": ["true"]}}
REACHES: dict[str, Any] = {
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraEnvFrom": [{"secretRef": {"name": "s"}}],
    "extraVolumes": [{"name": "v", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/t"}],
    "extraInitContainers": [{"name": "i", "image": "i:1"}],
    "extraContainers": [{"name": "c", "image": "c:1"}],
    "extraArgs": ["--lease", "1m"],
    "command": ["redisworld", "worker", "--no-affinity"],
    "queues": ["orders"],
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "deploymentAnnotations": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "antiAffinity": "hard",
    "topologySpreadConstraints": [],
    "priorityClassName": "p",
    "runtimeClassName": "r",
    "dnsPolicy": "Default",
    "dnsConfig": {"nameservers": ["1.1.1.1"]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
    "resources": {"limits": {"memory": "1Gi"}},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "livenessProbe": LIVENESS,
    "readinessProbe": LIVENESS,
    "startupProbe": LIVENESS,
    "terminationGracePeriodSeconds": 99,
    "drainGraceSeconds": 99,
    "revisionHistoryLimit": 99,
    "updateStrategy": {"type": "Recreate", "rollingUpdate": None},
    "tmpSizeLimit": "9Mi",
    "settings": {"retention_ms": "1d"},
    "concurrency": 99,
    "podSecurityContext": {"fsGroup": 9},
    "securityContext": {"runAsUser": 9},
}


def test_every_value_of_a_pod_reaches_the_pool_that_sets_it_and_no_other() -> None:
    from tests.helm.schema import POD

    assert REACHES.keys() == POD.keys()
    two = {"pools": {"default": {}, "other": {}}}
    before = render(least(**two))
    pools = {f"p{number}": {key: value} for number, (key, value) in enumerate(REACHES.items())}
    after = render(least(pools=pools))
    plain = yaml.safe_dump(one(before, "Deployment", "-default")["spec"])
    assert yaml.safe_dump(one(after, "Deployment", "-default")["spec"]) == plain

    for name, own in pools.items():
        changed = yaml.safe_dump(one(after, "Deployment", f"-{name}")).replace(name, "default")
        assert changed != yaml.safe_dump(one(after, "Deployment", "-default")), own


def test_what_holds_for_every_pod_reaches_every_pod() -> None:
    values = least(
        imagePullSecrets=["a"], commonLabels={"team": "x"},
        **{"global": {"imageRegistry": "mirror.example.com", "imagePullSecrets": [{"name": "b"}]}},
    )  # fmt: skip
    documents = render(merged_trial(values))

    for name, spec in pods(documents):
        assert spec["imagePullSecrets"] == [{"name": "b"}, {"name": "a"}], name
        for container_ in spec["containers"]:
            assert container_["image"].startswith("mirror.example.com/"), name
    assert all(document["metadata"]["labels"]["team"] == "x" for document in documents)


def merged_trial(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the trial Redis in place of another one."""
    return {**values, "redis": {"trial": {"enabled": True}}}


def test_the_trial_redis_says_what_it_is_and_keeps_runs() -> None:
    values = merged_trial(least())
    documents = render(values)

    redis = one(documents, "StatefulSet", "-trial-redis")
    line = redis["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert "--appendonly yes" in line
    assert "--maxmemory-policy noeviction" in line
    assert "WARNING: redis.trial is one Redis without a replica and without a volume" in notes_of(values)


def test_a_pool_scales_on_the_streams_that_its_worker_reads() -> None:
    keda = {"mode": "keda"}
    values = least(
        runs={"namespace": "shop", "partitions": 2},
        deployment={"affinity": True},
        autoscaling=keda,
        pools={
            "default": {"queues": ["orders"]},
            "gpu": {"queues": ["gpu"], "autoscaling": {"keda": {"defaultQueue": False}}},
        },
    )  # fmt: skip

    documents = render(values)

    def read(*queues: str) -> list[str]:
        partitions = [Partition("shop", number) for number in range(2)]
        pins = ["", "v1"]
        return sorted(
            stream
            for p in partitions
            for pin in pins
            for stream in [p.workflows(pin), *(p.steps(queue, pin) for queue in queues)]
        )

    for pool, wanted in (
        ("default", read("", "orders")),
        ("gpu", [stream for stream in read("gpu") if ":steps:gpu" in stream]),
    ):
        triggers = [t["metadata"] for t in one(documents, "ScaledObject", f"-{pool}")["spec"]["triggers"]]
        for count in ("lagCount", "pendingEntriesCount", "streamLength"):
            assert sorted(t["stream"] for t in triggers if count in t) == wanted
        assert {t.get("consumerGroup") for t in triggers if "streamLength" not in t} == {GROUP}
        assert not any("consumerGroup" in t for t in triggers if "streamLength" in t), "with it KEDA takes the pending"


def test_the_deployment_id_is_the_tag_of_the_pods_own_image() -> None:
    documents = render(least(pools={"default": {}, "old": {"image": {"tag": "v0"}}}, deployment={"affinity": True}))

    ids = {
        name: environment(container(documents, f"-{name}/worker"))["REDISWORLD_DEPLOYMENT"]
        for name in ("default", "old")
    }
    assert ids == {"default": "v1", "old": "v0"}


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({}, False),
        ({"autoscaling": {"mode": "keda", "minReplicas": 0}}, True),
        ({"autoscaling": {"mode": "keda", "minReplicas": 0}, "pools": {"s": {"autoscaling": {"mode": "none"}}}}, False),
        ({"autoscaling": {"mode": "external"}}, True),
        ({"alwaysOn": {"timers": "always"}}, True),
    ],
)  # fmt: skip
def test_somebody_promotes_timers_also_where_no_pool_keeps_a_pod(values: dict[str, Any], there: bool) -> None:
    always_on = one(render(least(**values)), "Deployment", "-always-on")["spec"]["template"]["spec"]

    (exporter,) = always_on["containers"]
    with_timers = ["redisworld", "worker", "--timers-only", "--exporter"]
    assert exporter["command"] == (with_timers if there else ["redisworld", "exporter"])
    assert "args" not in exporter, "it needs no application"
