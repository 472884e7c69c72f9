"""The limits of a configuration, alone in force."""

from limiter.policies import Policies
from proxy.config.limits import Limits
from proxy.policies.layers import file_policies


def policies_of(limits: Limits, subscribe: tuple[int, int] | None = None) -> Policies:
    """What a limiter looks at where nothing was set at run time."""
    policies, file = Policies(), file_policies(limits, subscribe)
    for place, value in file.values.items():
        policies.put(*place, value)
    policies.groups_of_tenants.update(file.groups_of_tenants)
    policies.groups_of_namespaces.update(file.groups_of_namespaces)
    return policies
