"""`python fake_sluice.py COMMAND …`: what the demo needs of each command of sluice, without doing anything.

The environment says what goes wrong: FAKE_SLUICE_FAILS names a command that ends at once with code 1,
FAKE_SLUICE_LOSES makes the report miss a message.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import create_server

TOPIC = "persistent://ledger/trading/orders"
COUNTS = {
    "limits": [],
    "longest_pause_ms": 7.0,
    "faults": [],
    "topics": {
        TOPIC: {
            "pattern": "steady",
            "wanted_messages": 10,
            "offered_messages": 10,
            "receipts": 10,
            "receipt_latency_ms": {"p99": 1.0, "max": 1.0},
            "received": {"while_offering": 10},
        }
    },
}
LIVE = {"at_s": 3.0, "topics": {TOPIC: {"wanted_messages": 10, "received": 10}}}


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def broker() -> None:
    with create_server(("127.0.0.1", int(option("--listen").rpartition(":")[2]))):
        time.sleep(60)


class Admin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"streams": []}).encode())


def serve() -> None:
    HTTPServer(("127.0.0.1", int(option("--admin").rpartition(":")[2])), Admin).serve_forever()


def load() -> None:
    Path(option("--live")).write_text(json.dumps(LIVE) + "\n")
    time.sleep(0.7)
    Path(option("--out")).write_text(json.dumps(COUNTS))


def report() -> None:
    folder = Path(option("--out"))
    folder.mkdir()
    (folder / "report.html").write_text("<html>")
    passed = 9 if "FAKE_SLUICE_LOSES" in os.environ else 10
    header = "day,tenant,namespace,topic,direction,offered_messages,offered_bytes,passed_messages,passed_bytes"
    row = f"2026-01-01,ledger,trading,{TOPIC},publish,10,100,{passed},100"
    (folder / "usage.csv").write_text(f"{header}\n{row}\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if os.environ.get("FAKE_SLUICE_FAILS") == sys.argv[1]:
        sys.exit("this is why\n")
    {"broker": broker, "serve": serve, "load": load, "report": report}[sys.argv[1]]()
