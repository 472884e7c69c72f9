"""Every path of Pulsar's admin REST that is served here."""

from aiohttp import web

from proxy.admin.pulsar.dynamic_config import DynamicConfigRest
from proxy.admin.pulsar.rates import RESOURCES, RateRest, refuse_replication
from proxy.admin.pulsar.resource_groups import ResourceGroupRest
from proxy.policies.service import PolicyService


def pulsar_routes(service: PolicyService) -> list[web.RouteDef]:
    """The routes, for aiohttp; those of replication come before what they would look like."""
    rates = [route for resource in RESOURCES for route in RateRest(service, resource).routes()]
    return [*refuse_replication(), *rates, *ResourceGroupRest(service).routes(), *DynamicConfigRest(service).routes()]
