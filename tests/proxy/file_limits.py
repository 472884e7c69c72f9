"""The limits of a configuration, alone in force."""

from limiter.policies import Policies
from proxy.config_limits import Limits, file_policies
from proxy.policies.layers import Layer, Layers


def policies_of(limits: Limits, subscribe: tuple[int, int] | None = None) -> Policies:
    """What a limiter looks at where nothing was set at run time."""
    policies, file = Policies(), file_policies(limits, subscribe)
    Layers(policies).replace(Layer.FILE, file.values)
    policies.groups_of_tenants.update(file.groups_of_tenants)
    policies.groups_of_namespaces.update(file.groups_of_namespaces)
    return policies
