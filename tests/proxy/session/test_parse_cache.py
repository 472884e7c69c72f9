"""What was read lately, by the very bytes that said it."""

from proxy.session.handshake import LONGEST_KNOWN, MOST_KNOWN, ParseCache


class Reader:
    """Counts what it reads; what begins with a dash says nothing."""

    def __init__(self) -> None:
        self.read: list[bytes] = []

    def __call__(self, content: bytes) -> str | None:
        self.read.append(content)
        return None if content.startswith(b"-") else f"read {len(content)}"


def test_what_is_said_again_is_not_read_again() -> None:
    reader = Reader()
    known = ParseCache(reader)
    assert known.find(b"abc") is None
    first = known.read(b"abc")
    assert first == "read 3"
    assert known.read(bytes(bytearray(b"abc"))) is first
    assert known.find(b"abc") is first
    assert known.find(bytearray(b"abc")) is first
    assert reader.read == [b"abc"]


def test_what_is_said_often_stays_whoever_else_comes() -> None:
    known = ParseCache(Reader())
    often = known.read(b"often")
    for number in range(3 * MOST_KNOWN):
        known.read(number.to_bytes(2))
        assert known.find(b"often") is often


def test_each_says_its_own_though_the_last_is_at_hand() -> None:
    known = ParseCache(Reader())
    for content in (b"a", b"bb", b"a", b"a", b"bb", b"", b"bb"):
        assert known.read(content) == f"read {len(content)}"
    known.read(b"a")
    for number in range(MOST_KNOWN):
        known.read(number.to_bytes(2))
    assert known.find(b"a") is None


def test_what_is_too_long_is_not_even_copied() -> None:
    class Long(bytearray):
        def __len__(self) -> int:
            return LONGEST_KNOWN + 1

        def __bytes__(self) -> bytes:
            raise AssertionError("a client that says a little more again and again must not cost a copy of all")

    assert ParseCache(Reader()).find(Long()) is None


def test_it_remembers_so_many_and_no_long_ones_nor_what_says_nothing() -> None:
    reader = Reader()
    known = ParseCache(reader)
    contents = [number.to_bytes(2) for number in range(MOST_KNOWN + 1)]
    for each in (*contents, b"x" * LONGEST_KNOWN, b"x" * (LONGEST_KNOWN + 1), b"-"):
        known.read(each)
    assert [known.find(each) is None for each in contents] == [True, True] + [False] * (MOST_KNOWN - 1)
    assert known.find(b"x" * LONGEST_KNOWN) is not None
    assert known.find(b"x" * (LONGEST_KNOWN + 1)) is None
    reader.read.clear()
    assert known.read(b"-") is None
    assert known.read(b"x" * (LONGEST_KNOWN + 1)) == f"read {LONGEST_KNOWN + 1}"
    assert len(reader.read) == 2
