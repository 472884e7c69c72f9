import subprocess
import sys
import tempfile

from loadgen.bench.peers import bare
from loadgen.bench.stage import Beside, CpuClock, settle
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandPing

PING = encode(CommandPing())


def test_both_ends_of_a_connection_belong_together(stage, name):
    for open_streams in (stage.producers, stage.consumers):
        here, there = open_streams(stage.peers[name].port, 3)
        for number, (one, other) in enumerate(zip(here, there, strict=True)):
            other.settimeout(10)
            said = PING * (number + 1)
            one.sendall(said)
            heard = b""
            while len(heard) < len(said):
                heard += other.recv(len(said))
            assert heard == said
            one.close()
            while rest := other.recv(1024):
                heard += rest
            assert heard == said
            other.close()


def test_a_result_is_there_behind_the_block():
    with Beside(lambda: 7) as working:
        pass
    assert working.result == 7
    assert working.is_done


def test_a_peer_can_be_started_for_one_measurement(stage):
    with stage.started(stage.plans[bare.NAME]) as peer:
        assert peer.pid != stage.peers[bare.NAME].pid
        assert CpuClock(peer.pid).read().cpu_s >= 0


_WORKS = "import time; sum(range(10_000_000)); print('done', flush=True); time.sleep(60)"


def test_a_measurement_begins_when_the_one_before_has_settled_or_its_peer_is_gone():
    with tempfile.TemporaryFile() as said, subprocess.Popen([sys.executable, "-c", _WORKS], stdout=said) as working:
        settle(working.pid)
        said.seek(0)
        assert said.read() == b"done\n"
        working.kill()
    settle(working.pid)


def test_one_that_never_rests_is_not_waited_for_for_ever():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as working:
        settle(working.pid, most_s=0.3)
        assert working.poll() is None
        working.kill()
