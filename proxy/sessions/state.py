"""Where a session stands; from where to where it goes, says `session.py`."""

from enum import Enum


class State(Enum):
    """Where a session stands."""

    GREETING = "greeting"
    DIALLING = "dialling"
    TURNED_AWAY = "turned away"
    RELAYING = "relaying"
    ENDING = "ending"
