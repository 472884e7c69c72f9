"""A policy set as a configuration file."""

from proxy.config.yaml_text import yaml_text
from proxy.policies.policy_set import PolicySet, written

_HEADING = """\
Made by `sluice export`: the limits that were in force, each with the layer that it was written in.
Limits only: listen, broker and admin are not in it."""


def as_yaml(policies: PolicySet) -> str:
    """What `sluice check` accepts, and what makes the same hold as a file of its own."""
    values = list(written(policies))
    nothing = "" if any(taken.path[0] == "limits" for taken in values) else "limits: {}\n"
    return yaml_text(_HEADING, values) + nothing
