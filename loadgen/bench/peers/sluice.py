"""Sluice as it is deployed: metrics and access log on, each stream within limits that it does not reach."""

import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from loadgen.bench.peers.plan import Command, Place, Plan

NAME = "Sluice"
MOST_CONNECTIONS = 20_000
_FAR = {"messages": 100_000_000, "bytes": "10GB"}
UNREACHED = {"namespaces": {"public/default": {"publish": _FAR, "publish_total": _FAR, "dispatch": _FAR}}}
"""Limits for each topic, and for all of them together, beyond everything that is measured."""
_PACKAGES = ("sluice", "proxy", "protocol", "limiter", "accesslog")
IGNORED = shutil.ignore_patterns("*.so", "__pycache__")
_SOURCES = Path(__file__).resolve().parents[3]


def plan(limits: Mapping[str, Any] = UNREACHED, *, is_logging: bool = True, workers: int = 1) -> Plan:
    """Sluice with these limits; without its access log, or with several workers, if that is what is asked about."""
    return Plan(NAME, partial(_command if is_logging else _silent_command, {"limits": limits, "workers": workers}))


def interpreted() -> Plan:
    """Sluice as it is where there is no C compiler: a copy of its sources without what was made of them."""
    return Plan(NAME, _interpreted_command)


def _interpreted_command(place: Place) -> Command:
    copies = place.folder / "interpreted"
    for package in _PACKAGES:
        shutil.copytree(_SOURCES / package, copies / package, ignore=IGNORED)
    python, *rest = _command({"limits": UNREACHED}, place).line
    # -P: not from where this process was started, which may be where the compiled ones are
    return Command([python, "-P", *rest], {"PYTHONPATH": str(copies)})


def _command(settings: Mapping[str, Any], place: Place) -> Command:
    return Command([*_silent_command(settings, place).line, "--access-log", str(place.folder / "access-log")])


def _silent_command(settings: Mapping[str, Any], place: Place) -> Command:
    config = place.folder / "sluice.yaml"
    config.write_text(json.dumps({"max_connections": MOST_CONNECTIONS, **settings}))  # JSON is YAML
    line = [sys.executable, "-m", "sluice", "serve", "--config", str(config)]
    line += ["--listen", f"127.0.0.1:{place.port}", "--broker", f"pulsar://127.0.0.1:{place.broker_port}"]
    return Command([*line, "--admin", f"127.0.0.1:{place.spare_port}"])
