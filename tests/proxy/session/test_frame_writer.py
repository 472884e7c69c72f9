"""Whole frames between the parts of others."""

from proxy.session.data_path import FrameWriter
from proxy.session.transport import Bytes
from tests.proxy.written import Written


def test_between_frames_an_inserted_one_goes_at_once() -> None:
    written = Written()
    outlet = FrameWriter(written)
    outlet.pass_on(b"aa", mid_frame=False)
    outlet.insert(b"x")
    outlet.pass_on(b"bb", mid_frame=False)
    assert written.parts == [b"aa", b"x", b"bb"]


def test_inside_of_a_frame_it_waits_for_the_end_and_order_is_kept() -> None:
    written = Written()
    outlet = FrameWriter(written)
    outlet.pass_on(b"a1", mid_frame=True)
    outlet.insert(b"x")
    outlet.insert(b"y")
    outlet.pass_piece(b"a2", mid_frame=True)
    assert written.parts == [b"a1", b"a2"]
    outlet.pass_piece(b"a3", mid_frame=False)
    assert written.parts == [b"a1", b"a2", b"a3", b"x", b"y"]
    assert not outlet.waiting


def test_what_is_inserted_while_the_waiting_ones_are_written_keeps_its_place() -> None:
    class Answered(Written):
        def write(self, part: Bytes) -> None:
            super().write(part)
            if part == b"x":
                outlet.insert(b"late")

    written = Answered()
    outlet = FrameWriter(written)
    outlet.pass_on(b"a1", mid_frame=True)
    outlet.insert(b"x")
    outlet.insert(b"y")
    outlet.pass_on(b"a2", mid_frame=False)
    assert written.parts == [b"a1", b"a2", b"x", b"late", b"y"]


def test_chunks_go_at_once_and_what_there_are_many_of_together() -> None:
    class Gathered(Written):
        def write_soon(self, part: bytes) -> None:
            self.parts.append(b"soon " + part)

    written = Gathered()
    outlet = FrameWriter(written)
    outlet.pass_on(b"chunk", mid_frame=False)
    outlet.pass_piece(b"piece", mid_frame=False)
    outlet.insert(b"frame")
    assert written.parts == [b"chunk", b"soon piece", b"soon frame"]
