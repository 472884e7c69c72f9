"""`sluice import`: what it writes where, and how it ends."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from proxy.config.model import load_config
from sluice.cli import app

GOOD = """\
# Max rate of messages
maxPublishRatePerTopicInMessages=500
dispatchThrottlingRateInByte=10485760
dispatchThrottlingRatePerReplicatorInMsg=3
subscribeThrottlingRatePerConsumer=5
clusterName=one
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(GOOD)
    return path


def test_json_has_the_result_and_the_rest_in_one_object(conf: Path, tmp_path: Path) -> None:
    result = run(conf, "--json")
    findings = json.loads(result.stdout)
    assert (findings["source"], findings["taken"], findings["others"]) == ("broker.conf", 3, ["clusterName"])
    assert len(findings["left_out"]) == 1
    assert findings["left_out"][0]["what"].endswith("dispatchThrottlingRatePerReplicatorInMsg=3")
    assert findings["yaml"] == run(conf).stdout
    assert result.stderr == ""
    to_file = json.loads(run(conf, "--json", "--output", tmp_path / "out.yaml").stdout)
    assert (to_file["file"], "yaml" in to_file) == (str(tmp_path / "out.yaml"), False)


def test_quiet_leaves_the_result_alone(conf: Path) -> None:
    result = run(conf, "-q")
    assert (result.stdout, result.stderr) == (run(conf).stdout, "")


def test_the_result_is_on_standard_output_and_the_rest_beside_it(conf: Path) -> None:
    result = run(conf)
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout) == {
        "limits": {"proxy": {"dispatch": {"bytes": 10485760}}, "each_topic": {"publish": {"messages": 500}}},
        "admission": {"subscribe_rate_per_consumer": "5/30s"},
    }
    assert result.stdout.startswith("# Made by `sluice import` from 'broker.conf'.\n")
    assert "messages: 500  # maxPublishRatePerTopicInMessages=500\n" in result.stdout
    assert result.stderr.startswith("3 values taken over\n")
    assert f"{conf}:4: dispatchThrottlingRatePerReplicatorInMsg=3" in result.stderr
    assert "1 key not about limits (--verbose" in result.stderr


def test_a_file_gets_what_sluice_check_accepts(conf: Path, tmp_path: Path) -> None:
    output = tmp_path / "sluice.yaml"
    result = run(conf, "--output", output)
    assert (result.exit_code, result.stdout) == (0, "")
    assert CliRunner().invoke(app, ["check", "--config", str(output)]).exit_code == 0
    assert load_config(output, {}).admission.subscribe_rate_per_consumer == (5, 30 * 10**9)


def test_verbose_names_the_keys_that_are_not_about_limits(conf: Path) -> None:
    assert "\n  clusterName\n" in run(conf, "--verbose").stderr


def test_every_problem_is_told_and_nothing_is_written(conf: Path, tmp_path: Path) -> None:
    conf.write_text("preciseDispatcherFlowControl=true\n" + GOOD.replace("500", "many") + "maxProducersPerTopic=-3\n")
    with conf.open("a") as file:
        file.write("dispatchThrottlingOnBatchMessageEnabled=true\n")
    output = tmp_path / "sluice.yaml"
    result = run(conf, "--output", output)
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split(": ")[:3] for line in result.stderr.splitlines()] == [
        ["sluice", f"{conf}:1", "preciseDispatcherFlowControl"],
        ["sluice", f"{conf}:3", "maxPublishRatePerTopicInMessages"],
        ["sluice", f"{conf}:8", "maxProducersPerTopic"],
        ["sluice", f"{conf}:9", "dispatchThrottlingOnBatchMessageEnabled"],
    ]
    assert not output.exists()


def test_a_file_is_overwritten_by_force_only(conf: Path, tmp_path: Path) -> None:
    output = tmp_path / "sluice.yaml"
    output.write_text("mine")
    result = run(conf, "--output", output)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"sluice: {output}: is there already; ")
    assert output.read_text() == "mine"
    assert run(conf, "--output", output, "--force").exit_code == 0
    assert "messages: 500" in output.read_text()


def test_a_file_that_is_there_is_told_before_a_broker_is_asked(conf: Path) -> None:
    result = run("--from-admin", "http://127.0.0.1:1", "--output", conf)
    assert (result.exit_code, result.stderr.splitlines()[0][-7:]) == (1, "--force")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a broker's configuration file"),
        (["broker.conf", "--from-admin", "http://b:8080"], "give a broker's configuration file"),
        (["broker.conf", "--token-file", "token"], "a file needs no token"),
    ],
)
def test_there_is_one_source(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["import", *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_broker_that_does_not_answer_is_one_line() -> None:
    result = run("--from-admin", "http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("sluice: http://127.0.0.1:1/admin/v2/brokers/configuration/runtime: no answer (")
