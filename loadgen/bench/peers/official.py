"""The official Pulsar proxy from Maven's jars, in its three ways of forwarding."""

from functools import partial

from loadgen.bench.errors import BenchError
from loadgen.bench.peers.plan import Command, Place, Plan
from loadgen.real.jars import RealPulsarError, available
from loadgen.real.process import Program, write_properties

ZERO_COPY, COPYING, PARSING = (f"official proxy, {way}" for way in ("zero copy", "copying", "parsing"))
"""By default it splices sockets; without that it copies; with proxyLogLevel=1 it reads every frame."""
_WAYS = {
    ZERO_COPY: {"proxyLogLevel": "0"},
    COPYING: {"proxyLogLevel": "0", "proxyZeroCopyModeEnabled": "false"},
    PARSING: {"proxyLogLevel": "1"},
}
_MAIN_CLASS = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_MEMORY = ("-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")


def properties(name: str, place: Place) -> dict[str, str]:
    """Its configuration file."""
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
    }


def plan(name: str) -> Plan:
    """The proxy in one of its ways."""
    return Plan(name, partial(_command, name), available)


def _command(name: str, place: Place) -> Command:
    file = write_properties(place.folder / "proxy.conf", properties(name, place))
    program = Program(_MAIN_CLASS, ("--config", str(file)), _MEMORY)
    try:
        return Command(program.command(place.folder))
    except RealPulsarError as error:
        raise BenchError(f"{name} cannot be had: {str(error).splitlines()[0]}") from error
