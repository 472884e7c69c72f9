"""The log that a real proxy left, judged: read as strictly as by the job, by its rules, without Spark."""

from collections import defaultdict
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

from accesslog.record import HeartbeatLine, Kinds
from compliance.judging.facts import Judged
from compliance.judging.lines import UNEXPLAINED_S, UNSEEN_S
from compliance.schema import decoder
from tests.access_log_files import closed_files, content_so_far
from tests.compliance.judging.pure import denied_waits, doubts, excess, verdicts

_RECORDS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, Kinds.BY_NAME.values()))


def judged_compliant(folder: Path, *, killed: int = 0) -> set[str]:
    """Each limit of each run in the log is judged, and both promises were kept; returns the directions of those.

    The first `killed` runs have no end, and may lack lines that nobody could write; but none in between.

    A machine that is busy otherwise may have the proxy wait for a processor while somebody has a token: by its own
    account it was late then, and less passed than was owed. Nothing else may be lacking, and no more may be unseen.
    """
    directions = set()
    for number, (run, lines) in enumerate(sorted(_runs(folder).items())):
        assert [line.seq for line in lines] == list(range(len(lines))), run
        has_end = any(isinstance(line, HeartbeatLine) and line.last for line in lines)
        assert has_end == (number >= killed), run
        assert denied_waits(lines) == [], run
        for key, result in verdicts(lines).items():
            assert_kept(result, (run, key))
            directions |= {key[0]} if result.windows else set()
    return directions


def lines_so_far(folder: Path) -> list[Any]:
    """The lines of the only run in the log, up to now: the proxy may still run."""
    being_written = [_lines(file) for file in folder.glob(".*.open")]  # first: one may be closed by now
    lines = [line for file in closed_files(folder) for line in _lines(file)]
    return sorted({line.seq: line for line in [*chain(*being_written), *lines]}.values(), key=lambda line: line.seq)


def assert_kept(result: Judged, where: object) -> None:
    """Both promises of the limit were kept; see `judged_compliant`."""
    assert (excess(result) < 0, doubts(result)) == (True, set()), (where, result)
    assert _is_short_only_of_time(result), (where, result.entitlement)


def _is_short_only_of_time(result: Judged) -> bool:
    owed = result.entitlement
    if owed is None:
        return True
    lacking_s = owed.waited_s - owed.served_s
    is_seen = owed.unseen_s - owed.late_s - owed.still_s < UNSEEN_S
    return is_seen and lacking_s - owed.late_s <= UNEXPLAINED_S + 1e-6


def _runs(folder: Path) -> dict[tuple[str, str], list[Any]]:
    runs: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for file in closed_files(folder):
        for line in _lines(file):
            runs[line.proxy_id, line.boot_id].append(line)
    assert runs, f"no line in {folder}"
    return {run: sorted(lines, key=lambda line: int(line.seq)) for run, lines in runs.items()}


def _lines(file: Path) -> list[Any]:
    """Read as strictly as by the job. The last one may be cut off, and a file that is being written be gone."""
    try:
        *whole, _cut_off = content_so_far(file).split(b"\n")
    except FileNotFoundError:
        return []
    strict = decoder()
    for text in whole:
        strict.decode(text)
    return [_RECORDS.decode(text) for text in whole]
