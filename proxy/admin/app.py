"""The web application of the admin address: metrics, health, and all routes of its REST."""

from dataclasses import dataclass
from typing import Any, TypedDict

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.forwarder import Forwarder
from proxy.admin.forwarding.paths import PREFIXES
from proxy.admin.handlers import BODIES, JSON, TEXT, BodyReader, Either, asked, described, explaining, sent
from proxy.admin.in_force import LimitsInForce, ShownDegraded
from proxy.admin.limit_metrics import TooManyLimitsError
from proxy.admin.listener import RequestLimits
from proxy.admin.metrics import MetricsPage
from proxy.admin.openapi import OpenApiRest
from proxy.admin.places import Places
from proxy.admin.process_header import ProcessHeader
from proxy.admin.readiness import Readiness
from proxy.admin.refusals import refusal
from proxy.admin.routes.blocks import BlockRest
from proxy.admin.routes.console import ConsoleRest
from proxy.admin.routes.doctor import DoctorRest
from proxy.admin.routes.drain import DrainRest
from proxy.admin.routes.kicks import KickRest
from proxy.admin.routes.limiters import LimiterRest
from proxy.admin.routes.limits import ExplainRest, LimitsRest
from proxy.admin.routes.policies import AuditRest, BackupRest, PoliciesRest
from proxy.admin.routes.pulsar import pulsar_routes
from proxy.admin.routes.sharing import FleetRest
from proxy.admin.routes.status import Counts, Run, StatusRest
from proxy.admin.routes.streams import StreamRest
from proxy.admin.shared_work import TooManyWaitError
from proxy.checkup import Checkup
from proxy.degraded import DegradedStates
from proxy.drain import DrainService
from proxy.fleet.policy_topic import PolicyTopic
from proxy.fleet.service import FleetService
from proxy.observe.limit_history import LimitHistory
from proxy.policies.kept_blocks import BlockDesk
from proxy.policies.service import PolicyService
from proxy.reload import Reloader
from proxy.session.engine import Engine
from proxy.slices import Slices, Work

_LIMITS = Either(
    name="limits",
    meaning="chosen: metrics of the limits that metrics_limits names and of the fullest; all: of up to 5,000 limits",
    words=("chosen", "all"),
)
_VERBOSE = Either(name="verbose", meaning="the answer as JSON, with the degraded states", words=("", "1"))


class ShownReadiness(TypedDict):
    """Whether the proxy is ready, why not, and the states in which not all of its configuration holds."""

    ready: bool
    problem: str | None
    degraded: list[ShownDegraded]


def own_routes(service: PolicyService, desk: BlockDesk, in_force: LimitsInForce) -> list[web.RouteDef]:
    """Return the routes under `/sluice/` about policies, for aiohttp."""
    return [
        *ExplainRest(service, in_force).routes(),
        *LimitsRest(service, in_force).routes(),
        *PoliciesRest(service, desk).routes(),
        *AuditRest(service.store).routes(),
        *BackupRest(service.store).routes(),
    ]


_NOT_SERVED = frozenset({404, 405})
_ELSEWHERE = "; Sluice serves limits only: ask the broker's own admin address, or set admin_forward.url"


@dataclass(frozen=True, slots=True)
class Guards:
    """The checks that every request has to pass before a handler sees it.

    Args:
        bounds: Bounds its rate, time and size.
        authenticator: Authenticates its sender.
        places: Has a place for it.
    """

    bounds: RequestLimits
    authenticator: Authenticator
    places: Places


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the proxy that the REST can change.

    Args:
        service: The policies.
        blocks: The blocks.
        run: The run of the proxy.
        reloader: The configuration.
        history: The last hour of limits in use.
        forwarder: Passes on to the broker's admin what Sluice does not serve, if configured.
        fleet: This proxy's part in its fleet, if it has one.
        policy_topic: The topic by which the fleet's policies are changed, if they are.
        states: The degraded states.
        drain: Drains the process.
        checkup: Examines the process.
    """

    service: PolicyService
    blocks: BlockDesk
    run: Run
    reloader: Reloader
    history: LimitHistory
    forwarder: Forwarder | None = None
    fleet: FleetService | None = None
    policy_topic: PolicyTopic | None = None
    states: DegradedStates | None = None
    drain: DrainService | None = None
    checkup: Checkup | None = None


def admin_app(
    engine: Engine,
    metrics: MetricsPage,
    readiness: Readiness,
    parts: Parts,
    guards: Guards,
) -> web.Application:
    """Return the application of the admin address; the caller gives it an address."""
    has_topic = parts.policy_topic is not None
    in_force = LimitsInForce(parts.fleet, parts.states, parts.drain, readiness.look, has_policy_topic=has_topic)
    bounds, authenticator, forwarder = guards.bounds, guards.authenticator, parts.forwarder
    passing_on = [forwarder.unless_served] if forwarder else []
    process = ProcessHeader(parts.run.proxy_id, parts.run.boot_id)
    app = web.Application(
        middlewares=[
            _errors_as_reasons,
            _in_turn(engine.slices),
            bounds.rate,
            authenticator.check,
            process.check,
            guards.places.take,
            *passing_on,
            bounds.body,
        ],
        client_max_size=bounds.most_bytes,
    )
    app[BODIES] = BodyReader(engine.slices)
    app.on_response_prepare.append(process.name)
    if forwarder:
        app.cleanup_ctx.append(forwarder.running)
    app.add_routes(
        [
            *_watching(metrics, readiness),
            _readyz(readiness, in_force),
            *ConsoleRest(parts.run.proxy_id, parts.run.version).routes(),
            *StreamRest(engine, in_force).routes(),
            *LimiterRest(engine, parts.history, parts.service).routes(),
            *pulsar_routes(parts.service),
            *own_routes(parts.service, parts.blocks, in_force),
            *OpenApiRest(parts.run.version).routes(),
            *StatusRest(parts.run, parts.reloader, lambda: _counts(engine)).routes(),
            *DrainRest(parts.drain).routes(),
            *DoctorRest(parts.checkup).routes(),
            *KickRest(engine, parts.service).routes(),
            *FleetRest(parts.fleet, engine.slices, parts.policy_topic).routes(),
            *BlockRest(parts.blocks, engine, lasts=parts.run.policies_file is not None).routes(),
        ]
    )
    return app


def _readyz(readiness: Readiness, in_force: LimitsInForce) -> web.RouteDef:
    contents = {**TEXT, JSON: ShownReadiness}

    @described({200: contents, 503: contents}, query=(_VERBOSE,))
    async def show_readiness(request: web.Request) -> web.Response:
        """Return 200 if the proxy accepts clients and a broker has answered since the start; else 503 with the reason.

        `?verbose` adds the degraded states, such as brokers that do not answer now. Each state that
        admin_access.not_ready_when names is a 503.
        """
        query = asked(request, (_VERBOSE,))
        _VERBOSE.read(query)
        await readiness.fresh()
        problem, degraded = readiness.problem(), in_force.degraded()
        status = 200 if problem is None else 503
        if _VERBOSE.name in query:
            answer: ShownReadiness = {"ready": problem is None, "problem": problem, "degraded": degraded}
            return web.json_response(answer, status=status)
        return web.Response(text="ready\n" if problem is None else problem + "\n", status=status)

    return web.get("/readyz", explaining(show_readiness))


def _counts(engine: Engine) -> Counts:
    return {"connections": sum(engine.counters.connections_open.values()), "limiters": len(engine.registry.limiters)}


def metrics_app(
    engine: Engine, metrics: MetricsPage, readiness: Readiness, parts: Parts, bounds: RequestLimits
) -> web.Application:
    """Return the application of the address for metrics and probes alone: open to all callers, and read-only."""
    middlewares = [_errors_as_reasons, _in_turn(engine.slices), bounds.rate, bounds.body]
    app = web.Application(middlewares=middlewares, client_max_size=bounds.most_bytes)
    in_force = LimitsInForce(parts.fleet, parts.states, parts.drain, readiness.look)
    app.add_routes([*_watching(metrics, readiness, is_open=True), _readyz(readiness, in_force)])
    return app


_OF_REQUEST = 6
"""Units of work that a request costs: its head is parsed, its caller found, its answer sent."""


def _in_turn(slices: Slices) -> Any:
    """Return a middleware that lets few requests begin in one turn of the loop, of whichever connections."""

    @web.middleware
    async def wait_for_turn(request: web.Request, handler: Handler) -> web.StreamResponse:
        await slices.done(Work.REQUESTS, iter(range(_OF_REQUEST)))
        return await slices.measured(Work.REQUESTS, handler(request))

    return wait_for_turn


def _watching(metrics: MetricsPage, readiness: Readiness, *, is_open: bool = False) -> list[web.RouteDef]:
    """Return the routes of metrics and life; `is_open`: at an address without tokens, which shows not all limits."""

    @described({200: TEXT}, query=(_LIMITS,), refuses=(403, 409, 503))
    async def show_metrics(request: web.Request) -> web.StreamResponse:
        """Counters in Prometheus' text format."""
        all_limits = _LIMITS.read(asked(request, (_LIMITS,))) == "all"
        if all_limits and is_open:
            return refusal(403, "limits=all is answered at the admin address: this one is open to all callers")
        await readiness.fresh()
        try:
            text = await metrics.text(all_limits=all_limits, has_place=not is_open)
        except TooManyWaitError:
            return refusal(503, "too many wait for the metrics already: try again")
        except TooManyLimitsError as error:
            return refusal(409, str(error))
        return await sent(request, text, {"Content-Type": CONTENT_TYPE_LATEST})

    @described({200: TEXT})
    async def show_health(_request: web.Request) -> web.Response:
        """Return 200: the process answers."""
        return web.Response(text="alive\n")

    return [web.get("/metrics", explaining(show_metrics)), web.get("/healthz", show_health)]


@web.middleware
async def _errors_as_reasons(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return errors in Pulsar's own form, and never a traceback."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        remedy = _ELSEWHERE if error.status in _NOT_SERVED and request.path.startswith(PREFIXES) else ""
        answer = refusal(error.status, f"{request.method} {request.path}: {error.reason}{remedy}")
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except (web.RequestPayloadError, ConnectionError):
        return refusal(400, f"{request.method} {request.path}: the body breaks off or is not as its headers say")
    except Exception as error:  # noqa: BLE001 - one bad request must cost no other caller anything
        structlog.get_logger().exception("admin request failed", path=request.path, error=repr(error))
        return refusal(500, "internal error; the proxy's log says more")
