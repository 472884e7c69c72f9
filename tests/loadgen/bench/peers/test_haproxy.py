import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.peers import haproxy
from loadgen.bench.peers.plan import Place

SIMULATED = """\
Reading package lists...
The following NEW packages will be installed:
  haproxy liblua5.3-0
Inst liblua5.3-0 (5.3.6-2 Debian:12.15/oldstable [amd64])
Inst haproxy (2.6.12 Debian-Security:12/oldstable-security [amd64])
Conf haproxy (2.6.12 Debian-Security:12/oldstable-security [amd64])
"""


def test_the_packages_are_those_that_would_be_installed():
    assert haproxy.packages(SIMULATED) == ["liblua5.3-0", "haproxy"]


def test_it_forwards_tcp_with_one_thread(tmp_path):
    text = haproxy.config(Place(tmp_path, 11, 12, 13))
    assert "bind 127.0.0.1:11\n" in text
    assert "server broker 127.0.0.1:13\n" in text
    assert "nbthread 1\n" in text
    assert "mode tcp\n" in text


def test_where_there_is_no_way_to_have_it_this_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path))
    assert haproxy.missing() == "neither haproxy nor apt-get to fetch it with: install the package haproxy"


def test_what_is_installed_is_taken(monkeypatch, tmp_path):
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert haproxy.missing() is None
    assert haproxy.PLAN.command(Place(tmp_path, 1, 2, 3)).line[:2] == [str(program), "-db"]


def test_a_download_that_fails_is_told_and_leaves_nothing(monkeypatch, tmp_path):
    broken = tmp_path / "bin" / "apt-get"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent))
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BenchError, match="HAProxy cannot be had: apt-get install: E: no network"):
        haproxy.PLAN.command(Place(tmp_path, 1, 2, 3))
    assert list((tmp_path / "cache").iterdir()) == []
