from limiter.workers.letters import Letter, Question
from limiter.workers.tickets import Questions


def test_each_answer_is_its_own_questions() -> None:
    told, heard = list[Letter](), list[str]()
    questions = Questions(told.append)
    questions.ask(lambda: heard.append("first"))
    questions.ask(lambda: heard.append("second"))
    assert told == [Question(1), Question(2)]
    questions.answered(2)
    questions.answered(1)
    assert heard == ["second", "first"]


def test_who_is_answered_may_ask_again() -> None:
    told = list[Letter]()
    questions = Questions(told.append)
    questions.ask(lambda: questions.ask(told.clear))
    questions.answered(1)
    assert told == [Question(1), Question(2)]
    questions.answered(2)
    assert told == []
