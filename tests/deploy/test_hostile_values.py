"""Each text that the chart takes is, in the objects, the text that was given, or the chart refuses it."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import parsed
from tools import chart

pytestmark = pytest.mark.helm

_HOSTILE = ("no", "007", "x\n  privileged: true", '{a: "b", {{ .Release.Name }}: c}')
"""Texts that YAML reads as something else where they have no quotes."""
_PLAIN = "zzplain"
_FORMS = ("{}", "/{}", "https://{}/")
"""What a pattern may ask for around a text."""
_BASE = {
    "image": {"repository": "registry.example/sluice"},
    "broker": "pulsar://broker:6650",
    "tls": {"secret": "of-tls"},
    "admin": {"tokensSecret": "of-tokens", "tlsSecret": "of-admin-tls"},
    "store": {"size": "1Gi"},
    "accessLog": {"persistent": True, "size": "100Gi"},
    "service": {"type": "LoadBalancer"},
    "autoscaling": {"enabled": True},
    "podMonitor": {"enabled": True},
    "compliance": {"enabled": True, "follow": True, "executors": 1},
}
_LARGE = ("prometheusRule", "dashboards")
"""What takes long to read, and has texts of its own and `docsUrl` alone."""
_IN_LISTS_AND_MAPPINGS = (
    ("secrets", 0),
    ("imagePullSecrets", 0),
    ("service", "annotations", "example.com/x"),
    ("nodeSelector", "example.com/x"),
    ("tolerations", 0, "value"),
    ("affinity", "x"),
    ("networkPolicy", "clients", 0, "x"),
    ("resources", "limits", "example.com/x"),
    ("podMonitor", "labels", "x"),
    ("prometheusRule", "labels", "x"),
    ("dashboards", "labels", "x"),
    ("config", "fleet", "name"),
    ("compliance", "spark", "spark.x"),
    ("limits", "topics", _PLAIN),
)
"""Places that values.yaml has no text at."""
Place = tuple[str | int, ...]


def _texts(value: Any, at: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*at, key))
    elif isinstance(value, str):
        yield at


_VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())
_PLACES = sorted({*_texts(_VALUES), *_IN_LISTS_AND_MAPPINGS}, key=str)


def _with(place: Place, text: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(_BASE))
    if place[0] in _LARGE or place[0] == "docsUrl":
        values |= {key: {"enabled": True} for key in _LARGE}
    _put(values, place, text)
    return values


def _put(at: Any, place: Place, text: str) -> None:
    key, *others = place
    if key == 0:
        at.append(None)
    if key == _PLAIN:
        at[text] = {"publish": {"messages": 1}}
    elif not others:
        at[key] = text
    else:
        if key == 0:
            at[0] = {}
        else:
            at.setdefault(key, [] if others[0] == 0 else {})
        _put(at[key], tuple(others), text)


def _objects(place: Place, text: str, folder: Path) -> Any:
    """The objects, of whose files in YAML the content is read as well; None where the chart refuses the text."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(_with(place, text)))
    try:
        objects = parsed(chart.render(file))
    except subprocess.CalledProcessError as error:
        refusal: str = error.stderr
    else:
        return [_read(each) for each in objects]
    assert "YAML parse error" not in refusal, refusal
    return None


def _read(given: Any) -> Any:
    if given["kind"] == "ConfigMap":
        files = {name: parsed(text) if name.endswith(".yaml") else text for name, text in given["data"].items()}
        return {**given, "data": files}
    if "checksum/config" in str(given):
        given["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")
    return given


def _exchanged(value: Any, text: str) -> Any:
    """The same objects with another text in place of the plain one."""
    if isinstance(value, dict):
        return {_exchanged(key, text): _exchanged(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [_exchanged(each, text) for each in value]
    return value.replace(_PLAIN, text) if isinstance(value, str) else value


@cache
def _form(place: Place, folder: Path) -> tuple[str, Any]:
    """The form in which the chart takes a plain text, and its objects then; none where it takes few words alone."""
    for form in _FORMS:
        objects = _objects(place, form.format(_PLAIN), folder)
        if objects is not None:
            return form, objects
    return "{}", None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("values")


@pytest.mark.parametrize("place", _PLACES, ids=lambda place: ".".join(map(str, place)))
def test_text_is_as_it_was_given_or_refused(place: Place, folder: Path) -> None:
    form, of_plain = _form(place, folder)
    for hostile in _HOSTILE:
        objects = _objects(place, form.format(hostile), folder)
        assert objects is None or objects == _exchanged(of_plain, hostile), hostile


def test_places_are_all_texts_of_the_schema() -> None:
    """A text that values.yaml does not have, as an item of a list, is listed by hand."""
    properties = json.loads(chart.SCHEMA.read_text())["properties"]
    assert {place[0] for place in _PLACES} >= properties.keys() - {
        "global", "replicas", "fleet", "fsGroup", "terminationGracePeriodSeconds", "preStop",
    }  # fmt: skip


def test_names_of_release_and_namespace_stay_texts(folder: Path) -> None:
    file = folder / "values.yaml"
    file.write_text(json.dumps(_BASE))
    for release, namespace in (("no", "007"), ("r" * 45 + "-sluice", "0x1f"), ("null", "no")):
        objects = parsed(chart.render(file, "--namespace", namespace, release=release))
        for each in objects:
            metadata = each["metadata"]
            assert isinstance(metadata["name"], str)
            assert metadata["labels"]["app.kubernetes.io/instance"] == release
            if each["kind"] == "RoleBinding":
                assert each["subjects"][0]["namespace"] == namespace
