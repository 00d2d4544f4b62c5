"""The manifests: valid for Kubernetes, unprivileged, and with the configuration that is tested."""

from __future__ import annotations

import functools
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.kustomize import build
from tests.support.require import require_distribution, require_tool

require_distribution("kubernetes-validate")
require_tool("kustomize", "go")

kubernetes_validate: Any = importlib.import_module("kubernetes_validate")

_DEPLOY = Path(__file__).parents[2] / "deploy"
_KUBERNETES = _DEPLOY / "kubernetes"
_STACKS = ("base", "overlays/small", "overlays/secure", "overlays/scaled")
_FOLDERS = (*_STACKS, "examples")


@functools.cache
def _objects(folder: str) -> list[dict[str, Any]]:
    return build(_KUBERNETES / folder)


def _pods(folder: str) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in _objects(folder)
        if "template" in each.get("spec", {})
    }


@pytest.mark.parametrize("folder", _FOLDERS)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_objects_are_valid(folder: str, version: str) -> None:
    """Every object fits the schema of its kind, without a field that Kubernetes would ignore."""
    objects = _objects(folder)
    assert objects
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("folder", _FOLDERS)
def test_pods_are_unprivileged_and_limited(folder: str) -> None:
    """Nothing runs as root or may become it, and everything has an exact image and limits."""
    pods = _pods(folder)
    assert pods
    for name, pod in pods.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert re.search(r":v?\d+\.\d+\.\d+$", container["image"]), container["image"]
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
            if folder != "examples":
                assert security["readOnlyRootFilesystem"] is True
                assert {"readinessProbe", "livenessProbe"} <= set(container)


@pytest.mark.parametrize("folder", _STACKS)
def test_every_reference_leads_somewhere(folder: str) -> None:
    """Config maps, volumes, ports and selectors name things that are there."""
    objects = _objects(folder)
    maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
    for pod in _pods(folder).values():
        for volume in pod["volumes"]:
            sources = volume["projected"]["sources"] if "projected" in volume else [volume]
            for source in sources:
                if "configMap" in source:
                    found = maps[source["configMap"]["name"]]
                    keys = {item["key"] for item in source["configMap"].get("items", ())}
                    assert keys <= set(found["data"])
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects
        if "template" in each.get("spec", {})
    ]
    for each in objects:
        if each["kind"] == "Service":
            wanted = each["spec"]["selector"].items()
            [matched] = [pod for pod in labels if wanted <= pod.items()]
            pod = _pods(folder)[matched["app.kubernetes.io/name"]]
            ports = {port["name"] for port in pod["containers"][0]["ports"]}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports


def test_configuration_is_the_one_that_is_tested() -> None:
    """The config maps hold the very files that the tests of the stack run."""
    production = _DEPLOY / "production"
    contents = {
        text
        for each in _objects("base")
        if each["kind"] == "ConfigMap"
        for text in each["data"].values()
    }
    for file in ("collector/config.yaml", "collector/auth.yaml", "collector/tls.yaml"):
        assert (production / file).read_text() in contents, file
    for file in ("jaeger/config.yaml", "prometheus/prometheus.yaml", "scaled/gateway.yaml"):
        assert (production / file).read_text() in contents, file
    assert (production / "prometheus/rules/compiles.yaml").read_text() in contents
    assert json.loads((production / "grafana/dashboards/compiles.json").read_text())["panels"]


def test_files_that_arguments_name_are_mounted() -> None:
    """A program is told of no file that its pod does not have."""
    for folder in _STACKS:
        objects = _objects(folder)
        maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
        for name, pod in _pods(folder).items():
            [container] = pod["containers"]
            config = next((v for v in pod["volumes"] if v["name"] == "config"), None)
            if config is None or "configMap" not in config:
                continue
            files = set(maps[config["configMap"]["name"]]["data"])
            for argument in container["args"]:
                match = re.search(r"/etc/\w+/([\w.-]+)$", argument)
                if match:
                    assert match[1] in files, f"{folder}: {name} {argument}"


def test_examples_get_everything_through_variables() -> None:
    """Programs know nothing of the stack: who, where and with which attributes is in OTEL_*."""
    pods = _pods("examples")
    assert set(pods) == {"compile-kernels", "model-server"}
    services = {each["metadata"]["name"] for each in _objects("base") if each["kind"] == "Service"}
    for pod in pods.values():
        [container] = pod["containers"]
        variables = {each["name"]: each.get("value", "") for each in container["env"]}
        assert container["command"][0] == "opentelemetry-instrument"
        attributes = variables["OTEL_RESOURCE_ATTRIBUTES"]
        for attribute in ("k8s.pod.name", "k8s.node.name", "k8s.namespace.name"):
            assert f"{attribute}=$(" in attributes
        names = [each["name"] for each in container["env"]]
        for used in re.findall(r"\$\((\w+)\)", attributes):
            assert names.index(used) < names.index("OTEL_RESOURCE_ATTRIBUTES")
        host = variables["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://").split(":")[0]
        service, namespace = host.split(".")
        assert service in services
        assert namespace == "compile-telemetry"
