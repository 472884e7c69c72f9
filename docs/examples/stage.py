"""The stage of each example: a broker and Sluice, a table, and a verdict at the end.

The broker is the stand-in unless `--broker` names another one. An example ends all processes that it started.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import _pulsar
import pulsar

from adminrest.client import AdminClient
from demo.processes import DemoError, Processes, sluice, start_standin
from demo.verdict import Check
from docs.examples.traffic import Receiver, Standstill
from loadgen.load.clients import ClientError, Clients
from loadgen.real.process import free_port

ROW_S = 0.5
LONGEST_S = 60.0
READY_S = 30.0
INTERRUPTED = 130
Conclusion = tuple[str, list[Check]]
"""One sentence, and what must hold for it to be true."""


class _Asked(argparse.Namespace):
    broker: str | None = None
    access_log: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A running broker, with a running Sluice in front.

    Attributes:
        service_url: Sluice: where the example's clients connect.
        admin: Sluice's admin address, HOST:PORT.
        standstill: The delay that a busy machine adds to every arrival.
    """

    service_url: str
    admin: str
    standstill: Standstill
    _at_broker: Clients
    _open: ExitStack

    def client(self) -> pulsar.Client:
        """A client of the official library, connected through Sluice; its producers share one connection."""
        client = pulsar.Client(self.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._open.callback(client.shutdown)
        return client

    def receive(self, *topics: str) -> Receiver:
        """Receive all messages of topics from now on, at the broker itself, where those that pass Sluice arrive."""
        receiver = Receiver()
        self._at_broker.subscribe(dict.fromkeys(topics, receiver.record))
        return receiver

    def connections(self, *topics: str) -> set[str]:
        """The client connections that have producers of these topics at Sluice."""
        streams = AdminClient(f"http://{self.admin}").get_json("/sluice/streams")["streams"]
        return {stream["connection_id"] for stream in streams if stream["topic"] in topics}


def play(scene: Callable[[Stage], Conclusion], sluice_yaml: str) -> int:
    """Set the stage, play the scene, print the verdict; returns the exit code.

    Args:
        scene: Ends with its conclusion.
        sluice_yaml: Sluice's configuration; addresses are added on the command line.
    """
    # SIGTERM ends it as Ctrl-C does: its processes end with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _stage(sluice_yaml, _asked()) as stage:
            sentence, checks = scene(stage)
    except (DemoError, ClientError) as error:
        return _failed(str(error))
    except _pulsar.PulsarException as error:
        return _failed(f"a client: {error}: is the broker running, do tenant and namespace exist?")
    except KeyboardInterrupt:
        _failed("interrupted")
        return INTERRUPTED
    return _verdict(sentence, checks)


def table(counters: Mapping[str, Callable[[], int]], limit: Callable[[float], str], until: Callable[[], bool]) -> None:
    """Print a row each half second, until the scene is over or LONGEST_S have passed.

    Args:
        counters: A column each: counts so far, which are shown as rates a second.
        limit: The last column, given the seconds since the start.
        until: Asked after each row.
    """
    began = before_at = time.monotonic()
    before = {name: count() for name, count in counters.items()}
    say("  seconds" + "".join(f"{name:>16}" for name in (*counters, "limit")))
    is_over = False
    while not is_over and before_at < began + LONGEST_S:
        time.sleep(max(0.0, before_at + ROW_S - time.monotonic()))
        at, now = time.monotonic(), {name: count() for name, count in counters.items()}
        rates = "".join(f"{(now[name] - before[name]) / (at - before_at):>14.0f}/s" for name in counters)
        say(f"{at - began:>9.1f}{rates}{limit((before_at + at) / 2 - began):>16}")
        before_at, before, is_over = at, now, until()


def after(seconds: float) -> Callable[[], bool]:
    """Return an end for `table`: true once this many seconds have passed."""
    end = time.monotonic() + seconds - ROW_S / 2
    return lambda: time.monotonic() > end


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201 - an example talks to its reader


@contextmanager
def _stage(sluice_yaml: str, asked: _Asked) -> Iterator[Stage]:
    with _folder() as folder, Processes(folder) as processes:
        broker_url = asked.broker or start_standin(processes)
        with Clients(broker_url) as at_broker:
            standstill = Standstill(at_broker)
            more = ["--access-log", asked.access_log] if asked.access_log else []
            service_url, admin = _start_sluice(processes, sluice_yaml, ["--broker", broker_url, *more], folder)
            say(f"Sluice: {service_url}, in front of {broker_url}; admin: http://{admin}")
            with standstill, ExitStack() as clients:
                yield Stage(service_url, admin, standstill, at_broker, clients)
            processes.stop("sluice")


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for configuration and logs; it stays after an error, which names it."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-example-"))
    try:
        yield folder
    except DemoError:
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _start_sluice(processes: Processes, sluice_yaml: str, more: list[str], folder: Path) -> tuple[str, str]:
    config = folder / "sluice.yaml"
    config.write_text(sluice_yaml, encoding="utf-8")
    address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    options = ["--config", str(config), "--listen", address, "--admin", admin, *more]
    processes.start("sluice", sluice("serve", *options))
    processes.wait_until("sluice", AdminClient(f"http://{admin}", timeout_s=2).is_ready, READY_S)
    return f"pulsar://{address}", admin


def _asked() -> _Asked:
    parser = argparse.ArgumentParser(epilog="See docs/examples/README.md.")
    parser.add_argument("--broker", metavar="pulsar://HOST:PORT", help="a real broker; default: start the stand-in")
    parser.add_argument("--access-log", metavar="DIR", help="have Sluice's access log there, for `sluice report`")
    return parser.parse_args(namespace=_Asked())


def _verdict(sentence: str, checks: list[Check]) -> int:
    for check in checks:
        say(f"  {'holds ' if check.holds else 'FAILED'}  {check.name}: {check.detail}")
    if all(check.holds for check in checks):
        say(f"SHOWN: {sentence}")
        return 0
    say("NOT SHOWN: see what failed above; on a machine that is busy otherwise, try again")
    return 1


def _failed(why: str) -> int:
    print(f"NOT SHOWN: {why}", file=sys.stderr, flush=True)  # noqa: T201 - as above
    return 1
