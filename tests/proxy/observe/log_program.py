"""Writes an access log in a process of its own, into a folder that fails in a real way, and says what became of it.

python log_program.py FOLDER (full | limited | forever)
"""

import json
import resource
import sys
import time
from pathlib import Path

import msgspec

from accesslog.record import AnyLine, LossLine
from proxy.config.sections import AccessLogSettings as Section
from proxy.observe.access_log import AccessLog, open_access_log
from proxy.observe.log_lines import LineSpan
from tests.access_log_files import closed_files, content_of

SPAN = LineSpan(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 1_000_000_000, 9_000_000_000)
PATIENCE_S = 60.0


def write(log: AccessLog, lines: int) -> None:
    for _ in range(lines):
        log.heartbeat(SPAN, last=False)


def write_until(log: AccessLog, *, is_losing: bool) -> None:
    """Until lines are lost, or no longer are."""
    deadline = time.monotonic() + PATIENCE_S
    while log.files is not None and log.files.is_writing is is_losing:
        write(log, 10)
        time.sleep(0.001)
        if time.monotonic() > deadline:
            sys.exit("the disk did not change its mind")


def full(log: AccessLog, folder: Path) -> None:
    """The disk fills up, and has room again."""
    filler = (folder / "filler").open("wb", buffering=0)
    try:
        while filler.write(bytes(4096)) == 4096:
            pass
    except OSError:
        pass
    write_until(log, is_losing=True)
    filler.truncate(0)
    write_until(log, is_losing=False)
    filler.close()
    (folder / "filler").unlink()


def limited(log: AccessLog, _folder: Path) -> None:
    """The process may write small files only, and then larger ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    write_until(log, is_losing=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    write_until(log, is_losing=False)


def forever(log: AccessLog, _folder: Path) -> None:
    """Until somebody kills it."""
    while True:
        write(log, 100)


def read(folder: Path) -> list[AnyLine]:
    files = closed_files(folder)
    return [msgspec.json.decode(line, type=AnyLine) for file in files for line in content_of(file).splitlines()]


def tell(trouble: str, error: str | None) -> None:
    if error is not None:
        sys.stdout.write(f"{trouble} begins: {error}\n")


def main() -> None:
    folder, fails = Path(sys.argv[1]), {"full": full, "limited": limited, "forever": forever}[sys.argv[2]]
    log = open_access_log(Section(dir=folder, rotate_age=3600), "east", tell)
    write(log, 100)
    fails(log, folder)
    write(log, 100)
    log.heartbeat(SPAN, last=True)
    is_closed = log.close(PATIENCE_S)
    lines = read(folder)
    lost = sum(line.lost_lines or 0 for line in lines if isinstance(line, LossLine))
    seqs = len({line.seq for line in lines})
    sys.stdout.write(
        json.dumps({"closed": is_closed, "offered": log.lines, "read": len(lines), "seqs": seqs, "lost": lost}) + "\n"
    )


if __name__ == "__main__":
    main()
