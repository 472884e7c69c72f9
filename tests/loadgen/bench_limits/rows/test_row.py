from pathlib import Path

from loadgen.bench_limits.peers import Peer
from loadgen.bench_limits.rest import Rest
from loadgen.bench_limits.rows.row import by_turns
from loadgen.bench_limits.trial import Stage

REST = Rest("http://127.0.0.1:1")


def test_stages_are_measured_one_after_the_other():
    stages = [Stage(Peer(name, "pulsar://p", REST, "g"), "pulsar://b", REST, Path()) for name in ("own", "sluice")]
    seen: list[str] = []

    def measure(stage):
        seen.append(stage.peer.name)
        return {"number": [len(seen)]}

    assert by_turns(measure)(stages) == [{"number": [1]}, {"number": [2]}]
    assert seen == ["own", "sluice"]
