"""The examples that hypothesis tries: the same ones in each run of the tests, anywhere; others in `make fuzz`.

Of those that take long, `make fuzz` tries five times as many, and a run of the sources of what is compiled a quarter:
what a source does wrong its machine code does, too, on which all are tried.
"""

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests import interpreted

# Processes share the machine: how long one example takes says nothing.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", _UNTIMED, derandomize=True, database=None)
_FAILED = DirectoryBasedExampleDatabase(".hypothesis/examples")
settings.register_profile("fuzz", _UNTIMED, derandomize=False, database=_FAILED, max_examples=1000)
settings.load_profile("same")


def examples(count: int) -> int:
    """The number of examples of a long property or machine: `count`, five times as many, or a quarter."""
    if settings.get_current_profile_name() == "fuzz":
        return 5 * count
    return -(-count // 4) if interpreted.is_at_work() else count
