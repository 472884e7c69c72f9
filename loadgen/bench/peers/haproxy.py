"""HAProxy forwarding TCP with one thread: that of the PATH, else Debian's package, unpacked into the cache."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from loadgen.bench.errors import BenchError
from loadgen.bench.peers.plan import Command, Place, Plan
from loadgen.real.jars import cache_folder

NAME = "HAProxy"
_CONFIG = """\
global
    maxconn {most}
    nbthread 1
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen pulsar
    bind 127.0.0.1:{port}
    server broker 127.0.0.1:{broker_port}
"""
_MOST_CONNECTIONS = 9990  # two descriptors each, within the usual hard limit of 20,000 of a container
_INSTALLED = re.compile(r"^Inst (\S+)", re.MULTILINE)
_TIMEOUT_S = 300


def missing() -> str | None:
    """What there is not for it."""
    if shutil.which("haproxy") or _unpacked().exists() or (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    return "neither haproxy nor apt-get to fetch it with: install the package haproxy"


def config(place: Place) -> str:
    """Its configuration file."""
    return _CONFIG.format(most=_MOST_CONNECTIONS, port=place.port, broker_port=place.broker_port)


def packages(simulated: str) -> list[str]:
    """The packages that `apt-get install --simulate` says it would install."""
    return _INSTALLED.findall(simulated)


def _command(place: Place) -> Command:
    file = place.folder / "haproxy.cfg"
    file.write_text(config(place))
    program = shutil.which("haproxy")
    if program:
        return Command([program, "-db", "-f", str(file)])
    _fetch()
    libraries = ":".join(str(folder) for folder in sorted({found.parent for found in _folder().rglob("*.so*")}))
    return Command([str(_unpacked()), "-db", "-f", str(file)], {"LD_LIBRARY_PATH": libraries})


def _folder() -> Path:
    return cache_folder().parent / "haproxy"


def _unpacked() -> Path:
    return _folder() / "usr" / "sbin" / "haproxy"


def _fetch() -> None:
    """Download the package and the libraries that are not installed, and unpack them; nothing is installed."""
    if _unpacked().exists():
        return
    filling = _folder().with_name(f"haproxy.filling.{os.getpid()}")
    filling.mkdir(parents=True)
    try:
        wanted = packages(_run(["apt-get", "install", "--simulate", "haproxy"], filling))
        _run(["apt-get", "download", *wanted], filling)
        for package in filling.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(filling)], filling)
            package.unlink()
        filling.rename(_folder())
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - Debian's own tools, fixed arguments
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise BenchError(f"HAProxy cannot be had: {' '.join(command[:2])}: {said[0]}")
    return done.stdout


PLAN = Plan(NAME, _command, missing)
