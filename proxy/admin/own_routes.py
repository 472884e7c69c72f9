"""Every path of Sluice's own REST about policies."""

from aiohttp import web

from proxy.admin.audit_rest import AuditRest
from proxy.admin.explain_rest import ExplainRest
from proxy.admin.limits_rest import LimitsRest
from proxy.admin.policies_rest import PoliciesRest
from proxy.policies.book import Book


def own_routes(book: Book) -> list[web.RouteDef]:
    """The routes, for aiohttp."""
    return [
        *ExplainRest(book).routes(),
        *LimitsRest(book).routes(),
        *PoliciesRest(book).routes(),
        *AuditRest(book.store).routes(),
    ]
