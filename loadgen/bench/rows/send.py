"""SEND frames as fast as they go, on one connection or many."""

from functools import partial

from loadgen.bench import frames, proc
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.native import Received
from loadgen.bench.peers import bare, haproxy, official
from loadgen.bench.peers.plan import Peer
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Beside, CpuClock, Stage, close_all

_LARGE = (Goal("≥", 0.95, bare.NAME, guard=0.6), Goal("≥", 1.2, haproxy.NAME))
_SMALL = (Goal("≥", 0.45, bare.NAME, guard=0.3), Goal("≥", 12, official.PARSING))


def row(size: int, connections: int) -> Row:
    """Frames of `size` bytes."""
    is_small = size < 1000
    cost = (Goal("≤", 0.2),) if is_small else (Goal("≤", 1.2, bare.NAME, guard=2.4),)
    figures = (
        Figure("rate", "frames/s", goals=_SMALL if is_small else _LARGE),
        Figure("cpu", "CPU s per million frames", digits=2, goals=cost),
        Figure("lost", "frames lost at the close behind the last write"),
    )
    many = "1 connection" if connections == 1 else f"{connections} connections"
    return Row(
        f"send-{size}-{connections}", f"SEND of {size:,} B, {many}", figures, partial(_measure, size, connections)
    )


def _measure(size: int, connections: int, stage: Stage, name: str) -> Sample:
    return measured(stage, stage.peers[name], size, connections)


def measured(stage: Stage, peer: Peer, size: int, connections: int) -> Sample:
    """What the peer, all its processes together, does with frames of `size` bytes on so many connections."""
    frame = frames.send_frame(size).frame
    here, there = stage.producers(peer.port, connections)
    clocks = clocks_of(peer)
    with Beside(lambda: stage.native.receive(there, frame_size=len(frame))) as receiving:
        begun, sent = stage.native.send_for(here, frames.many(frame), len(frame), stage.seconds)
    received, used = receiving.result, sum(clock.read().cpu_s for clock in clocks)
    close_all(there)
    return carried(begun, sent, received, used)


def clocks_of(peer: Peer) -> list[CpuClock]:
    """Of all its processes, from now on."""
    return [CpuClock(pid) for pid in (peer.pid, *proc.children(peer.pid))]


def carried(begun: float, sent: list[int], received: Received, used: float) -> Sample:
    """What was sent from `begun` on has arrived, for `used` CPU seconds."""
    arrived = sum(received.frames)
    return {
        "rate": arrived / (received.last_at - begun),
        "cpu": used / arrived * 1e6,
        "lost": sum(sent) - arrived,
    }
