"""The files of deploy/kubernetes, which are made from the chart."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
VALUES = sorted((ROOT / "deploy/helm/ci").glob("*.yaml"))
NAMES = [path.stem for path in VALUES]
Manifest = Mapping[str, Any]


@cache
def objects_of(name: str) -> list[Manifest]:
    """The objects of a file."""
    return parsed((ROOT / "deploy/kubernetes" / f"{name}.yaml").read_text())


class _Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, as the API server does."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        keys = [key.value for key, _ in node.value]
        doubled = {key for key in keys if keys.count(key) > 1}
        if doubled:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {doubled}", node.start_mark)
        super().flatten_mapping(node)


def parsed(text: str) -> list[Manifest]:
    """The objects of a text."""
    return [each for each in yaml.load_all(text, _Strict) if each]


def manifest(objects: Iterable[Manifest], kinds: Sequence[str], name: str) -> Manifest:
    """The object of one of these kinds with this name."""
    (resource,) = (each for each in objects if each["kind"] in kinds and each["metadata"]["name"] == name)
    return resource


def pod_spec(owner: Manifest) -> Manifest:
    """The spec of the pods of an object."""
    spec = owner["spec"]
    spec = spec["jobTemplate"]["spec"] if owner["kind"] == "CronJob" else spec
    template_spec: Manifest = spec["template"]["spec"]
    return template_spec


def pods(objects: Iterable[Manifest]) -> Iterator[tuple[str, Manifest, Manifest]]:
    """Name, labels and spec of all pods, those that Spark makes among them."""
    for each in objects:
        name = each["metadata"]["name"]
        if each["kind"] in {"Deployment", "StatefulSet", "Job", "CronJob"}:
            template = each["spec"].get("template") or each["spec"]["jobTemplate"]["spec"]["template"]
            yield f"{each['kind']} {name}", template["metadata"]["labels"], template["spec"]
        elif each["kind"] == "ConfigMap" and "executor.yaml" in each["data"]:
            template = yaml.safe_load(each["data"]["executor.yaml"])
            yield f"executor {name}", template["metadata"]["labels"], template["spec"]


def containers(spec: Manifest) -> list[Manifest]:
    """The containers of a pod, those that run before the others first."""
    return [*spec.get("initContainers", ()), *spec["containers"]]
