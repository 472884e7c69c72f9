"""Whole frames between the parts of others."""

from proxy.session.data_path import FrameWriter
from proxy.session.transport import Bytes
from tests.proxy.written import Written


def test_a_frame_inserted_while_others_are_written_keeps_order() -> None:
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
