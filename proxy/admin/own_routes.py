"""Every path of Sluice's own REST about policies."""

from aiohttp import web

from proxy.admin.audit_rest import AuditRest
from proxy.admin.explain_rest import ExplainRest
from proxy.admin.limits_rest import LimitsRest
from proxy.admin.policies_rest import PoliciesRest
from proxy.policies.service import PolicyService


def own_routes(service: PolicyService) -> list[web.RouteDef]:
    """The routes, for aiohttp."""
    return [
        *ExplainRest(service).routes(),
        *LimitsRest(service).routes(),
        *PoliciesRest(service).routes(),
        *AuditRest(service.store).routes(),
    ]
