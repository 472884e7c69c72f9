"""Whom one worker lets in, its supervisor says: there is one `Admission` for all, and it counts as in one process."""

from collections.abc import Callable

from limiter.admission import Slot
from limiter.workers.letters import Letter
from protocol.topic_name import parse_topic
from proxy.admission_control import Admission, NotAdmittedError
from proxy.workers.letters import Accepted, Admitted, Enter, Left, NotAdmitted


class Doorkeeper:
    """Answers one worker, and keeps the places that its clients and streams have; as many as there are of these.

    Args:
        admission: The bounds of all.
        soon: Called when there is something to tell the worker.
    """

    def __init__(self, admission: Admission, soon: Callable[[], None]) -> None:
        self._admission = admission
        self._soon = soon
        self._places: dict[int, tuple[Slot, ...]] = {}
        self._answers: list[Letter] = []

    def __len__(self) -> int:
        return len(self._places)

    def asked(self, letter: Enter) -> None:
        """Somebody wants to come in.

        Raises:
            ValueError: If the topic is none.
        """
        topic = parse_topic(letter.topic) if letter.topic else None
        try:
            places = self._admission.admit(letter.asked, letter.address, letter.source, topic)
        except NotAdmittedError as error:
            self._answer(NotAdmitted(letter.number, error.what, str(error), error.is_passing))
            return
        if places:
            self._places[letter.number] = places
        self._answer(Admitted(letter.number, bool(places)))

    def accepted(self, letter: Accepted) -> None:
        """The broker has let him in."""
        for place in self._places.get(letter.number, ()):
            place.accepted()

    def left(self, letter: Left) -> None:
        """He is gone; one who was refused has nothing to give back."""
        for place in self._places.pop(letter.number, ()):
            place.give_back()

    def lose(self) -> None:
        """The worker has ended, and so have all that it had let in."""
        for number in list(self._places):
            self.left(Left(number))

    def take(self) -> list[Letter]:
        """The answers since the last time."""
        answers, self._answers = self._answers, []
        return answers

    def _answer(self, letter: Letter) -> None:
        self._answers.append(letter)
        self._soon()
