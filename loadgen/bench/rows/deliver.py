"""MESSAGE frames as fast as they go, to a consumer that always has permits."""

from functools import partial

from loadgen.bench import frames
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.native import Answer
from loadgen.bench.peers import bare
from loadgen.bench.peers.plan import Peer
from loadgen.bench.rows.row import Row
from loadgen.bench.rows.send import carried, clocks_of
from loadgen.bench.stage import Beside, Stage, close_all

QUEUE = 200_000
"""Permits of the consumer, given anew by halves as a client with such a receiver queue does: so many never run out."""


def row(size: int) -> Row:
    """Frames of `size` bytes."""
    figures = (
        Figure("rate", "frames/s", goals=(Goal("≥", 0.8, bare.NAME, guard=0.5),)),
        Figure("cpu", "CPU s per million frames", digits=2, goals=(Goal("≤", None, bare.NAME, guard=3.0),)),
        Figure("lost", "frames lost at the close behind the last write"),
    )
    return Row(f"deliver-{size}", f"MESSAGE of {size:,} B, 1 connection", figures, partial(_measure, size))


def _measure(size: int, stage: Stage, name: str) -> Sample:
    return measured(stage, stage.peers[name], size, 1)


def measured(stage: Stage, peer: Peer, size: int, connections: int) -> Sample:
    """What the peer, all its processes together, does with frames of `size` bytes on so many connections."""
    frame = frames.message_frame(size)
    here, there = stage.consumers(peer.port, connections)
    for consumer in here:
        consumer.sendall(frames.flow(QUEUE))
    clocks = clocks_of(peer)
    more = Answer(frames.flow(QUEUE // 2), every=QUEUE // 2)
    with Beside(lambda: stage.native.receive(here, more)) as receiving:
        begun, sent = stage.native.send_for(there, frames.many(frame), len(frame), stage.seconds, obeys=True)
    received, used = receiving.result, sum(clock.read().cpu_s for clock in clocks)
    close_all([*here, *there])
    return carried(begun, sent, received, used)
