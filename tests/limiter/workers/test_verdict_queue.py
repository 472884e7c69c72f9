from limiter.limiter import Limiter, Stream, StreamName
from limiter.workers.messages import Answer, Batch, Granted, Lent, Message, Rejected, Released, Wired
from limiter.workers.quota_server import RemoteStream, VerdictQueue


class Told:
    """Two streams' verdicts."""

    def __init__(self) -> None:
        self.times_woken = 0
        numbers: dict[Limiter, int] = {}
        self.verdicts = VerdictQueue(numbers, self._woken)
        names = (StreamName("publish", "t", "n", "x", number) for number in (1, 2))
        self.one, self.other = (
            RemoteStream(name.stream_id, Stream(name, (), lambda _stream, _entry: None)) for name in names
        )

    def _woken(self) -> None:
        self.times_woken += 1

    def take(self, batch: Message | None = None) -> list[Message]:
        return self.verdicts.take(batch)


def test_what_goes_of_one_stream_is_told_once() -> None:
    told = Told()
    for remote in (told.one, told.other, told.one):
        told.verdicts.released(remote)
    assert told.take(Batch(4)) == [Released(1, 2), Released(2, 1), Batch(4)]
    assert told.take() == []
    assert told.times_woken == 3


def test_what_is_refused_has_its_place_among_what_goes() -> None:
    told = Told()
    told.verdicts.released(told.one)
    told.verdicts.rejected(told.one, "too much")
    told.verdicts.rejected(told.one, "too much")
    told.verdicts.rejected(told.one, "too large")
    told.verdicts.released(told.one)
    expected = [Released(1, 1), Rejected(1, 3, "too much"), Rejected(1, 4, "too large"), Released(1, 5)]
    assert told.take() == expected
    told.verdicts.rejected(told.one, "too much")
    assert told.take() == [Rejected(1, 6, "too much")]


def test_what_was_decided_before_a_stream_had_other_limits_is_told_before_them() -> None:
    told = Told()
    told.verdicts.say(Lent(3, 1, None))
    told.verdicts.released(told.one)
    told.verdicts.wired(told.one)
    told.verdicts.released(told.one)
    wired = Wired(1, [], by_queue=False, is_metered=False)
    assert told.take() == [Lent(3, 1, None), Released(1, 1), wired, Released(1, 2)]


def test_limits_stand_before_what_is_decided_by_them_and_answers_behind_all() -> None:
    told = Told()
    told.verdicts.answered(7)
    told.verdicts.granted(2, 5)
    told.verdicts.granted(2, 6)
    told.verdicts.wired(told.other)
    told.verdicts.say(Lent(3, 1, None))
    wired = Wired(2, [], by_queue=False, is_metered=False)
    assert told.take() == [wired, Lent(3, 1, None), Granted(2, 11), Answer(7)]


def test_of_a_stream_that_is_over_nothing_more_is_told() -> None:
    told = Told()
    told.verdicts.wired(told.one)
    told.verdicts.released(told.one)
    told.verdicts.granted(1, 5)
    told.verdicts.forget(told.one)
    assert told.take() == []
