"""Only what needs no Java; `tests/real` runs the broker itself."""

from pathlib import Path

import pytest

from loadgen.real.broker_config import BrokerSettings
from loadgen.real.errors import ProcessFailed
from loadgen.real.standalone import StandaloneBroker
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says


def test_a_broker_that_ends_at_once_is_told_with_its_last_lines(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\necho 'the disk is full'; exit 4")
    with pytest.raises(ProcessFailed, match=r"the broker ended with code 4(.|\n)*the disk is full"):
        StandaloneBroker(tmp_path / "broker").start()


def test_a_broker_that_never_gets_healthy_is_killed_in_time(tool: Tool, tools: Path, tmp_path: Path) -> None:
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\ncase $1 in -version) exit;; esac\necho $$; exec sleep 60")
    with pytest.raises(ProcessFailed, match="not healthy within 0 s"):
        StandaloneBroker(tmp_path / "broker").start(timeout_s=0)


def test_its_addresses_are_known_before_it_starts(tmp_path: Path) -> None:
    broker = StandaloneBroker(tmp_path, BrokerSettings())
    assert broker.service_url.startswith("pulsar://127.0.0.1:")
    assert broker.admin_url.startswith("http://127.0.0.1:")
    broker.stop()
    broker.kill()
