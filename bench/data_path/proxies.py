"""The proxies that are measured beside each other: how each is had and started."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import BenchError, last_line
from loadgen.real.jars import RealPulsarError, available, cache_folder
from loadgen.real.process import Program, TetheredProcess, free_ports, is_listening, wait_until, write_properties

_START_S = 180.0


@dataclass(frozen=True, slots=True)
class Tls:
    """The legs of a peer that have TLS, and the files for it.

    Attributes:
        folder: Has `ca.pem`, `cert.pem`, `key.pem` (PKCS #8), and `both.pem`, the certificate with its key.
        client: Whether clients come with TLS.
        broker: Whether the broker is reached with TLS.
    """

    folder: Path
    client: bool
    broker: bool

    def of_clients(self, text: str) -> str:
        """`text`, a part of a configuration with `{0}` for the folder, if clients come with TLS; else nothing."""
        return text.format(self.folder) if self.client else ""

    def of_broker(self, text: str) -> str:
        """Return `text` for a peer that reaches the broker with TLS, as `of_clients` does for clients; else nothing."""
        return text.format(self.folder) if self.broker else ""


PLAIN = Tls(Path(), client=False, broker=False)


@dataclass(frozen=True, slots=True)
class Place:
    """The ports and the folder that a peer gets.

    Attributes:
        folder: A folder of its own, for its files.
        port: The port to listen on, on the loopback interface.
        spare_port: Another port, for its admin address or statistics.
        broker_port: The port of its broker.
        tls: The legs with TLS.
    """

    folder: Path
    port: int
    spare_port: int
    broker_port: int
    tls: Tls = PLAIN


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and variables of the environment to add."""

    line: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


def nothing() -> str | None:
    """Return None: the peer runs everywhere."""
    return None


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """A peer, and how it is started.

    Attributes:
        name: For the table.
        command: Writes its files and says its command; may fetch it first, and raise BenchError.
        missing: What there is not on this machine for it, with the remedy; None if it can run.
    """

    name: str
    command: Callable[[Place], Command]
    missing: Callable[[], str | None] = nothing


@dataclass(frozen=True, slots=True)
class RunningPeer:
    """A peer that runs.

    Attributes:
        name: Of its plan.
        port: Where it listens.
        pid: Of its process.
        spare_port: Where what else it offers is.
    """

    name: str
    port: int
    pid: int
    spare_port: int


@contextmanager
def running(plan: PeerPlan, folder: Path, broker_port: int, tls: Tls = PLAIN) -> Iterator[RunningPeer]:
    """Start it, and end it with the block.

    Raises:
        BenchError: If it cannot be had, ends, or does not listen in time.
    """
    home = Path(tempfile.mkdtemp(prefix=plan.name.partition(" ")[0], dir=folder))
    port, spare_port = free_ports(0, 0)
    command = plan.command(Place(home, port, spare_port, broker_port, tls))
    process = TetheredProcess(command.line, home / "log", command.env)
    try:
        wait_until(lambda: is_listening(port) or process.exit_code is not None, _START_S)
        if process.exit_code is not None or not is_listening(port):
            how = "does not listen" if process.exit_code is None else f"ended with code {process.exit_code}"
            raise BenchError(f"{plan.name} {how}: {last_line(process.last_lines())}")
        yield RunningPeer(plan.name, port, process.pid, spare_port)
    finally:
        process.stop()


BARE = "bare forwarder"


def _bare_command(place: Place) -> Command:
    ports = [str(place.port), str(place.broker_port)]
    files = [place.tls.of_clients("{0}/both.pem"), place.tls.of_broker("{0}/ca.pem")]
    return Command([sys.executable, "-m", "bench.data_path.forwarder", *ports, *files])


BARE_PLAN = PeerPlan(BARE, _bare_command)


HAPROXY = "HAProxy"
HAPROXY_CONFIG = """\
global
    maxconn 9990
    nbthread 1
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen pulsar
    bind 127.0.0.1:{port}{bind}
    server broker 127.0.0.1:{to}{server}
"""
"""A proxy of TCP, and the ends with TLS beside it. Connections have two descriptors each: a container may usually have
20,000."""
_INSTALLED = re.compile(r"^Inst (\S+)", re.MULTILINE)
_TIMEOUT_S = 300


def haproxy_missing() -> str | None:
    """Return the reason why HAProxy cannot run here, with the remedy; None if it can."""
    if shutil.which("haproxy") or _unpacked().exists() or (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    return "neither haproxy nor apt-get to fetch it with: install the package haproxy"


def haproxy_config(place: Place) -> str:
    """Return HAProxy's configuration file."""
    bind = place.tls.of_clients(" ssl crt {0}/both.pem")
    server = place.tls.of_broker(" ssl verify required ca-file {0}/ca.pem verifyhost localhost no-ssl-reuse")
    return HAPROXY_CONFIG.format(port=place.port, to=place.broker_port, bind=bind, server=server)


def haproxy_packages(simulated: str) -> list[str]:
    """The packages that `apt-get install --simulate` says it would install."""
    return _INSTALLED.findall(simulated)


def _haproxy_command(place: Place) -> Command:
    file = place.folder / "haproxy.cfg"
    file.write_text(haproxy_config(place))
    return haproxy_command(file)


def haproxy_command(file: Path) -> Command:
    """Return HAProxy's command with this configuration file; HAProxy is fetched first, where it is not installed.

    Raises:
        BenchError: If it cannot be had.
    """
    program = shutil.which("haproxy")
    if program:
        return Command([program, "-db", "-f", str(file)])
    _fetch()
    libraries = ":".join(
        str(folder) for folder in sorted({library.parent for library in _haproxy_folder().rglob("*.so*")})
    )
    return Command([str(_unpacked()), "-db", "-f", str(file)], {"LD_LIBRARY_PATH": libraries})


def _haproxy_folder() -> Path:
    return cache_folder().parent / "haproxy"


def _unpacked() -> Path:
    return _haproxy_folder() / "usr" / "sbin" / "haproxy"


def _fetch() -> None:
    """Download the package and the libraries that are not installed, and unpack them; nothing is installed."""
    if _unpacked().exists():
        return
    filling = _haproxy_folder().with_name(f"haproxy.filling.{os.getpid()}")
    filling.mkdir(parents=True)
    try:
        wanted = haproxy_packages(_run(["apt-get", "install", "--simulate", "haproxy"], filling))
        _run(["apt-get", "download", *wanted], filling)
        for package in filling.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(filling)], filling)
            package.unlink()
        filling.rename(_haproxy_folder())
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - Debian's own tools, fixed arguments
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise BenchError(f"HAProxy cannot be had: {' '.join(command[:2])}: {lines[0]}")
    return done.stdout


HAPROXY_PLAN = PeerPlan(HAPROXY, _haproxy_command, haproxy_missing)


OFFICIAL = "official proxy"
"""With TLS. Zero copy is off: it would splice what a client sends without TLS into the broker's TLS (Pulsar 4.0.8)."""
ZERO_COPY, COPYING, PARSING = (f"official proxy, {way}" for way in ("zero copy", "copying", "parsing"))
"""By default it splices sockets; without that it copies; with proxyLogLevel=1 it reads every frame."""
_WAYS = {
    ZERO_COPY: {"proxyLogLevel": "0"},
    COPYING: {"proxyLogLevel": "0", "proxyZeroCopyModeEnabled": "false"},
    PARSING: {"proxyLogLevel": "1"},
    OFFICIAL: {"proxyLogLevel": "0", "proxyZeroCopyModeEnabled": "false"},
}
_MAIN_CLASS = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_MEMORY = ("-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")


def official_properties(name: str, place: Place) -> dict[str, str]:
    """Return the official proxy's configuration file."""
    return {
        "clusterName": "standalone",
        "brokerServiceURL": f"pulsar://127.0.0.1:{place.broker_port}",
        "brokerWebServiceURL": "http://127.0.0.1:1",  # never asked
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "servicePort": str(place.port),
        "webServicePort": str(place.spare_port),
        "brokerProxyAllowedHostNames": "*",
        "brokerProxyAllowedIPAddresses": "127.0.0.0/8",
        "brokerProxyAllowedTargetPorts": str(place.broker_port),
        "maxConcurrentInboundConnections": "20000",
        "maxConcurrentLookupRequests": "50000",
        **_WAYS[name],
        **_official_tls(place),
    }


def _official_tls(place: Place) -> dict[str, str]:
    """The keys of TLS, where there is any."""
    files, tls = place.tls.folder, dict[str, str]()
    if place.tls.client:
        tls |= {"servicePort": "", "servicePortTls": str(place.port), "tlsEnabledInProxy": "true"}
        tls |= {"tlsCertificateFilePath": f"{files}/cert.pem", "tlsKeyFilePath": f"{files}/key.pem"}
    if place.tls.broker:
        tls |= {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": f"pulsar+ssl://127.0.0.1:{place.broker_port}"}
        tls |= {"brokerClientTrustCertsFilePath": f"{files}/ca.pem", "tlsHostnameVerificationEnabled": "true"}
        tls |= {"brokerWebServiceURLTLS": "https://127.0.0.1:1"}
    return tls


def official_plan(name: str) -> PeerPlan:
    """The proxy in one of its ways."""
    return PeerPlan(name, partial(_official_command, name), available)


def _official_command(name: str, place: Place) -> Command:
    file = write_properties(place.folder / "proxy.conf", official_properties(name, place))
    program = Program(_MAIN_CLASS, ("--config", str(file)), _MEMORY)
    try:
        return Command(program.command(place.folder))
    except RealPulsarError as error:
        raise BenchError(f"{name} cannot be had: {str(error).splitlines()[0]}") from error


SLUICE = "Sluice"
MOST_CONNECTIONS = 20_000
_FAR = {"messages": 100_000_000, "bytes": "10GB"}
UNREACHED = {"namespaces": {"public/default": {"publish": _FAR, "publish_total": _FAR, "dispatch": _FAR}}}
"""Limits for each topic, and for all topics together, above every measured rate."""
_PACKAGES = ("sluice", "proxy", "protocol", "limiter", "accesslog")
IGNORED = shutil.ignore_patterns("*.so", "__pycache__")
_SOURCES = Path(__file__).resolve().parents[2]


def sluice_plan(limits: Mapping[str, Any] = UNREACHED, *, is_logging: bool = True, **settings: Any) -> PeerPlan:
    """Sluice with these limits, with or without its access log, and with other keys of its configuration."""
    command = _sluice_command if is_logging else _silent_command
    return PeerPlan(SLUICE, partial(command, {"limits": limits, **settings}))


def interpreted_plan() -> PeerPlan:
    """Plan Sluice as it runs without a C compiler: a copy of its sources, nothing compiled."""
    return PeerPlan(SLUICE, _interpreted_command)


def _interpreted_command(place: Place) -> Command:
    copies = place.folder / "interpreted"
    for package in _PACKAGES:
        shutil.copytree(_SOURCES / package, copies / package, ignore=IGNORED)
    python, *rest = _sluice_command({"limits": UNREACHED}, place).line
    # -P: not from where this process was started, which may be where the compiled ones are
    return Command([python, "-P", *rest], {"PYTHONPATH": str(copies)})


def _sluice_command(settings: Mapping[str, Any], place: Place) -> Command:
    return Command([*_silent_command(settings, place).line, "--access-log", str(place.folder / "access-log")])


def _silent_command(settings: Mapping[str, Any], place: Place) -> Command:
    config = place.folder / "sluice.yaml"
    tls: dict[str, Any] = {}
    if place.tls.client:
        tls["tls"] = {"certificate": f"{place.tls.folder}/cert.pem", "key": f"{place.tls.folder}/key.pem"}
    if place.tls.broker:
        tls["broker_tls"] = {"ca": f"{place.tls.folder}/ca.pem"}
    config.write_text(json.dumps({"max_connections": MOST_CONNECTIONS, **settings, **tls}))  # JSON is YAML
    listen, broker = (f"pulsar{'+ssl' if has else ''}://127.0.0.1" for has in (place.tls.client, place.tls.broker))
    line = [sys.executable, "-m", "sluice", "serve", "--config", str(config)]
    line += ["--listen", f"{listen}:{place.port}", "--broker", f"{broker}:{place.broker_port}"]
    return Command([*line, "--admin", f"127.0.0.1:{place.spare_port}"])


EVERYBODY = (BARE, HAPROXY, ZERO_COPY, PARSING, SLUICE)
"""The peers of a row that does not say otherwise."""
PLANS = (
    BARE_PLAN,
    HAPROXY_PLAN,
    *(official_plan(name) for name in (ZERO_COPY, COPYING, PARSING, OFFICIAL)),
    sluice_plan(),
)
