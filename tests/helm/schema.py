"""Which values does the chart take? ``python -m tests.helm.schema`` writes helm/redisworld/values.schema.json.

Strict, so that a misspelt key is an error and not a silent default. What several values say together is judged by
templates/_validate.tpl, where a message can be a sentence.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from redisworld.cli.logs import FORMATS, LEVELS
from redisworld.settings import Settings
from redisworld.world.findings import KINDS

CHART = Path(__file__).parents[2] / "helm" / "redisworld"
SCHEMA = CHART / "values.schema.json"

Schema = dict[str, Any]

OF_THE_CHART = {
    "url", "username", "password", "sentinel_password", "namespace", "partitions",
    "deployment", "affinity", "concurrency", "grace_ms",
}  # fmt: skip
"""Settings that have values of their own, which `settings` would contradict."""

TEXT: Schema = {"type": "string"}
SWITCH: Schema = {"type": "boolean"}
MAP: Schema = {"type": "object"}
SETTING: Schema = {"type": ["string", "integer", "boolean"]}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
WORDS: Schema = {"type": "array", "items": {"type": "string"}}
NAMED: Schema = {"type": "array", "items": {"type": ["string", "object"]}}
COUNT_OR_SHARE: Schema = {"type": ["integer", "string", "null"], "pattern": "^[0-9]+%$", "minimum": 0}
QUEUES: Schema = {"type": "array", "items": {"type": "string", "pattern": "^[^{}:@|, \\t\\n]+$"}}
PORTS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
NAME: Schema = {"type": "string", "pattern": "^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$"}
QUANTITY: Schema = {"type": "string", "pattern": "^([0-9.]+([EPTGMk]i?|Ki|m)?)?$"}
SPAN: Schema = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
VARIABLES: Schema = {
    "type": "array",
    "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "value": TEXT}},
}
PLAIN_WORD: Schema = {"type": "string", "pattern": "^[^{}:@| \\t\\n]*$"}


def whole(least: int, most: int | None = None, *, nullable: bool = False) -> Schema:
    """A whole number within bounds."""
    bounds: Schema = {"type": ["integer", "null"] if nullable else "integer", "minimum": least}
    return bounds if most is None else bounds | {"maximum": most}


def one_of(*words: str) -> Schema:
    return {"enum": list(words)}


def closed(**properties: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def refused(reason: str) -> Schema:
    """A key people look for: Helm answers `value must be '<reason>'`."""
    return {"const": reason}


REGISTRY: Schema = {"type": "string", "pattern": "^([^ @]*[^ @/])?$"}
REPOSITORY: Schema = {"type": "string", "pattern": "^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]*$"}
IMAGE = {"registry": REGISTRY, "repository": REPOSITORY, "tag": {"type": "string", "pattern": "^[A-Za-z0-9_.-]*$"}}
IMAGE |= {"pullPolicy": one_of("Always", "IfNotPresent", "Never")}
OWN_IMAGE = closed(**IMAGE, digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"})

POD = {
    "command": {"type": "array", "items": TEXT, "minItems": 1},
    "extraArgs": WORDS,
    "queues": QUEUES,
    "concurrency": whole(1, 100_000),
    "drainGraceSeconds": whole(0),
    "terminationGracePeriodSeconds": whole(1, nullable=True),
    "settings": closed(**dict.fromkeys(sorted(set(Settings.__struct_fields__) - OF_THE_CHART), SETTING)),
    **dict.fromkeys(["resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "podSecurityContext",
                     "securityContext", "updateStrategy", "affinity", "dnsConfig"], MAP),
    "extraEnv": VARIABLES,
    **dict.fromkeys(["extraEnvFrom", "extraVolumes", "extraVolumeMounts", "extraInitContainers",
                     "extraContainers", "tolerations", "topologySpreadConstraints", "hostAliases"], OBJECTS),
    **dict.fromkeys(["podAnnotations", "podLabels", "deploymentAnnotations", "nodeSelector"], TEXTS),
    "tmpSizeLimit": QUANTITY,
    **dict.fromkeys(["priorityClassName", "runtimeClassName", "dnsPolicy"], TEXT),
    "revisionHistoryLimit": whole(0),
    "antiAffinity": one_of("none", "soft", "hard"),
}  # fmt: skip

OF_AN_APPLICATION = ("command", "extraArgs", "queues", "concurrency")
"""What the always-on pod does not take: it works for every application of the namespace, and runs none."""

AUTOSCALING = closed(
    mode=one_of("none", "hpa", "keda", "external"),
    minReplicas=whole(0),
    maxReplicas=whole(1),
    hpa=closed(
        targetCPUUtilizationPercentage=whole(1, nullable=True),
        targetMemoryUtilizationPercentage=whole(1, nullable=True),
        metrics=OBJECTS,
    ),
    behavior=MAP,
    keda=closed(
        messagesPerReplica=whole(1, nullable=True),
        counts={"type": "array", "items": one_of("lagCount", "pendingEntriesCount", "streamLength"), "minItems": 1},
        defaultQueue=SWITCH,
        pollingInterval=whole(1),
        cooldownPeriod=whole(0),
        fallback=MAP,
        address=TEXT,
        authenticationRef=TEXT,
        extraTriggers=OBJECTS,
        annotations=TEXTS,
    ),
)

BUDGET = closed(
    enabled=SWITCH,
    minAvailable=COUNT_OR_SHARE,
    maxUnavailable=COUNT_OR_SHARE,
    unhealthyPodEvictionPolicy=one_of("", "IfHealthyBudget", "AlwaysAllow"),
)

POOL = closed(**POD, app=TEXT, image=OWN_IMAGE, replicas=whole(0), autoscaling=AUTOSCALING, podDisruptionBudget=BUDGET)

ADDRESSES = {"type": "array", "items": {"type": "string", "pattern": "^[^:,/@ ]+:[0-9]+$"}}

REDIS = closed(
    url={"type": "string", "pattern": "^(rediss?://\\S+)?$"},
    **dict.fromkeys(["username", "password", "existingSecret"], TEXT),
    **dict.fromkeys(["existingSecretUsernameKey", "existingSecretUrlKey"], TEXT),
    existingSecretPasswordKey={"type": "string", "minLength": 1},
    tls=closed(existingSecret=TEXT, caKey=TEXT, certKey=TEXT, keyKey=TEXT, verify=SWITCH),
    sentinel=closed(
        nodes=ADDRESSES,
        master={"type": "string", "pattern": "^[^/ ]*$"},
        password=TEXT,
        existingSecretPasswordKey=TEXT,
        database=whole(0),
        tls=SWITCH,
    ),
    cluster=closed(nodes=ADDRESSES, tls=SWITCH),
    trial=closed(
        enabled=SWITCH,
        image=closed(**IMAGE),
        storage=QUANTITY,
        storageClassName=TEXT,
        resources=MAP,
    ),
)  # fmt: skip

MONITOR = closed(
    enabled=SWITCH,
    labels=TEXTS,
    annotations=TEXTS,
    namespace=TEXT,
    interval=SPAN,
    scrapeTimeout=SPAN,
    honorLabels=SWITCH,
    relabelings=OBJECTS,
    metricRelabelings=OBJECTS,
)


def complete(judged: Schema, values: dict[str, Any]) -> Schema:
    """The schema, with what the templates cannot do without as required.

    A key with nothing behind it is null to YAML, and to Helm the wish to have no default: it is gone then. Where the
    default is nothing anyway that is fine, and elsewhere the template would fail on its own words.
    """
    properties, required = dict(judged["properties"]), []
    for name, value in values.items():
        if name not in properties:
            continue  # a pool
        kind = properties[name]
        if "properties" in kind:
            properties[name] = complete(kind, value)
            if value:
                required.append(name)
        elif value and not _may_be_nothing(kind):
            required.append(name)
    return judged | {"properties": properties, "required": required}


def _may_be_nothing(kind: Schema) -> bool:
    if "enum" in kind:
        return "" in kind["enum"]
    if kind["type"] == "string":
        return re.match(kind.get("pattern", ""), "") is not None and not kind.get("minLength")
    return kind["type"] == "object" or "null" in kind["type"] or (kind["type"] == "array" and "minItems" not in kind)


def schema() -> Schema:
    """The whole schema."""
    values = closed(
        enabled=SWITCH,
        **dict.fromkeys(["nameOverride", "fullnameOverride"], NAME),
        **dict.fromkeys(["namespaceOverride", "app"], TEXT),
        **{"global": {"type": "object", "properties": {"imageRegistry": REGISTRY, "imagePullSecrets": NAMED}}},
        commonLabels=TEXTS,
        commonAnnotations=TEXTS,
        image=OWN_IMAGE,
        imagePullSecrets=NAMED,
        runs=closed(
            namespace={"type": "string", "pattern": "^[^{}:@| \\t\\n]+$"},
            partitions=whole(1, 256),
        ),
        deployment=closed(id=PLAIN_WORD, affinity=SWITCH),
        logs=closed(level=one_of(*LEVELS), format=one_of(*FORMATS)),
        redis=REDIS,
        defaults=closed(**POD),
        pools={
            "type": "object",
            "patternProperties": {"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$": POOL | {"type": ["object", "null"]}},
            "properties": {"always-on": refused("under another name: that one is taken by alwaysOn")},
            "additionalProperties": False,
        },
        autoscaling=AUTOSCALING,
        podDisruptionBudget=BUDGET,
        alwaysOn=closed(
            **{key: value for key, value in POD.items() if key not in OF_AN_APPLICATION},
            enabled=SWITCH,
            image=OWN_IMAGE,
            timers=one_of("auto", "always", "never"),
            replicas=whole(1),
        ),
        serviceAccount=closed(create=SWITCH, name=TEXT, annotations=TEXTS, automount=SWITCH),
        networkPolicy=closed(
            enabled=SWITCH,
            ingressFrom=OBJECTS,
            extraIngress=OBJECTS,
            redisTo=OBJECTS,
            redisPorts=PORTS,
            extraEgress=OBJECTS,
        ),
        metrics=closed(scrapeAnnotations=SWITCH, podMonitor=MONITOR, serviceMonitor=MONITOR),
        prometheusRule=closed(
            enabled=SWITCH,
            labels=TEXTS,
            annotations=TEXTS,
            namespace=TEXT,
            disabled=WORDS,
            alertLabels=TEXTS,
            additionalGroups=OBJECTS,
        ),
        dashboards=closed(enabled=SWITCH, labels=TEXTS, annotations=TEXTS, namespace=TEXT),
        test=closed(
            workflow=TEXT,
            args={"type": "array"},
            timeout=TEXT,
            doctorIgnore={"type": "array", "items": one_of(*KINDS)},
        ),
        extraObjects=NAMED,
    )  # fmt: skip
    values = complete(values, yaml.safe_load((CHART / "values.yaml").read_text()))
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the redisworld chart"} | values


def text() -> str:
    """What the file holds."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
