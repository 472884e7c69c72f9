"""How each proxy is had and started."""

import os
import subprocess
import sys

import pytest

from bench.data_path import proxies
from bench.data_path.proxies import (
    COPYING,
    HAPROXY_PLAN,
    PARSING,
    ZERO_COPY,
    Command,
    PeerPlan,
    Place,
    haproxy_config,
    haproxy_missing,
    haproxy_packages,
    interpreted_plan,
    official_plan,
    official_properties,
    running,
    sluice_plan,
)
from bench.harness import BenchError


def test_who_does_not_listen_is_told_with_what_it_said(monkeypatch, tmp_path):
    monkeypatch.setattr(proxies, "_START_S", 1.0)
    mute = PeerPlan(
        "mute",
        lambda _place: Command([sys.executable, "-c", "import signal; print('cannot', flush=True); signal.pause()"]),
    )
    with pytest.raises(BenchError, match="mute does not listen"), running(mute, tmp_path, 1):
        pass


def test_who_ends_is_told_at_once_with_what_it_said(monkeypatch, tmp_path):
    monkeypatch.setattr(proxies, "_START_S", 10.0)
    lame = PeerPlan("lame", lambda _place: Command([sys.executable, "-c", "print('no such key'); raise SystemExit(3)"]))
    with pytest.raises(BenchError, match=r"^lame ended with code 3: no such key$"), running(lame, tmp_path, 1):
        pass


SIMULATED = """\
Reading package lists...
The following NEW packages will be installed:
  haproxy liblua5.3-0
Inst liblua5.3-0 (5.3.6-2 Debian:12.15/oldstable [amd64])
Inst haproxy (2.6.12 Debian-Security:12/oldstable-security [amd64])
Conf haproxy (2.6.12 Debian-Security:12/oldstable-security [amd64])
"""


def test_the_packages_are_those_that_would_be_installed():
    assert haproxy_packages(SIMULATED) == ["liblua5.3-0", "haproxy"]


def test_it_forwards_tcp_with_one_thread(tmp_path):
    text = haproxy_config(Place(tmp_path, 11, 12, 13))
    assert "bind 127.0.0.1:11\n" in text
    assert "server broker 127.0.0.1:13\n" in text
    assert "nbthread 1\n" in text
    assert "mode tcp\n" in text


def test_where_there_is_no_way_to_have_it_this_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path))
    assert haproxy_missing() == "neither haproxy nor apt-get to fetch it with: install the package haproxy"


def test_what_is_installed_is_taken(monkeypatch, tmp_path):
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert haproxy_missing() is None
    assert HAPROXY_PLAN.command(Place(tmp_path, 1, 2, 3)).line[:2] == [str(program), "-db"]


def test_a_download_that_fails_is_told_and_leaves_nothing(monkeypatch, tmp_path):
    broken = tmp_path / "bin" / "apt-get"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent))
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BenchError, match="HAProxy cannot be had: apt-get install: E: no network"):
        HAPROXY_PLAN.command(Place(tmp_path, 1, 2, 3))
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "level", "zero_copy"),
    [(ZERO_COPY, "0", None), (COPYING, "0", "false"), (PARSING, "1", None)],
)
def test_each_way_has_its_settings(tmp_path, name, level, zero_copy):
    properties = official_properties(name, Place(tmp_path, 11, 12, 13))
    assert properties["proxyLogLevel"] == level
    assert properties.get("proxyZeroCopyModeEnabled") == zero_copy
    assert (properties["servicePort"], properties["webServicePort"]) == ("11", "12")
    assert properties["brokerServiceURL"] == "pulsar://127.0.0.1:13"
    assert properties["brokerProxyAllowedTargetPorts"] == "13"


def test_without_java_it_cannot_be_had(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BenchError, match="official proxy, parsing cannot be had: no Java"):
        official_plan(PARSING).command(Place(tmp_path, 1, 2, 3))
    assert "install Java" in (official_plan(PARSING).missing() or "")


def test_it_may_be_asked_to_write_no_log(tmp_path):
    place = Place(tmp_path, 1, 2, 3)
    silent, logging = (sluice_plan(is_logging=flag).command(place).line for flag in (False, True))
    assert logging == [*silent, "--access-log", str(tmp_path / "access-log")]


def test_interpreted_it_finds_nothing_compiled(tmp_path):
    command = interpreted_plan().command(Place(tmp_path, 1, 2, 3))
    copies = tmp_path / "interpreted"
    version = [*command.line[: command.line.index("serve")], "version"]
    done = subprocess.run(version, env=os.environ | command.env, capture_output=True, text=True, check=True)
    assert "interpreted" in done.stdout, "from wherever it is started, which may be where all is compiled"
    assert (copies / "protocol" / "walk.py").exists()
    assert list(copies.rglob("*.so")) == []
