from loadgen.bench.peers import bare
from loadgen.bench.rows import send


def test_it_delivers_everything_though_the_sender_closes_at_once(stage):
    found = send.measured(stage, stage.peers[bare.NAME], 1000, 1)
    assert found["lost"] == 0
    assert found["rate"] > 0
