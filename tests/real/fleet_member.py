"""A member of a fleet in a process of its own, to be killed or frozen: tells each turn as a line of stdout."""

import asyncio
import sys

from protocol.endpoint import BROKERS
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet.link import Callbacks
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.tls.certificates import Certificates


def tell(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def run(service_url: str, name: str, lease_s: str) -> None:
    """Grant ten times a second while leading, and tell who is heard when it is another one."""
    broker, heard = BROKERS.parse(service_url), ""

    def hear(grant: bytes) -> None:
        nonlocal heard
        if grant.decode() != heard:
            heard = grant.decode()
            tell("hears", heard)

    callbacks = Callbacks(
        on_report=lambda _: None,
        on_grant=hear,
        on_lead=lambda: tell("leads"),
        on_unlead=lambda: tell("leads no more"),
        on_confirmed=lambda _: None,
    )
    certificates = Certificates(Config(broker=service_url))
    dialer = BrokerDialer(Targets([broker]), certificates, Counters(), sends_proxy_header=False)
    link = TopicLink(dialer, Membership("public/default", "processes", name, float(lease_s)), callbacks)
    await link.start()
    was = ""
    while True:
        if link.state != was:
            was = link.state
            tell(was)
        if was == "leading":
            link.grant(name.encode())
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
