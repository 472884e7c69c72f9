"""Rows of the page on sizing: cores that Sluice takes for 100,000 messages a second, by size, write and TLS."""

from collections.abc import Callable, Sequence
from functools import partial

from bench.data_path.proxies import SLUICE, RunningPeer, sluice_plan
from bench.data_path.rows import many_streams, tls
from bench.data_path.rows.many_streams import Held
from bench.data_path.rows.throughput import measure_paced, measure_sends
from bench.data_path.stage import DataRow, Stage
from bench.harness import Figure, Row, Sample

_Measure = Callable[[Stage, RunningPeer], Sample]

SIZES = (100, 1024, 16384)
_IN_A_WRITE = 8
_RATES = {100: 40_000, 1024: 30_000, 16384: 4_000}
"""Messages a second of each size, 8 in a write; with TLS they take half of the two cores that the ends share."""
_RATE_ALONE = 4_000
"""Messages a second, each in a write of its own, with a receipt."""
_HUNDRED_THOUSAND = 0.1
"""Of a million messages, for which the measurements say CPU seconds."""


_HELD = Held(connections=10, streams=10, size=65_536, window_s=3.0, unit="bytes", rate=100_000_000)


def rows() -> list[DataRow]:
    """List the rows."""
    of_sizes = [row for size in SIZES for sealed in (False, True) for row in _of_size(size, sealed=sealed)]
    return [*of_sizes, *(_held_row(sealed=sealed) for sealed in (False, True))]


def _of_size(size: int, *, sealed: bool) -> Sequence[DataRow]:
    paced = partial(measure_paced, size=size)
    return [
        _row(size, "full reads", "full", partial(measure_sends, size=size, connections=1), sealed=sealed),
        _row(
            size,
            f"{_IN_A_WRITE} in a write",
            str(_IN_A_WRITE),
            partial(paced, per_write=_IN_A_WRITE, rate=_RATES[size], receipts=False),
            sealed=sealed,
        ),
        _row(
            size,
            "1 in a write, with receipts",
            "1",
            partial(paced, per_write=1, rate=_RATE_ALONE, receipts=True),
            sealed=sealed,
        ),
    ]


def _row(size: int, load: str, name: str, measure: _Measure, *, sealed: bool) -> DataRow:
    def measured(stage: Stage, peer_name: str) -> Sample:
        if sealed:
            _, stage, peer = tls.peer_on(stage, peer_name, tls.BOTH)
        else:
            peer = stage.peers[peer_name]
        return {"cores": measure(stage, peer)["cpu"] * _HUNDRED_THOUSAND}

    figure = Figure("cores", "cores for 100,000 msg/s", digits=3)
    text = f"{size:,} B, {load}, {_legs(sealed=sealed)}"
    return Row(f"sizing-{size}-{name}{'-tls' * sealed}", text, (figure,), measured, (SLUICE,))


def _held_row(*, sealed: bool) -> DataRow:
    def measured(stage: Stage, _name: str) -> Sample:
        plan = sluice_plan(many_streams.limits(_HELD))
        if not sealed:
            return many_streams.measure_held(_HELD, stage, stage.started(plan))
        lines, at = tls.lines_on(stage, broker=True)
        return many_streams.measure_held(_HELD, at, lines.started(plan, client=True, broker=True))

    figure = Figure("memory", "memory grown, of the bytes held", " x", digits=2)
    text = f"held entries of {_HELD.size:,} B, {_legs(sealed=sealed)}"
    return Row(f"sizing-held{'-tls' * sealed}", text, (figure,), measured, (SLUICE,))


def _legs(*, sealed: bool) -> str:
    return tls.BOTH.text if sealed else "plain"
