"""The bare forwarder: uvloop, and no look at any byte."""

import sys

from loadgen.bench.peers.plan import Command, Place, Plan

NAME = "bare forwarder"


def _command(place: Place) -> Command:
    ports = [str(place.port), str(place.broker_port)]
    return Command([sys.executable, "-m", "loadgen.bench.peers.forwarder", *ports])


PLAN = Plan(NAME, _command)
