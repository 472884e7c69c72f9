from protocol.scanner import TAIL, Piece, Tally, clear, tally_of


def test_a_tally_sums_and_keeps_the_largest_of_each():
    tally = Tally(7)
    tally.add(1, 3, 100)
    tally.add(1, 1, 900)
    assert (tally.owner, tally.entries, tally.messages, tally.size) == (7, 2, 4, 1000)
    assert (tally.largest_messages, tally.largest_size) == (3, 900)


def test_entries_of_a_row_are_counted_as_one_by_one() -> None:
    one_by_one, at_once = Tally(7), Tally(7)
    for _ in range(5):
        one_by_one.add(1, 3, 100)
    at_once.add(5, 3, 100)
    assert (at_once.entries, at_once.messages, at_once.size) == (
        one_by_one.entries,
        one_by_one.messages,
        one_by_one.size,
    )
    assert (at_once.largest_messages, at_once.largest_size) == (one_by_one.largest_messages, one_by_one.largest_size)


def test_a_cleared_tally_keeps_only_its_owner():
    tally = Tally(7)
    tally.add(1, 3, 100)
    tally.clear()
    assert tally.owner == 7
    assert (tally.entries, tally.messages, tally.size, tally.largest_messages, tally.largest_size) == (0, 0, 0, 0, 0)


def test_each_owner_has_one_tally_that_the_next_chunk_reuses() -> None:
    tallies: list[Tally] = []
    known: dict[int, Tally] = {}
    for owner in (1, 2, 1):
        tally_of(owner, tallies, known).add(1, 1, 10)
    assert [(tally.owner, tally.entries) for tally in tallies] == [(1, 2), (2, 1)]
    first = tallies[0]
    clear(tallies, known, 10)
    assert tallies == []
    assert tally_of(1, tallies, known) is first
    assert first.entries == 0


def test_owners_are_forgotten_when_they_become_too_many() -> None:
    tallies: list[Tally] = []
    known: dict[int, Tally] = {}
    for owner in range(11):
        tally_of(owner, tallies, known).add(1, 1, 10)
    clear(tallies, known, 10)
    assert not known


def test_a_new_piece_has_no_payload():
    piece = Piece(TAIL, 10, 20, whole=True)
    assert (piece.start, piece.stop, piece.whole) == (10, 20, True)
    assert (piece.owner, piece.messages, piece.size, piece.command_end) == (-1, 0, 0, 0)
