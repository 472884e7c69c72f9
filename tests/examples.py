"""The examples that hypothesis tries: the same ones in each run of the tests, anywhere; others in `make fuzz`.

`make test` tries all of them on what is compiled. `make check` and the run with interpreted cores try a fifth of those
that take long (`--hypothesis-profile=few`).
"""

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# Processes share the machine: how long one example takes says nothing.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
FEW = "few"
settings.register_profile("same", _UNTIMED, derandomize=True, database=None)
settings.register_profile(FEW, settings.get_profile("same"))
_FAILED = DirectoryBasedExampleDatabase(".hypothesis/examples")
settings.register_profile("fuzz", _UNTIMED, derandomize=False, database=_FAILED, max_examples=1000)
settings.load_profile("same")


def examples(count: int) -> int:
    """Of a property's or a machine's many examples: all of them, or a fifth of them in runs that try few."""
    return count // 5 if settings.get_current_profile_name() == FEW else count
