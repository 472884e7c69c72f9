"""A worker's scheduler when a client leaves: what is only on its way to be judged is not lost."""

from limiter.workers.messages import Answer, Discarded, Question, QueuedEntry, Released, Withdrawn
from limiter.workers.worker_leases import WINDOW
from tests.limiter.workers.test_quota_client import Rig, kinds


def test_who_leaves_waits_until_it_is_decided_of_all_that_did_not_have_to_wait() -> None:
    rig, over = Rig(), list[str]()
    rig.quota_client.when_decided([rig.stream], lambda: over.append("nothing held"))
    assert over == ["nothing held"]
    held = [rig.hold() for _ in range(WINDOW + 2)]
    rig.quota_client.when_decided([rig.stream], lambda: over.append("decided"))
    *queued, question = rig.quota_client.take()
    assert (len(queued), question) == (WINDOW, Question(1))
    rig.quota_client.obey(Released(1, WINDOW), 0)
    rig.quota_client.obey(Answer(1), 0)
    assert rig.quota_client.take() == [QueuedEntry(1, 1, 10, 0), QueuedEntry(1, 1, 10, 0), Question(2)]
    rig.quota_client.obey(Released(1, WINDOW + 2), 0)
    assert over == ["nothing held"]
    rig.quota_client.obey(Answer(2), 0)
    assert over == ["nothing held", "decided"]
    assert rig.left == held


def test_of_what_has_to_wait_the_rest_is_withdrawn_and_what_was_let_go_meanwhile_goes() -> None:
    rig, over = Rig(), list[str]()
    held = [rig.hold() for _ in range(WINDOW + 2)]
    rig.quota_client.when_decided([rig.stream], lambda: over.append("decided"))
    rig.quota_client.take()
    rig.quota_client.obey(Released(1, WINDOW - 3), 0)
    rig.quota_client.obey(Answer(1), 0)
    *queued, withdrawn, question = rig.quota_client.take()
    assert (kinds(queued), withdrawn, question) == ([QueuedEntry, QueuedEntry], Withdrawn(1, 0), Question(2))
    rig.quota_client.obey(Released(1, WINDOW - 1), 0)
    late = rig.hold()
    assert rig.quota_client.take() == []
    assert over == []
    rig.quota_client.obey(Answer(2), 0)
    assert over == ["decided"]
    assert rig.left == held[: WINDOW - 1]
    assert rig.quota_client.drop_held(rig.stream, 0) == [*held[WINDOW - 1 :], late]
    assert rig.quota_client.take() == [Withdrawn(1, 0), Discarded(1, 1, 1, 10)]


def test_a_stream_that_ended_meanwhile_is_not_waited_for() -> None:
    rig, over = Rig(), list[str]()
    rig.hold()
    rig.quota_client.when_decided([rig.stream], lambda: over.append("decided"))
    rig.quota_client.close(rig.stream, 0)
    rig.quota_client.obey(Answer(1), 0)
    assert over == ["decided"]
