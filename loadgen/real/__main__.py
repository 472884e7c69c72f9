"""`python -m loadgen.real`: a real standalone broker in the foreground until SIGTERM or Ctrl-C."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from loadgen.real.jars import VERSION, RealPulsarError, available, cache_folder, is_filled, jars
from loadgen.real.standalone import BrokerSettings, StandaloneBroker, archive_classes


def main() -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args()
    missing = available()
    if arguments.check or missing:
        _say(f"a real Pulsar {VERSION} broker: {missing or 'available'}")
        return 1 if missing else 0
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _serve(arguments.listen_file, arguments.port)
    except KeyboardInterrupt:
        return 0
    except (RealPulsarError, OSError) as error:
        _say(f"real broker: {error}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadgen.real", description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--listen-file", type=Path, help="written when it is healthy: its addresses, as JSON")
    group.add_argument("--check", action="store_true", help="only say whether it can run here, or what is missing")
    parser.add_argument("--port", type=int, default=0, help="of the binary protocol (default: a free one)")
    return parser


def _serve(listen_file: Path, port: int) -> None:
    if not is_filled(cache_folder()):
        _say(f"fetching the jars of Pulsar {VERSION} into {cache_folder()} (once, 236 MB)")
        jars()
    archive_classes()
    folder = Path(tempfile.mkdtemp(prefix="sluice-broker-"))
    try:
        with StandaloneBroker(folder, BrokerSettings(port=port)) as broker:
            _announce(listen_file, broker)
            while True:
                broker.check_running()
                time.sleep(0.5)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _announce(listen_file: Path, broker: StandaloneBroker) -> None:
    addresses = {"service_url": broker.service_url, "admin_url": broker.admin_url}
    unfinished = listen_file.with_name(f".{listen_file.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(addresses) + "\n")
    unfinished.replace(listen_file)
    _say(f"real Pulsar {VERSION} listens on {broker.service_url}, admin REST on {broker.admin_url}")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 -- this is the command line


if __name__ == "__main__":
    sys.exit(main())
