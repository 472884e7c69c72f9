import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.peers import official
from loadgen.bench.peers.plan import Place


@pytest.mark.parametrize(
    ("name", "level", "zero_copy"),
    [(official.ZERO_COPY, "0", None), (official.COPYING, "0", "false"), (official.PARSING, "1", None)],
)
def test_each_way_has_its_settings(tmp_path, name, level, zero_copy):
    found = official.properties(name, Place(tmp_path, 11, 12, 13))
    assert found["proxyLogLevel"] == level
    assert found.get("proxyZeroCopyModeEnabled") == zero_copy
    assert (found["servicePort"], found["webServicePort"]) == ("11", "12")
    assert found["brokerServiceURL"] == "pulsar://127.0.0.1:13"
    assert found["brokerProxyAllowedTargetPorts"] == "13"


def test_without_java_it_cannot_be_had(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BenchError, match="official proxy, parsing cannot be had: no Java"):
        official.plan(official.PARSING).command(Place(tmp_path, 1, 2, 3))
    assert "install Java" in (official.plan(official.PARSING).missing() or "")
