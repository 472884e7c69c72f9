"""Make `docs/metrics.md` from the metric families of an idle proxy.

python -m proxy.admin.metrics_reference > docs/metrics.md
"""

import sys
import textwrap

from prometheus_client.core import Metric

from limiter.policies import Policies
from proxy.admin.metrics import SluiceCollector
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.log_lines import Writer
from proxy.observe.totals import NamespaceTotals
from proxy.session.engine import Engine

_WIDTH = 100
_HEAD = """\
# Metrics

Made from the code by `python -m proxy.admin.metrics_reference > docs/metrics.md`. `/metrics` on the
admin address serves them, and so does the address of `metrics:`, without token and TLS
([operating.md](operating.md)).

- **Labels are bounded.** `tenant` and `namespace` are those of the first 1,000 namespaces; all
  others are counted together as `_others`; metrics by tenant alone have the first 200. Those of
  [single limits](#single-limits) are of few. A label's fixed words are listed below its metric;
  `level` is a level of [limits.md](limits.md), `direction` is `publish` or `dispatch`.
- **Counters** only grow, until the process ends. **Gauges** go up and down, and no scrape changes
  them. Series exist before their first event: for each word below, and for the tenants,
  namespaces and limits that the configuration names, as far as the bounds above have room.
- **Several processes** have an address each, with the numbers of that process
  ([processes.md](processes.md)).

## Single limits

`sluice_limit_…` have the rate, burst and use of single limits:

- **The fullest**: 100 of wide levels (proxy, tenant, namespace, resource group, exempt) and 100 of
  topics and subscriptions. A limit that is shown stays for 15 minutes.
- **Those that `metrics_limits` names**, however full they are; a reload takes a new list. Each
  entry is a level and a name or pattern, in which `*` is any text without a slash:

  ```yaml
  metrics_limits:
    - tenant acme
    - namespace acme/*
    - topic persistent://acme/shop/orders
    - resource_group *
    - exempt *
    - proxy
  ```

  Up to 500 limits have metrics for that; a metric below counts those that are left out.
- **All**, up to 5,000: `GET /metrics?limits=all`, for a look, or a scrape of its own in longer
  intervals. Where more are at work, the answer is 409.
- **Not yet in use**: limits of the configuration without a stream so far have the places that the
  ones with streams leave, those that `metrics_limits` writes out first. A limit that is shared,
  by a fleet or by several processes, has no rate and no burst before its first use.

Limits of producers, roles and addresses are named after clients, and are in `/sluice/limiters`
alone; so are names of more than 300 characters, or with control characters.

## OpenTelemetry

`otlp.url: http://collector:4318` has Sluice post the same metrics to a collector, by OTLP over
HTTP, every `otlp.interval` (60 s). Names are those below without `_total`; counters and histograms
are cumulative since the start of the process, so the next export makes up for one that failed. The
resource has `service.name` (`sluice`), `service.instance.id` (`proxy_id`) and `service.version`.
`sluice_otlp_exports_total` counts exports; the log has a line when they begin to fail, and when
they go on. An export of which the collector rejects data points is `partial`: the log has its
message, once until all are taken again. The collector has no copy of those points.
"""
_SECTIONS = (
    ("Messages and limits", ("messages_", "bytes_", "permits_", "throttled_", "would_", "limit", "batches_")),
    ("Held messages and memory", ("held_", "hold_budget", "unsent_", "client_memory")),
    ("Connections", ("connections", "frame_errors", "proxy_headers", "tls_failures", "brokers_")),
    (
        "Connections",
        (
            "broker_up",
            "broker_round",
            "streams",
            "tenant_connections",
            "reading_paused",
            "pauses",
            "resumes",
            "keep_alives",
        ),
    ),
    ("Refused and blocked", ("blocked", "blocks", "admission_", "admin_", "lookups_", "fields_", "answers_")),
    ("Refused and blocked", ("broker_urls_", "address_", "entries_")),
    ("The process", ("",)),
)
"""Headings, and the beginnings of the names below them; the first that fits counts."""
_BUILD = "sluice_build_info"
"""Its labels are those of one build."""
_BROKER = "broker"
"""A label whose words are those of one configuration."""
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def families() -> list[Metric]:
    """List the metric families of a proxy that has just started."""
    config = Config.model_validate({"broker": "pulsar://127.0.0.1:6650"})
    engine = Engine(config, Policies(), Counters())
    access = AccessLog(Writer("proxy", "boot"), None)
    return list(SluiceCollector(engine, NamespaceTotals(), access, lambda: iter(())).collect())


def reference() -> str:
    """Return the whole page."""
    parts, metrics = [_HEAD], families()
    for heading in dict.fromkeys(heading for heading, _ in _SECTIONS):
        entries = "".join(_entry(family) for family in metrics if _section_of(family) == heading)
        parts.append(f"## {heading}\n\n{entries}")
    return "\n".join(parts)


def labels_of(family: Metric) -> tuple[str, ...]:
    """Return the names of a family's labels; without `le`, which every histogram has."""
    return tuple(getattr(family, "_labelnames", ()))


def _section_of(family: Metric) -> str:
    name = family.name.removeprefix("sluice_")
    return next(heading for heading, starts in _SECTIONS if name.startswith(starts))


def _entry(family: Metric) -> str:
    labels = f"{{{','.join(labels_of(family))}}}" if labels_of(family) else ""
    names = ", ".join(f"`{family.name}{suffix}{labels}`" for suffix in _SUFFIXES[family.type])
    lines = [f"- {names}, {family.type}: {family.documentation}."]
    for label in labels_of(family):
        words = sorted({sample.labels[label] for sample in family.samples})
        if words and family.name != _BUILD and label != _BROKER:
            lines.append(f"  - {label}: {', '.join(f'`{word}`' for word in words)}")
    return "".join(f"{_wrapped(line)}\n" for line in lines)


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip(" -")))
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Print the page."""
    sys.stdout.write(reference())


if __name__ == "__main__":
    main()
