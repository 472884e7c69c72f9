from loadgen.bench.peers import bare
from loadgen.bench.peers.plan import Place


def test_it_is_told_both_ports(tmp_path):
    assert bare.PLAN.command(Place(tmp_path, 1, 2, 3)).line[-2:] == ["1", "3"]
    assert bare.PLAN.missing() is None
