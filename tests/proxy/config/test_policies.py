from pathlib import Path

import pytest
from pydantic import ValidationError

from proxy.config.model import Config


def test_what_is_set_at_run_time_is_kept_nowhere_unless_a_file_is_named() -> None:
    assert Config().policies.store is None
    assert Config.model_validate({"policies": {"store": "p.db"}}).policies.store == Path("p.db")


def test_the_audit_log_remembers_something() -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        Config.model_validate({"policies": {"audit_changes": 0}})
