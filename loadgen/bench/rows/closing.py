"""Short lives: a burst of frames, and the connection is closed behind the last of them."""

from functools import partial

from loadgen.bench import frames
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import bare, haproxy, official, sluice
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Beside, Stage, close_all

PEERS = (bare.NAME, haproxy.NAME, official.ZERO_COPY, official.COPYING, official.PARSING, sluice.NAME)
_BURST_S = 0.02


def row(lives: int) -> Row:
    """So many connections, one after the other."""
    figures = (
        Figure("share", "frames lost of those written", " %", digits=2, goals=(Goal("≤", 0),)),
        Figure("cut", "connections that lost some"),
    )
    load = f"{lives} connections, closed behind the last of SENDs of 1,024 B for {_BURST_S * 1000:g} ms"
    return Row("closing", load, figures, partial(_measure, lives), PEERS)


def _measure(lives: int, stage: Stage, name: str) -> Sample:
    frame = frames.send_frame(1024).frame
    sent = lost = cut = 0
    for _ in range(lives):
        here, there = stage.producers(stage.peers[name].port, 1)
        with Beside(partial(stage.native.receive, there)) as receiving:
            _, written = stage.native.send_for(here, frames.many(frame), len(frame), _BURST_S)
        close_all(there)
        missing = sum(written) - sum(receiving.result.frames)
        sent, lost, cut = sent + sum(written), lost + missing, cut + (missing > 0)
    return {"share": lost / sent * 100, "cut": cut}
