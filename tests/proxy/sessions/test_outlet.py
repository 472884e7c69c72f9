"""Whole frames between the parts of others."""

from proxy.sessions.outlet import Outlet


class Written(list[bytes]):
    """What an outlet wrote, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.outlet = Outlet(lambda part: self.append(bytes(part)))


def test_between_frames_an_inserted_one_goes_at_once() -> None:
    written = Written()
    written.outlet.pass_on(b"aa", mid_frame=False)
    written.outlet.insert([b"x", b"y"])
    written.outlet.pass_on(b"bb", mid_frame=False)
    assert written == [b"aa", b"x", b"y", b"bb"]


def test_inside_of_a_frame_it_waits_for_the_end_and_order_is_kept() -> None:
    written = Written()
    written.outlet.pass_on(b"a1", mid_frame=True)
    written.outlet.insert([b"x"])
    written.outlet.insert([b"y"])
    written.outlet.pass_on(b"a2", mid_frame=True)
    assert written == [b"a1", b"a2"]
    written.outlet.pass_on(b"a3", mid_frame=False)
    assert written == [b"a1", b"a2", b"a3", b"x", b"y"]
    assert not written.outlet.waiting


def test_what_is_inserted_while_the_waiting_ones_are_written_keeps_its_place() -> None:
    written: list[bytes] = []

    def write(part: bytes | bytearray | memoryview) -> None:
        written.append(bytes(part))
        if part == b"x":
            outlet.insert([b"late"])

    outlet = Outlet(write)
    outlet.pass_on(b"a1", mid_frame=True)
    outlet.insert([b"x"])
    outlet.insert([b"y"])
    outlet.pass_on(b"a2", mid_frame=False)
    assert written == [b"a1", b"a2", b"x", b"late", b"y"]
