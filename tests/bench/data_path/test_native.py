import os
import socket
import tempfile
import threading

import pytest

from bench.data_path import native, wire
from bench.data_path.native import Live, SinkAnswer
from bench.data_path.stage import beside
from bench.harness import BenchError
from protocol.commands import split
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import BaseCommand


def read_frames(connection, count):
    cutter = FrameCutter(1 << 20)
    commands: list[BaseCommand] = []
    while len(commands) < count:
        commands += [split(frame)[0] for frame in cutter.feed(connection.recv(65536))]
    return commands


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 99, 100, 101, 250])
def test_frames_are_counted_wherever_reads_cut_them(native, cut):
    here, there = socket.socketpair()
    frame, behind = wire.send_frame(100).frame, b"\x00\x00\x01"
    data = frame * 5 + behind
    with beside(lambda: native.receive([there])) as receiving:
        for at in range(0, len(data), cut):
            here.send(data[at : at + cut])
        here.close()
    there.close()
    assert receiving.result().frames == [5]
    assert receiving.result().last_at >= receiving.result().first_at > 0


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 99, 150, 400])
def test_frames_of_one_size_are_counted_unseen_behind_the_first(native, cut):
    frame = wire.send_frame(100).frame
    data = frame * 7 + frame[:50]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    live = Live(1)
    with here, there, beside(lambda: native.receive([there], live=live, frame_size=len(frame))) as receiving:
        for at in range(0, len(data), cut):
            here.sendall(data[at : at + cut])
            while live.frames < min(at + cut, len(data)) // len(frame):
                assert not receiving.done()
        here.close()
    assert receiving.result().frames == [7]


def test_what_has_come_can_be_looked_at_while_more_comes(native):
    ends = [socket.socketpair() for _ in range(2)]
    frame, live = wire.send_frame(100).frame, Live(2)
    with beside(lambda: native.receive([there for _, there in ends], live=live)) as receiving:
        for number, (here, _) in enumerate(ends):
            here.sendall(frame * (number + 2) + frame[:50])
        while live.frames < 5:
            assert not receiving.done()
        for here, _ in ends:
            here.sendall(frame[50:])
            here.close()
    for _, there in ends:
        there.close()
    assert receiving.result().frames == list(live.counts) == [3, 4]


def test_every_frame_that_was_sent_is_received_though_the_sender_closes_at_once(native):
    ends = [socket.socketpair() for _ in range(3)]
    frame = wire.send_frame(1000).frame
    with beside(lambda: native.receive([there for _, there in ends])) as receiving:
        begun, sent = native.send_for([here for here, _ in ends], wire.many(frame), len(frame), 0.02)
    for _, there in ends:
        there.close()
    assert receiving.result().frames == sent
    assert begun > 0 < min(sent)


def test_receipts_carry_the_sequence_ids_in_order(native):
    here, there = socket.socketpair()
    receipt = wire.receipt()
    first = wire.FIRST_SEQUENCE + 127
    answer = SinkAnswer(receipt.frame, 1, receipt.sequence_at, first)
    here.sendall(wire.send_frame(100).frame * 3)
    native.receive([there], answer, wanted=3)
    assert [command.send_receipt.sequence_id for command in read_frames(here, 3)] == [first, first + 1, first + 2]
    here.close()
    there.close()


def test_no_more_is_sent_than_is_permitted(native):
    here, there = socket.socketpair()
    message = wire.message_frame(1000)
    for permits in (3, 4):
        there.sendall(wire.flow(permits))
    _, sent = native.send_for([here], wire.many(message), len(message), 0.02, obeys=True)
    here.close()
    assert sent == [7]
    assert native.receive([there]).frames == [7]
    there.close()


def test_a_receiver_gives_permits_anew(native):
    here, there = socket.socketpair()
    message = wire.message_frame(1000)
    there.sendall(wire.flow(10))
    with beside(lambda: native.receive([there], SinkAnswer(wire.flow(5), every=5))) as receiving:
        _, sent = native.send_for([here], wire.many(message), len(message), 0.05, obeys=True)
        here.close()
    assert receiving.result().frames == sent
    assert sent[0] > 10
    there.close()


def test_paced_writes_go_to_one_connection_after_the_other(native):
    ends = [socket.socketpair() for _ in range(2)]
    native.send_paced([here for here, _ in ends], wire.send_frame(100).frame * 2, 0.0001, 5)
    for here, _ in ends:
        here.close()
    assert [native.receive([there]).frames for _, there in ends] == [[6], [4]]
    for _, there in ends:
        there.close()


def test_each_question_gets_its_answer_by_turns_on_each_connection(native):
    ends = [socket.socketpair() for _ in range(2)]
    here, there = [list(side) for side in zip(*ends, strict=True)]
    send, receipt = wire.send_frame(100), wire.receipt()
    sequence = {"sequence_at": send.sequence_at, "first_sequence": wire.FIRST_SEQUENCE}
    answer = SinkAnswer(receipt.frame, 1, receipt.sequence_at, wire.FIRST_SEQUENCE)
    with beside(lambda: native.receive(there, answer, wanted=40)) as receiving:
        took = native.ask(here, send.frame, **sequence, interval_s=0.0001, count=20)
    assert receiving.result().frames == [20, 20]
    assert [len(each) for each in took] == [20, 20]
    assert min(map(min, took)) > 0
    for connection in (*here, *there):
        connection.close()


def test_connection_that_ends_before_its_answer_is_an_error(native):
    here, there = socket.socketpair()
    there.close()
    send = wire.send_frame(100)
    sequence = {"sequence_at": send.sequence_at, "first_sequence": wire.FIRST_SEQUENCE}
    with pytest.raises(BenchError, match="failed"):
        native.ask([here], send.frame, **sequence, interval_s=0.0001, count=1)
    with pytest.raises(BenchError, match="failed"):
        native.send_paced([here], send.frame, 0.0001, 1)
    here.close()


def test_many_connect_and_are_welcomed(native):
    hello, answer = wire.flow(1), wire.flow(2)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.setblocking(False)
        with beside(lambda: native.welcome_many(listener, 50, answer)) as welcoming:
            made, answered, seconds = native.connect_many(listener.getsockname()[1], 50, hello)
    native.reset_all([*made, *welcoming.result()])
    assert answered == 50
    assert len(set(made) | set(welcoming.result())) == 100
    assert seconds > 0


def test_without_a_compiler_nothing_can_be_measured(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native.compiler() is None
    with pytest.raises(BenchError, match="install one"):
        native.Native()


def test_nothing_is_executed_that_others_could_have_put_there(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"sluice-bench-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BenchError, match="others can write there: remove it"):
        native.Native()
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(BenchError, match="others can write there: remove it"):
        native.Native()


def test_other_threads_run_while_it_waits(native):
    here, there = socket.socketpair()
    closer = threading.Thread(target=here.close)
    with beside(lambda: native.receive([there])):
        closer.start()
    closer.join()
    there.close()
