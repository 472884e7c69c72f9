"""A broker's configuration file, as it is."""

from pathlib import Path

import pytest

import proxy.importing.broker_conf as module
from proxy.importing.broker_conf import from_file
from proxy.importing.result import ImportFailed


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def problems(path: Path) -> list[str]:
    with pytest.raises(ImportFailed) as failed:
        from_file(path)
    return failed.value.problems


def test_a_file_is_read_with_its_comments_and_continuations(conf: Path) -> None:
    conf.write_bytes(
        b"### --- Limits --- ###\r\n! of topics\r\nmaxPublishRatePerTopicInMessages: \\\r\n    500\r\n"
        b"clusterName=\xe9\r\ndispatchThrottlingRatePerReplicatorInMsg=9\r\n"
    )
    findings = from_file(conf)
    assert [(entry.path[-1], entry.value) for entry in findings.taken] == [("messages", 500)]
    assert findings.others == ["clusterName"]
    assert findings.left[0].what == f"{conf}:6: dispatchThrottlingRatePerReplicatorInMsg=9"


def test_last_value_of_a_repeated_key_holds_as_in_java(conf: Path) -> None:
    conf.write_text("maxProducersPerTopic=5\ntokenSecretKey=secret\nmaxProducersPerTopic=7\ntokenSecretKey=other\n")
    findings = from_file(conf)
    assert [entry.value for entry in findings.taken] == [7]
    assert findings.notes == [
        f"{conf}:3: maxProducersPerTopic stands at {conf}:1 too; the last one holds",
        f"{conf}:4: tokenSecretKey stands at {conf}:2 too; the last one holds",
    ]


def test_a_value_that_a_later_one_replaces_need_not_make_sense(conf: Path) -> None:
    conf.write_text("maxProducersPerTopic=many\nmaxProducersPerTopic=7\n")
    assert [entry.value for entry in from_file(conf).taken] == [7]


def test_problems_name_file_line_key_and_value(conf: Path) -> None:
    conf.write_text("\n\nmaxProducersPerTopic=many\n")
    assert problems(conf)[0].startswith(f"{conf}:3: maxProducersPerTopic: 'many': ")


def test_limits_that_are_rates_end_by_command_and_those_of_addresses_by_hand(conf: Path) -> None:
    conf.write_text("maxPublishRatePerTopicInBytes=5\nbrokerMaxConnectionsPerIp=9\nmaxProducersPerTopic=3\n")
    findings = from_file(conf)
    assert findings.switch_off == [
        "pulsar-admin brokers update-dynamic-config --config maxPublishRatePerTopicInBytes --value 0"
    ]
    assert [line.split("=")[0] for line in findings.by_hand] == ["brokerMaxConnectionsPerIp"]


def test_a_file_that_is_not_there_is_one_line(conf: Path) -> None:
    assert problems(conf) == [f"{conf}: cannot be read: No such file or directory"]


def test_a_broken_escape_is_named_with_its_line(conf: Path) -> None:
    conf.write_text("a=1\nb=\\u12\n")
    (problem,) = problems(conf)
    assert problem.startswith(f"{conf}:2: has a \\u without four hexadecimal digits")


def test_a_file_too_large_to_be_one_is_not_read(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    conf.write_text("a=123456789")
    assert "more than 10 bytes" in problems(conf)[0]
