"""What must hold for every render? Each check answers what is wrong, so a planted fault can be shown to be caught."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from redisworld.settings import Settings
from tests.helm.rendering import Document, containers, environment, of_kind, pods
from tests.integration.cli_process import command

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
SERVICE_NAME = "[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
ENDPOINTS = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def ours(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """The containers that run redisworld."""
    for name, spec in containers(documents):
        if spec.get("command", [""])[0] == "redisworld":
            yield name, spec


def restricted(documents: list[Document]) -> Iterator[str]:
    """Against the restricted profile of the Pod Security Standards, and beyond it: root is read-only, no token."""
    for name, spec in pods(documents):
        shared = spec.get("securityContext", {})
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name}: mounts a token"
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield f"{name}: {field}"
        for volume in spec.get("volumes", []):
            if not volume.keys() & {"emptyDir", "secret", "configMap", "projected", "persistentVolumeClaim"}:
                yield f"{name}: volume {volume['name']} is of no permitted type"
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            at, own = f"{name}/{container['name']}", container.get("securityContext", {})
            both = shared | own
            if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
                yield f"{at}: may run as root"
            if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
                yield f"{at}: no seccomp profile"
            if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
                yield f"{at}: may gain privileges"
            if own.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{at}: has capabilities"
            if own.get("readOnlyRootFilesystem") is not True:
                yield f"{at}: can write its root file system"
            if any("hostPort" in port for port in container.get("ports", [])):
                yield f"{at}: host port"


def replicas(documents: list[Document]) -> Iterator[str]:
    """Whoever sets the number of pods does it alone, and points at a Deployment that is there."""
    deployments = {document["metadata"]["name"]: document for document in of_kind(documents, "Deployment")}
    scaled: dict[str, str] = {}
    for scaler in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]["name"]
        if target not in deployments:
            yield f"{scaler['kind']} {target}: there is no such Deployment"
        elif target in scaled:
            yield f"{target}: both {scaled[target]} and {scaler['kind']}"
        elif "replicas" in deployments[target]["spec"]:
            yield f"{target}: replicas beside a {scaler['kind']}"
        scaled[target] = scaler["kind"]


def probes(documents: list[Document]) -> Iterator[str]:
    """Probes ask the endpoint that answers them, at the port that the program is told to serve on."""
    for name, spec in ours(documents):
        port_told = environment(spec).get("REDISWORLD_METRICS_PORT")
        if port_told is None:
            continue  # a command that ends by itself
        named = {port["name"]: port["containerPort"] for port in spec["ports"]}
        for probe in PROBES:
            asks = spec.get(probe, {}).get("httpGet")
            if asks is None:
                continue  # left out, or of another kind
            port = named.get(asks["port"], asks["port"])
            if str(port) != port_told:
                yield f"{name}: {probe} asks port {asks['port']}, and {port_told} is served"
            if asks["path"] != ENDPOINTS[probe]:
                yield f"{name}: {probe} asks {asks['path']}, not {ENDPOINTS[probe]}"


def drains(documents: list[Document]) -> Iterator[str]:
    """SIGKILL comes after the drain has ended."""
    for name, pod in pods(documents):
        for container in pod["containers"]:
            grace = environment(container).get("REDISWORLD_GRACE_MS")
            if grace and pod["terminationGracePeriodSeconds"] < int(grace.removesuffix("s")) + 5:
                yield f"{name}: killed after {pod['terminationGracePeriodSeconds']} s, and bodies have {grace}"


@cache
def _help(verb: str) -> str:
    told = command(verb, "--help")
    return told.stdout if told.returncode == 0 else ""


def program(documents: list[Document]) -> Iterator[str]:
    """Every command, flag and variable exists in the program."""
    settings = {f"REDISWORLD_{field.upper()}" for field in Settings.__struct_fields__}
    for name, spec in ours(documents):
        line = [*spec["command"], *spec.get("args", [])]
        told = _help(line[1])
        if not told:
            yield f"{name}: there is no command redisworld {line[1]}"
            continue
        for flag in (word.partition("=")[0] for word in line[2:] if word.startswith("--")):
            if not re.search(rf"{flag}\b", told):
                yield f"{name}: redisworld {line[1]} has no option {flag}"
        for variable in environment(spec):
            if variable.startswith("REDISWORLD_") and variable not in settings and f"[{variable}]" not in told:
                yield f"{name}: redisworld {line[1]} reads no {variable}"


def references(documents: list[Document]) -> Iterator[str]:
    """Selectors meet pods, monitors meet ports, volume mounts meet volumes."""
    labels = [document["metadata"]["labels"] for document in of_kind(documents, "Pod")]
    labels += [d["spec"]["template"]["metadata"]["labels"] for d in of_kind(documents, "Deployment", "StatefulSet")]
    ports = {port["name"] for _, spec in containers(documents) for port in spec.get("ports", [])}
    for document in documents:
        spec = document.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector if document["kind"] == "Service" else {})
        if "helm.sh/chart" in wanted or "app.kubernetes.io/version" in wanted:
            yield f"{document['kind']} {document['metadata']['name']}: selects by a version"
        pool = document["kind"] in ("Service", "PodMonitor", "NetworkPolicy", "PodDisruptionBudget", "Deployment")
        if pool and not any(wanted.items() <= each.items() for each in labels):
            yield f"{document['kind']} {document['metadata']['name']}: selects no pod"
        for endpoint in [*spec.get("endpoints", []), *spec.get("podMetricsEndpoints", [])]:
            if endpoint["port"] not in ports:
                yield f"{document['kind']} {document['metadata']['name']}: there is no port {endpoint['port']}"
    for name, pod in pods(documents):
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | {"data"}
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{name}: there is no volume {mount['name']}"


def accepted(documents: list[Document]) -> Iterator[str]:
    """What a cluster refuses though its schema allows it: names, what is there twice, what excludes each other."""
    for document in documents:
        at = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == "Service" and not re.fullmatch(SERVICE_NAME, document["metadata"]["name"]):
            yield f"{at}: no name of a Service"
        for metadata in _metadata(document):
            for key, value in [*metadata.get("labels", {}).items(), *metadata.get("annotations", {}).items()]:
                if not isinstance(value, str):
                    yield f"{at}: {key} is {value!r}, no text"
        strategy = document.get("spec", {}).get("strategy", {})
        if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate"):
            yield f"{at}: rollingUpdate beside Recreate"
    for name, pod in pods(documents):
        inside = [*pod.get("initContainers", []), *pod["containers"]]
        yield from _twice(f"{name}: volume", [volume["name"] for volume in pod.get("volumes", [])])
        yield from _twice(f"{name}: container", [container["name"] for container in inside])
        for container in inside:
            at = f"{name}/{container['name']}"
            yield from _twice(f"{at}: variable", [variable["name"] for variable in container.get("env", [])])
            yield from _twice(f"{at}: mount", [mount["mountPath"] for mount in container.get("volumeMounts", [])])
            for probe in PROBES:
                if len(container.get(probe, {}).keys() & {"httpGet", "tcpSocket", "exec", "grpc"}) > 1:
                    yield f"{at}: {probe} of two kinds"


def _metadata(document: Document) -> Iterator[Document]:
    yield document["metadata"]
    if document["kind"] in ("Deployment", "StatefulSet"):
        yield document["spec"]["template"]["metadata"]


def _twice(what: str, names: list[str]) -> Iterator[str]:
    yield from (f"{what} {name} twice" for name in dict.fromkeys(names) if names.count(name) > 1)


ALL = (restricted, replicas, probes, drains, program, references, accepted)


def problems(documents: list[Document]) -> list[str]:
    """What all checks have against a render."""
    return [problem for check in ALL for problem in check(documents)]
