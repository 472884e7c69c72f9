"""A level is one record: one more in `limiter.levels.LEVELS`, and all that speaks of levels speaks of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limiter import levels
from tests.compliance.planted import QUICK_JAVA

RECORD = """
    Level(
        word="producer_in_tenant",
        limited=(PRODUCER, TENANT),
        settings=(
            SettingRecord(
                word="producer_in_tenant",
                source="producer",
                form="name",
                named=(PRODUCER,),
                file=("producers_in_tenants", NAME, "{}"),
                section_meaning="NAME is a producer's name, or * for each other; of all that it publishes in a tenant",
                abouts=("publish",),
                has_each=True,
            ),
        ),
        members="topic",
        within="tenant",
    ),
"""
WORD = "producer_in_tenant"
NAME = "named-by-broker"
_LAST = '    Level(\n        word="exempt",'
_FINDER = """
import importlib.util, sys

class Planted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "limiter.levels":
            return importlib.util.spec_from_file_location(name, {path!r})

sys.meta_path.insert(0, Planted)
"""
"""Every Python that is started finds the other `limiter.levels`, Spark's workers too."""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a module where the limiter has the new level; gives what it printed. It is silent besides, Spark too."""
    folder = tmp_path_factory.mktemp("planted")
    source = Path(levels.__file__).read_text()
    assert source.count(_LAST) == 1
    planted = folder / "levels.py"
    planted.write_text(source.replace(_LAST, RECORD + _LAST))
    (folder / "sitecustomize.py").write_text(_FINDER.format(path=str(planted)))
    paths = [str(folder), str(Path(levels.__file__).parent.parent)]

    def run(module: str, *arguments: object) -> str:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAVA_TOOL_OPTIONS": QUICK_JAVA},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr.decode()) == (0, "")
        return done.stdout.decode()

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def said(run: Run, folder: Path) -> dict[str, Any]:
    run("tests.proxy.new_level", folder)
    return msgspec.json.decode((folder / "said.json").read_bytes(), type=dict[str, Any])


def explained(said: dict[str, Any], what: str, direction: str) -> dict[str, Any]:
    (level,) = [one for one in said[what][direction] if one["level"] == WORD]
    return dict(level)


def of(said: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [line for line in said["log"] if line["kind"] == kind]


def test_the_configuration_and_its_reference_have_it(said: dict[str, Any]) -> None:
    assert "| `limits.producers_in_tenants.NAME.publish` | *rate* |" in said["reference"]
    assert "producers_in_tenants.NAME.dispatch" not in said["reference"]
    assert said["get"]["limit"] == {"messages": "1/h", "burst_messages": 2}
    assert said["get"]["origin"] == "file"


def test_rest_sets_shows_exports_and_takes_it_back(said: dict[str, Any]) -> None:
    assert (said["put"]["limit"], said["put"]["origin"]) == ({"messages": "2/h", "burst_messages": 3}, "rest")
    assert said["delete"] == {"taken_back": True, "in_force": None}
    assert "producers_in_tenants:" in said["policies"]
    (setting,) = [
        one for one in said["openapi"]["paths"]["/sluice/limits"]["put"]["parameters"] if one["name"] == "setting"
    ]
    assert WORD in setting["schema"]["enum"]


def test_explain_says_which_value_holds_and_which_it_hides(said: dict[str, Any]) -> None:
    lines = [
        (one["name"], one["origin"], one["state"], one["by"]) for one in explained(said, "explain", "publish")["values"]
    ]
    assert lines == [(NAME, "rest", "holds", ""), ("*", "file", "hidden", f"{WORD} {NAME} (rest)")]
    assert explained(said, "nameless", "publish") == {"level": WORD, "asked": False, "values": [], "in_force": None}
    assert said["table"].count(f"│ {WORD}") == 2
    assert said["table"].count("asked only for a --producer") == 2  # of a producer, and of it in a tenant
    assert said["table"].count("consumers have none") == 2


def test_metrics_count_it(said: dict[str, Any]) -> None:
    labels = f'{{direction="publish",level="{WORD}"}}'
    throttled = [line for line in said["metrics"].splitlines() if line.startswith("sluice_limiter_throttled_seconds")]
    assert [float(line.split()[1]) > 0 for line in throttled if labels in line] == [True]


def test_the_access_log_has_its_lines_and_names_it(said: dict[str, Any]) -> None:
    limits = of(said, "limit")
    assert {(line["level"], line["name"], line["tenant"], line["namespace"]) for line in limits} == {
        (WORD, f"{NAME}@acme", "acme", "")
    }
    assert {line["source"] for line in limits} == {"each producer file", "producer rest"}
    passed = [sum(line["passed_messages"] for line in lines) for lines in (limits, of(said, "interval"))]
    assert passed[0] == passed[1] >= 2
    assert {(line["limit_levels"], line["limit_level"], line["reason"]) for line in of(said, "interval")} == {
        (WORD, WORD, WORD)
    }
    assert [(line["setting"], line["name"]) for line in of(said, "change")] == [(WORD, NAME)] * 2


@pytest.mark.whole
def test_the_report_judges_it(run: Run, said: dict[str, Any], folder: Path) -> None:
    """Compliant it is only if the streams' lines, found by the new level's names, say the same as the limit's."""
    assert said["log"]
    printed = run("sluice", "report", "--access-log", folder / "log", "--out", folder / "report", "--strict")
    assert printed.splitlines()[-1] == f"{folder}/report/report.html"
    report = msgspec.json.decode((folder / "report" / "report.json").read_bytes())
    found = [one for one in report["rollups"] if (one["scope"], one["name"]) == ("level", WORD)]
    assert [(one["containment"], one["entitlement"], one["worst"]) for one in found] == [
        ("compliant", "compliant", f"publish {WORD} {NAME}@acme")
    ]
    assert WORD in (folder / "report" / "report.html").read_text()
