from limiter.workers.messages import Message, Question
from limiter.workers.quota_client import Questions


def test_each_answer_is_its_own_questions() -> None:
    told, heard = list[Message](), list[str]()
    questions = Questions(told.append)
    questions.ask(lambda: heard.append("first"))
    questions.ask(lambda: heard.append("second"))
    assert told == [Question(1), Question(2)]
    questions.answered(2)
    questions.answered(1)
    assert heard == ["second", "first"]


def test_who_is_answered_may_ask_again() -> None:
    told = list[Message]()
    questions = Questions(told.append)
    questions.ask(lambda: questions.ask(told.clear))
    questions.answered(1)
    assert told == [Question(1), Question(2)]
    questions.answered(2)
    assert told == []
