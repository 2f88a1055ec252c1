"""Does the chart render with both helms, for every file of the matrix, and does what comes out hold together?"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm import checks
from tests.helm.rendering import MATRIX, NAMESPACE, VERSIONS, Document, helm, least, of_kind, one, render
from tests.helm.schema import CHART

Rendered = Callable[[str, str], list[Document]]

KUBERNETES = tuple(f"1.{minor}" for minor in range(25, 38))
ENDS = (KUBERNETES[0], KUBERNETES[-1])
VERSIONS_OF = {"full-values": KUBERNETES, "openshift-values": ("1.27", KUBERNETES[-1])}
"""The one render that has everything is judged by all; the second one needs what 1.25 did not have."""

EXCUSED = {
    "CKV_K8S_43": "an image by digest is the user's choice (image.digest)",
    "CKV_K8S_15": "a tag is never used twice here, so IfNotPresent pulls what is meant",
    "CKV_K8S_35": "the program reads its password from the environment, where Kubernetes puts it from a Secret",
}
EXCUSED_OF = {
    "CKV_K8S_8": ("Pod", "helm test is a command that ends"),
    "CKV_K8S_9": ("Pod", "helm test is a command that ends"),
    "CKV_K8S_40": ("openshift", "the platform chooses the user id"),
}
RESOURCES = {"CKV_K8S_10", "CKV_K8S_11", "CKV_K8S_12", "CKV_K8S_13"}
"""Requests and limits: of a step body only its author knows them, so they are demanded where the values give them."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", MATRIX, ids=lambda file: file.stem)
def test_lint_has_nothing_against_any_values(file: Path, version: str) -> None:
    told = helm(version, "lint", "--strict", str(CHART), "--values", str(file), "--namespace", NAMESPACE)

    assert "1 chart(s) linted, 0 chart(s) failed" in told
    assert not re.search(r"\[(WARNING|ERROR)\]", told), told


@pytest.mark.parametrize("file", MATRIX, ids=lambda file: file.stem)
def test_both_helms_make_the_same_of_it(file: Path, rendered: Rendered) -> None:
    first, *others = (
        sorted(rendered(file.stem, version), key=lambda document: json.dumps(document, sort_keys=True))
        for version in VERSIONS
    )

    assert first
    for other in others:
        assert other == first


@pytest.mark.parametrize("file", MATRIX, ids=lambda file: file.stem)
def test_every_render_holds_together(file: Path, rendered: Rendered) -> None:
    assert checks.problems(rendered(file.stem, VERSIONS[0])) == []


MISSPELT = {
    "'terminationGracePeriodSecond' was unexpected":
        ("_pod.tpl", "terminationGracePeriodSeconds: {{", "terminationGracePeriodSecond: {{"),
    "unknown field .spec.cooldownPeriods": ("scaledobject.yaml", "cooldownPeriod:", "cooldownPeriods:"),
    "unknown field .spec.podMetricEndpoints": ("monitors.yaml", "podMetricsEndpoints:", "podMetricEndpoints:"),
}  # fmt: skip
"""What has to be said of each fault that is planted."""


@pytest.fixture(scope="module")
def verdict(rendered: Rendered, judges: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the schemas say of the matrix, and of a render with misspelt fields: asked once, for it takes a while."""
    manifests = [
        {
            "name": file.stem,
            "versions": VERSIONS_OF.get(file.stem, ENDS),
            "documents": rendered(file.stem, VERSIONS[0]),
        }
        for file in MATRIX
    ]
    faulty = of_kind(
        planted(tmp_path_factory.mktemp("planted"), *MISSPELT.values()), "Deployment", "ScaledObject", "PodMonitor"
    )
    manifests.append({"name": "planted", "versions": ENDS[-1:], "documents": faulty})
    judge = Path(__file__).with_name("judge.py")
    done = subprocess.run(
        [judges, judge], input=json.dumps(manifests), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"documents": sum(len(manifest["documents"]) for manifest in manifests) - len(faulty)}


def test_the_schemas_of_kubernetes_and_of_custom_resources_know_every_field(
    verdict: dict[str, Any], record_property: Callable[[str, object], None]
) -> None:
    assert [problem for problem in verdict["problems"] if not problem.startswith("planted: ")] == []
    assert verdict["validated"] > verdict["documents"]
    assert verdict["custom"] >= 5
    record_property(
        "figure",
        f"chart: {verdict['documents']} manifests of {len(MATRIX)} values files with helm {' and '.join(VERSIONS)}; "
        f"{verdict['validated']} strict validations over Kubernetes {KUBERNETES[0]} to {KUBERNETES[-1]} "
        f"({len(KUBERNETES)} versions), {verdict['custom']} of custom resources",
    )


@pytest.mark.parametrize("caught", MISSPELT)
def test_a_misspelt_field_is_caught(caught: str, verdict: dict[str, Any]) -> None:
    assert any(caught in problem for problem in verdict["problems"] if problem.startswith("planted: "))


def test_no_policy_is_broken_without_a_reason(
    everything: dict[str, list[Document]], judges: Path, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    for stem, documents in everything.items():
        (tmp_path / f"{stem}.yaml").write_text(yaml.safe_dump_all(documents))
    options = [
        "--framework",
        "kubernetes",
        "--compact",
        "--quiet",
        "--skip-download",
        "--soft-fail",
        "--output",
        "json",
    ]
    done = subprocess.run(
        [judges.with_name("checkov"), "--directory", tmp_path, *options],
        capture_output=True, text=True, timeout=300, check=False, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)

    used, broken = set(), []
    for failed in report["results"]["failed_checks"]:
        code, resource, stem = failed["check_id"], failed["resource"], Path(failed["file_path"]).stem
        where, _ = EXCUSED_OF.get(code, (None, ""))
        if code in EXCUSED or (where is not None and (resource.startswith(f"{where}.") or stem.startswith(where))):
            used.add(code)
        elif code not in RESOURCES or stem in ("full-values", "password-values"):
            broken.append(f"{code} {failed['check_name']}: {stem} {resource}")

    assert broken == []
    assert used == EXCUSED.keys() | EXCUSED_OF.keys(), "an excuse that nobody needs any more"
    summary = report["summary"]
    assert summary["parsing_errors"] == 0
    record_property(
        "figure",
        f"chart: {summary['passed'] + summary['failed']} policy checks on {summary['resource_count']} resources "
        f"(checkov {summary['checkov_version']}), {len(used)} kinds excused with a reason; all pods restricted",
    )


def planted(directory: Path, *faults: tuple[str, str, str]) -> list[Document]:
    """A render of a copy of the chart in which faults were planted: template, what stands there, what then does."""
    subprocess.run(["cp", "-r", CHART, directory / "chart"], check=True)
    for template, old, new in faults:
        path = directory / "chart" / "templates" / template
        text = path.read_text()
        assert old in text, f"{template} has changed: the fault has nowhere to go"
        path.write_text(text.replace(old, new))
    return render(file=CHART / "ci" / "full-values.yaml", chart=directory / "chart")


def test_a_probe_on_a_wrong_port_is_caught(tmp_path: Path) -> None:
    documents = planted(tmp_path, ("_pod.tpl", '(printf "port: %s" $port)', '"port: 9400"'))

    assert "rel-redisworld-default/worker: livenessProbe asks port 9400, and 9464 is served" in checks.problems(
        documents
    )


def test_replicas_beside_an_autoscaler_are_caught(tmp_path: Path) -> None:
    fault = ("workers.yaml", '{{- if eq $pool.autoscaling.mode "none" }}', "{{- if true }}")

    found = checks.problems(planted(tmp_path, fault))

    assert "rel-redisworld-orders: replicas beside a ScaledObject" in found
    assert "rel-redisworld-reports: replicas beside a HorizontalPodAutoscaler" in found


def test_rules_and_dashboards_are_taken_as_they_lie_there(tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", CHART, tmp_path / "chart"], check=True)
    alert = {"alert": "A", "expr": "up < 1", "annotations": {"description": "{{ $labels.queue }} {{ $value }}"}}
    groups = {"groups": [{"name": "g", "rules": [alert, {"alert": "B", "expr": "up"}, {"record": "r", "expr": "up"}]}]}
    board = {"title": "{{ not a template }}", "panels": [{"legend": "{{queue}}"}]}
    for path, content in (("rules/more.yaml", groups), ("dashboards/more.json", board)):
        (tmp_path / "chart" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "chart" / path).write_text(json.dumps(content))

    rule = {"enabled": True, "disabled": ["B"], "alertLabels": {"team": "x"}, "labels": {"release": "p"}}
    boards = {
        "enabled": True,
        "labels": {"look": "here"},
        "annotations": {"grafana_folder": "F"},
        "namespace": "grafana",
    }
    documents = render(least(prometheusRule=rule, dashboards=boards), chart=tmp_path / "chart")

    (found,) = of_kind(documents, "PrometheusRule")
    assert found["metadata"]["labels"]["release"] == "p"
    (group,) = (group for group in found["spec"]["groups"] if group["name"] == "g")
    assert group["rules"] == [{**alert, "labels": {"team": "x"}}, {"record": "r", "expr": "up"}]
    shown = one(documents, "ConfigMap", "-more")
    assert json.loads(shown["data"]["more.json"]) == board
    assert shown["metadata"]["labels"]["look"] == "here"
    assert shown["metadata"]["annotations"] == {"grafana_folder": "F"}
    assert shown["metadata"]["namespace"] == "grafana"


def test_monitoring_is_off_unless_asked_for() -> None:
    kinds = {document["kind"] for document in render(least())}

    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap", "NetworkPolicy", "Secret"}
