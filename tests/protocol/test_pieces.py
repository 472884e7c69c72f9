from protocol.pieces import TAIL, Piece, Tally


def test_a_tally_sums_and_keeps_the_largest_of_each():
    tally = Tally(7)
    tally.add(3, 100)
    tally.add(1, 900)
    assert (tally.owner, tally.entries, tally.messages, tally.size) == (7, 2, 4, 1000)
    assert (tally.largest_messages, tally.largest_size) == (3, 900)


def test_a_cleared_tally_keeps_only_its_owner():
    tally = Tally(7)
    tally.add(3, 100)
    tally.clear()
    assert tally.owner == 7
    assert (tally.entries, tally.messages, tally.size, tally.largest_messages, tally.largest_size) == (0, 0, 0, 0, 0)


def test_a_piece_says_nothing_of_payload_until_told():
    piece = Piece(TAIL, 10, 20, whole=True)
    assert (piece.start, piece.stop, piece.whole) == (10, 20, True)
    assert (piece.owner, piece.messages, piece.size, piece.command_end) == (-1, 0, 0, 0)
