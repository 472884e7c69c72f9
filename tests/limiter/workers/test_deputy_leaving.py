"""A worker's scheduler when a client leaves: what is only on its way to be judged is not lost."""

from limiter.workers.messages import Answer, Discarded, Question, QueuedEntry, Released, Withdrawn
from limiter.workers.worker_leases import WINDOW
from tests.limiter.workers.test_deputy import Rig, kinds


def test_who_leaves_waits_until_it_is_decided_of_all_that_did_not_have_to_wait() -> None:
    rig, over = Rig(), list[str]()
    rig.deputy.when_decided([rig.stream], lambda: over.append("nothing held"))
    assert over == ["nothing held"]
    held = [rig.hold() for _ in range(WINDOW + 2)]
    rig.deputy.when_decided([rig.stream], lambda: over.append("decided"))
    *tickets, question = rig.deputy.take()
    assert (len(tickets), question) == (WINDOW, Question(1))
    rig.deputy.obey(Released(1, WINDOW), 0)
    rig.deputy.obey(Answer(1), 0)
    assert rig.deputy.take() == [QueuedEntry(1, 1, 10, 0), QueuedEntry(1, 1, 10, 0), Question(2)]
    rig.deputy.obey(Released(1, WINDOW + 2), 0)
    assert over == ["nothing held"]
    rig.deputy.obey(Answer(2), 0)
    assert over == ["nothing held", "decided"]
    assert rig.left == held


def test_of_what_has_to_wait_the_rest_is_withdrawn_and_what_was_let_go_meanwhile_goes() -> None:
    rig, over = Rig(), list[str]()
    held = [rig.hold() for _ in range(WINDOW + 2)]
    rig.deputy.when_decided([rig.stream], lambda: over.append("decided"))
    rig.deputy.take()
    rig.deputy.obey(Released(1, WINDOW - 3), 0)
    rig.deputy.obey(Answer(1), 0)
    *tickets, withdrawn, question = rig.deputy.take()
    assert (kinds(tickets), withdrawn, question) == ([QueuedEntry, QueuedEntry], Withdrawn(1, 0), Question(2))
    rig.deputy.obey(Released(1, WINDOW - 1), 0)
    late = rig.hold()
    assert rig.deputy.take() == []
    assert over == []
    rig.deputy.obey(Answer(2), 0)
    assert over == ["decided"]
    assert rig.left == held[: WINDOW - 1]
    assert rig.deputy.drop_held(rig.stream, 0) == [*held[WINDOW - 1 :], late]
    assert rig.deputy.take() == [Withdrawn(1, 0), Discarded(1, 1, 1, 10)]


def test_a_stream_that_ended_meanwhile_is_not_waited_for() -> None:
    rig, over = Rig(), list[str]()
    rig.hold()
    rig.deputy.when_decided([rig.stream], lambda: over.append("decided"))
    rig.deputy.close(rig.stream, 0)
    rig.deputy.obey(Answer(1), 0)
    assert over == ["decided"]
