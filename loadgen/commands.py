"""Commands of `loadgen`; their modules are imported when they run."""

import time
from pathlib import Path
from typing import Annotated

import typer

from protocol.exit_codes import ExitCode

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only, and the result that --json asks for.")]


def broker(  # noqa: PLR0913 - one for each option
    *,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to accept clients on, pulsar+ssl://HOST:PORT by TLS; port 0: any free one.",
        ),
    ],
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate for TLS, PEM. Default: none.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="PEM file with the certificate's private key. Default: the certificate's file.",
        ),
    ] = None,
    partitioned: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="A topic with N partitions; may be given several times."),
    ] = None,
    missing_namespace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TENANT/NAMESPACE",
            help="A namespace that is not there: its topics are refused. May be given several times.",
        ),
    ] = None,
    topic_mb: Annotated[
        int,
        typer.Option(metavar="MB", min=16, help="Most megabytes kept per topic; above it its producers have to wait."),
    ] = 256,
    retention_mb: Annotated[
        int,
        typer.Option(
            metavar="MB", min=0, help="Megabytes of acknowledged messages kept per topic, for readers and seeks."
        ),
    ] = 0,
    counts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what each topic received and delivered to FILE at the end (JSON)."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a stand-in for a Pulsar broker, in memory.

    It is for demos and trials, also of fleets: it serves a fleet's topics, so that proxies with a section `fleet` share
    their limits by it. SIGTERM ends it. With --json the address is said on standard error, and standard output has one
    object at the end: the address, and what each topic received and delivered.
    """
    from loadgen.standin.broker import LISTEN, MB, BrokerOptions, parse_partitions
    from loadgen.standin.server import context_of, run

    try:
        options = BrokerOptions(
            partitions=parse_partitions(partitioned or ()),
            topic_bytes=topic_mb * MB,
            retention_bytes=retention_mb * MB,
            first_ledger=time.time_ns() // 1_000_000,
            missing_namespaces=frozenset(missing_namespace or ()),
        )
        endpoint = LISTEN.parse(listen)
        tls = context_of(endpoint, certificate, key)
    except OSError as error:  # a file of the certificate; some errors of TLS are ValueErrors as well
        raise _not_run(error, ExitCode.FAILED) from None
    except ValueError as error:
        raise _not_run(error, ExitCode.USAGE) from None
    try:
        run(options, endpoint, counts, tls, as_json=json, is_quiet=quiet)
    except (ValueError, OSError) as error:
        raise _not_run(error, ExitCode.FAILED) from None


def _not_run(error: Exception, code: ExitCode) -> typer.Exit:
    typer.echo(f"stand-in broker: {error}", err=True)
    return typer.Exit(code)


def load(  # noqa: PLR0913 - one for each option
    *,
    service_url: Annotated[
        str,
        typer.Option(
            help="Where producers connect: pulsar://HOST:PORT of Sluice, or pulsar+ssl://HOST:PORT; of several, "
            "pulsar://HOST:PORT,HOST:PORT."
        ),
    ],
    scenario: Annotated[Path, typer.Option(help="YAML file: tenants, topics and pace.")],
    verify_url: Annotated[
        str | None,
        typer.Option(help="pulsar://HOST:PORT of the broker itself: receive there, and check what arrives."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="PEM certificates of the authorities that pulsar+ssl:// addresses are verified by. "
            "Default: the system's authorities.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long to offer load: 0.1 to 3600 seconds.", min=0.1, max=3600)
    ] = 30,
    drain_seconds: Annotated[
        float,
        typer.Option(help="Longest wait for outstanding receipts after that: 0 to 3600 seconds.", min=0, max=3600),
    ] = 60,
    out: Annotated[Path | None, typer.Option(help="Write the counts (JSON) here instead of to stdout.")] = None,
    live: Annotated[
        str | None, typer.Option(help="Write counts so far here, a JSON line each half second; - for stdout.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the counts to stdout, as without --out, and write them there too.")
    ] = False,
) -> None:
    """Offer a scenario's load with official clients, and count.

    Receipts and deliveries are counted. Exit code 0: every message offered has its receipt and, with
    --verify-url, arrived once, in order and intact. 3: not so.
    """
    try:
        from loadgen.load.run import Request, main
    except ImportError as error:
        typer.echo(f"sluice load: {error.name} is not installed: run `pip install 'pulsar-sluice[load]'`", err=True)
        raise typer.Exit(ExitCode.FAILED) from error
    request = Request(scenario, service_url, verify_url, seconds, drain_seconds, out, live, ca, prints=json)
    raise typer.Exit(main(request))
