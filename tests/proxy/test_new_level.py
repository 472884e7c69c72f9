"""A level by a new property of clients, whose names are prefixes, is a record of `limiter.levels` and few lines."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark_java import spark_java

WORD = "client_version"
WIDE, NARROW = "test-*", "test-client*"
ROOT = Path(__file__).resolve().parents[2]
PLANTED = {
    "limiter.levels": {
        """
    subscription: str = ""
""": """
    subscription: str = ""
    version: str = ""
""",
        """
    EXEMPT = "exempt"
""": """
    EXEMPT = "exempt"
    CLIENT_VERSION = "client_version"
""",
        """
INDEXED = (""": """
VERSION = ClientPart(
    of=lambda identity: identity.client.version,
    columns=("client_version",),
    names=PatternValues,
    missing="asked only for a --version",
    word="version",
    field="version",
    meaning="Version of the client",
)
VERSIONS = MatchedPart(by=VERSION, columns=("version_limit",), missing=VERSION.missing)
INDEXED = (""",
        """
    Level(
        word="exempt",""": """
    Level(
        word="client_version",
        limited=(VERSIONS,),
        settings=(
            SettingRecord(
                word=Setting.CLIENT_VERSION,
                source="version",
                named=(VERSION,),
                file=("client_versions", NAME, "{}"),
                section_meaning="NAME is the beginning of a version and *; of all clients with such versions together",
                abouts=("publish",),
            ),
        ),
        members="topic",
    ),
    Level(
        word="exempt",""",
    },
    "proxy.observe.connection": {
        """
        role=connection.client_role,
""": """
        role=connection.client_role,
        version=connection.client_version,
"""
    },
    "accesslog.record": {
        """
    resource_group: str = ""
""": """
    resource_group: str = ""
    version_limit: str = ""
"""
    },
}
"""The changed places of each module. CONTRIBUTING.md lists these modules."""
_FINDER = """
import importlib.util, pathlib, sys

class Planted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        planted = pathlib.Path({folder!r}, name + ".py")
        source = pathlib.Path({root!r}, *name.split(".")).with_suffix(".py")
        if planted.exists():
            return importlib.util.spec_from_file_location(name, planted)
        if name.partition(".")[0] in ("limiter", "protocol", "proxy") and source.exists():
            return importlib.util.spec_from_file_location(name, source)

sys.meta_path.insert(0, Planted())
"""
"""Every Python that is started finds the changed modules, Spark's workers too, and no compiled ones."""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a module where the limiter has the new level; gives what it printed. It is silent besides, Spark too."""
    folder = tmp_path_factory.mktemp("planted")
    for module, changes in PLANTED.items():
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
        for before, after in changes.items():
            assert source.count(before) == 1
            source = source.replace(before, after)
        (folder / f"{module}.py").write_text(source)
    (folder / "sitecustomize.py").write_text(_FINDER.format(folder=str(folder), root=str(ROOT)))
    paths = [str(folder), str(ROOT)]

    def run(module: str, *arguments: object) -> str:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAVA_TOOL_OPTIONS": spark_java()},
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


def explained(answers: dict[str, Any], name: str, direction: str) -> dict[str, Any]:
    (level,) = [explanation for explanation in answers[name][direction] if explanation["level"] == WORD]
    return dict(level)


def of(answers: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [line for line in answers["log"] if line["kind"] == kind]


def test_the_configuration_and_its_reference_have_it(said: dict[str, Any]) -> None:
    assert "| `limits.client_versions.NAME.publish` | *rate* |" in said["reference"]
    assert "client_versions.NAME.dispatch" not in said["reference"]
    assert said["get"]["limit"] == {"messages": "1/h", "burst_messages": 2}
    assert said["get"]["origin"] == "file"


def test_rest_sets_shows_exports_and_takes_it_back(said: dict[str, Any]) -> None:
    assert (said["put"]["limit"], said["put"]["origin"]) == ({"messages": "2/h", "burst_messages": 3}, "rest")
    taken_back = said["delete"]
    assert (taken_back["taken_back"], taken_back["in_force"]["name"], taken_back["in_force"]["origin"]) == (
        True,
        WIDE,
        "file",
    )
    assert "client_versions:" in said["policies"]
    (setting,) = [
        parameter
        for parameter in said["openapi"]["paths"]["/sluice/limits"]["put"]["parameters"]
        if parameter["name"] == "setting"
    ]
    assert WORD in setting["schema"]["enum"]


def test_explain_says_which_value_holds_and_which_it_hides(said: dict[str, Any]) -> None:
    lines = [
        (value["name"], value["origin"], value["state"], value["by"])
        for value in explained(said, "explain", "publish")["values"]
    ]
    assert lines == [(NARROW, "rest", "holds", ""), (WIDE, "file", "hidden", f"{WORD} {NARROW} (rest)")]
    assert explained(said, "nameless", "publish") == {"level": WORD, "asked": False, "values": [], "in_force": None}
    assert said["table"].count(f"│ {WORD}") == 2
    assert said["table"].count("asked only for a --version") == 1
    assert said["table"].count("consumers have none") == 2


def test_metrics_count_it(said: dict[str, Any]) -> None:
    labels = f'{{direction="publish",level="{WORD}"}}'
    throttled = [line for line in said["metrics"].splitlines() if line.startswith("sluice_limiter_throttled_seconds")]
    assert [float(line.split()[1]) > 0 for line in throttled if labels in line] == [True]


def test_metrics_do_not_show_its_names(said: dict[str, Any]) -> None:
    assert not [line for line in said["metrics"].splitlines() if WORD in line and 'name="' in line]


def test_its_patterns_are_of_few_forms(said: dict[str, Any]) -> None:
    assert "limits.client_versions: the patterns have 21 forms, and at most 16 are allowed" in said["forms"]


def test_streams_that_match_a_name_share_its_limit(said: dict[str, Any]) -> None:
    of_wide = [line for line in of(said, "interval") if line["version_limit"] == WIDE]
    assert {line["client_version"] for line in of_wide} == {"test-client", "test-other"}
    assert sum(line["passed_messages"] for line in of_wide) == 2  # its burst


def test_the_access_log_has_its_lines_and_names_it(said: dict[str, Any]) -> None:
    limits, intervals = of(said, "limit"), of(said, "interval")
    assert {(line["level"], line["name"], line["source"]) for line in limits} == {
        (WORD, WIDE, "pattern version file"),
        (WORD, NARROW, "pattern version rest"),
    }
    for name in (WIDE, NARROW):
        streams = [line["passed_messages"] for line in intervals if line["version_limit"] == name]
        assert sum(streams) == sum(line["passed_messages"] for line in limits if line["name"] == name) >= 2
    assert {(line["limit_levels"], line["limit_level"], line["reason"]) for line in intervals} == {(WORD, WORD, WORD)}
    assert [(line["setting"], line["name"]) for line in of(said, "change")] == [(WORD, NARROW)] * 2


@pytest.mark.whole
def test_the_report_judges_it(run: Run, said: dict[str, Any], folder: Path) -> None:
    """Compliant it is only if the streams' lines, found by the new level's names, say the same as the limit's."""
    assert said["log"]
    printed = run("sluice", "report", "--access-log", folder / "log", "--out", folder / "report", "--strict")
    assert printed.splitlines()[-1] == f"{folder}/report/report.html"
    report = msgspec.json.decode((folder / "report" / "report.json").read_bytes())
    rollups = [rollup for rollup in report["rollups"] if (rollup["scope"], rollup["name"]) == ("level", WORD)]
    assert [(rollup["containment"], rollup["entitlement"]) for rollup in rollups] == [("compliant", "compliant")]
    assert {limiter["name"] for limiter in report["limiters"] if limiter["level"] == WORD} == {WIDE, NARROW}
    assert WORD in (folder / "report" / "report.html").read_text()
