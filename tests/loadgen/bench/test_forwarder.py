from loadgen.bench.__main__ import BARE, measure
from loadgen.bench.ends import Load, send_frame


def test_the_bare_forwarder_delivers_everything():
    rate, cost = measure(BARE, Load(send_frame(1000), 3001))
    assert rate > 0
    assert cost >= 0
