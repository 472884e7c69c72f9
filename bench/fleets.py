"""`python -m bench fleets`: play all scenes of fleets, show their figures, write them into a page."""

import os
import tempfile
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pulsar
import pytest

from adminrest.client import AdminError
from bench import harness
from bench.harness import CANNOT_START, Found, Section
from loadgen.real.jars import VERSION, RealPulsarError, available
from tests.real.cluster_proxy import PROPERTIES
from tests.real.fleet_scenes import JUDGED, SCENES, SUBJECT, Scene, judge
from tests.real.pulsar_cluster import PulsarCluster

NAME = "fleets"
TEXT = """\
## Fleets

Made by `python -m bench fleets --write docs/benchmarks.md`, which writes this section itself.
Four Sluices of one fleet are before a real Pulsar {pulsar} cluster of two brokers, by topics, in
cycles of 250 ms with leases of 2 s. One limit of a tenant holds for all.

{table}

Measured on {machine}, {load:.0f} processes running or waiting for a processor when it began.

How it is measured:

- **Clients** are official Python clients, one for each member unless stated otherwise. Each
  publishes to a topic of one broker as much as it can, with up to 300 messages without receipt.
- **Passed messages** are read from the brokers after the run, with the time that the broker itself
  put before each entry.
- **Above the bound** is the excess of the worst interval over burst + rate · t + 4 entries. Below
  0, that much was left. An entry may have been taken later than it was passed. This delay is
  measured: by messages at 100/s to each broker past Sluice, and by the time for which each member's
  process waited for a processor, as the kernel counts it. The bound is kept if the entries can have
  been passed within it. A member that is stopped by a signal waits for nothing. The same if no
  entry was late shows the credit that the machine got.
- **Violations that `sluice report` finds**: it gets the access logs of all members, and judges
  their sum, by lines of a second, after their clocks are compared. It does not know the brokers'
  times.
- **While members are cut off** in silence, another 5 % of their equal parts is allowed (`isolated:
  auto`).
- **Used** is the part of the limit that passed. Standstills of a broker or of a member's process
  are made good, as far as they are longer than a burst lasts (0.1 s), and up to the whole.
- **Until others pass what it had**: until half a second begins in which 95 % of the limit pass.
- **A member that hears nothing** reports as before until its lease ends. Its coordinator waits for
  a lease after that.
- **A coordinator that is stopped or cut off** is replaced after 3 to 4.5 s of silence. Members are
  cut off during that time. The new one divides for 4 s the shares that they bring, which are small
  then, and the whole after that."""


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says whether all goals are reached."""
    parser = harness.parser(NAME, __doc__, [scene.name for scene in SCENES])
    arguments = parser.parse_args(words)
    if arguments.write and arguments.only:
        parser.error("--write: a page gets all scenes only: leave out --only")
    if missing := available():
        return harness.failed(NAME, f"a real Pulsar broker is needed: {missing}", CANNOT_START)
    load = os.getloadavg()[0]
    scenes = [scene for scene in SCENES if scene.name in (arguments.only or [scene.name])]

    def text(tables: str, _measurements: Found) -> str:
        return harness.prose(TEXT.format(pulsar=VERSION, table=tables, machine=harness.machine(), load=load))

    section = Section(NAME, [scene.row(JUDGED) for scene in scenes], text)
    return harness.carry_out(NAME, arguments.write, [section], partial(_play, scenes), harness.missed)


def _play(scenes: Sequence[Scene]) -> Found:
    """The figures of each; None of one that failed."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    measurements: dict[str, harness.Rounds] = {}
    with tempfile.TemporaryDirectory() as folder, PulsarCluster(Path(folder) / "cluster", PROPERTIES) as cluster:
        for scene in scenes:
            for broker in cluster.brokers:
                if not broker.is_running:
                    broker.start()
            sample: harness.Sample | None = None
            try:
                sample = scene.alone(cluster, Path(folder) / scene.name)
            except (
                AdminError,
                AssertionError,
                OSError,
                RealPulsarError,
                pulsar.PulsarException,
                pytest.fail.Exception,
            ):
                traceback.print_exc()  # the others are played all the same, and the table says so
            measurements[scene.name] = {SUBJECT: [sample]}
            print(f"{scene.name}: {scene.row().told([sample])}", flush=True)  # noqa: T201
        for name, violated in judge(Path(folder), list(measurements)).items():
            measurements[name] = {
                SUBJECT: [sample and {**sample, JUDGED.key: violated} for sample in measurements[name][SUBJECT]]
            }
    return measurements
