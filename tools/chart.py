"""Makes what comes from the Helm chart, and what it takes from the code.

python -m tools.chart schema       values.schema.json: its part that is Sluice's configuration
python -m tools.chart manifests    deploy/kubernetes, from the values in deploy/helm/ci (needs Helm: make helm)
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.model import Config

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/sluice"
SCHEMA = CHART / "values.schema.json"
VALUES = ROOT / "deploy/helm/ci"
MANIFESTS = ROOT / "deploy/kubernetes"
KUBERNETES = "1.33.0"
"""The version that is rendered for, whichever one the Helm takes by default: `make helm` builds one that takes this."""
OPERATOR = Path(sys.prefix) / "share/prometheus-operator"
"""The definitions of the Prometheus Operator's kinds, where `make helm` puts them."""
OF_THE_CHART = ("listen", "broker", "admin", "metrics", "proxy_id", "processes", "limits")
"""Keys that the chart sets from values of its own, so that `config` may not have them."""
_OF_HELM = re.compile(r" +(app\.kubernetes\.io/managed-by|helm\.sh/chart):")
_NAMESPACE = r"^[-=:.\w]*(\*[-=:.\w]*)?/[-=:.\w]*(\*[-=:.\w]*)?$"


def find_helm() -> str | None:
    """Return the command Helm, of the environment or of the system; None without one."""
    beside = Path(sys.executable).with_name("helm")
    return str(beside) if beside.exists() else shutil.which("helm")


def render(values: Path, *more: str, of: Path = CHART, release: str = "sluice") -> str:
    """Return the chart's objects for a file of values, as one YAML text; of another folder's chart if it is given.

    Raises:
        subprocess.CalledProcessError: If Helm refuses the values.
    """
    helm = find_helm()
    if helm is None:
        raise FileNotFoundError("no Helm here: make helm")
    command = [helm, "template", release, str(of), "--namespace", "pulsar", "--kube-version", KUBERNETES]
    command += ["--values", str(values), *more]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout  # noqa: S603


def plain_manifests() -> dict[str, str]:
    """Return the files of deploy/kubernetes by name, each rendered from the values of the same name."""
    return {values.name: _without_helm(values) for values in sorted(VALUES.glob("*.yaml"))}


def _without_helm(values: Path) -> str:
    lines = render(values).splitlines(keepends=True)
    head = (
        f"# For the namespace pulsar. Made from the chart by `make manifests`, with the values of\n"
        f"# {values.relative_to(ROOT)}: edit those, or use the chart. Push images first: docs/kubernetes.md.\n"
    )
    return head + "".join(line for line in lines if not _OF_HELM.match(line))


def values_schema() -> str:
    """Return values.schema.json: its own properties, and definitions made from the configuration's model."""
    written = json.loads(SCHEMA.read_text())
    made = Config.model_json_schema()
    definitions = {name: _plain(each) for name, each in made.pop("$defs").items()}
    config = _plain(made)
    for key in OF_THE_CHART:
        del config["properties"][key]
    for name in (
        "ListenerTls",
        "AdminTls",
        "Fleet",
    ):  # the chart has certificate and key from a Secret, and names the fleet
        del definitions[name]["required"]
    for name in ("dir", "retain_size"):
        del definitions["AccessLogSettings"]["properties"][name]
    definitions["PolicyStore"]["properties"].pop("store")
    definitions["Limits"]["properties"]["namespaces"]["propertyNames"] = {"pattern": _NAMESPACE}
    written["$defs"] = dict(sorted({**definitions, "Config": config}.items()))
    return json.dumps(written, indent=1, ensure_ascii=False) + "\n"


_WORDS = frozenset({"title", "default", "description", "format"})


def _plain(schema: Any) -> Any:
    """Return a schema without words, and with one type where pydantic has alternatives: errors of Helm are short."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    properties: Mapping[str, Any] = schema.get("properties", {})
    plain = {key: _plain(value) for key, value in schema.items() if key not in {*_WORDS, "properties"}}
    if properties:
        plain["properties"] = {key: _plain(value) for key, value in properties.items()}
    choices = [each for each in plain.pop("anyOf", ()) if each != {"type": "null"}]
    if [each.get("type") for each in choices] == ["integer", "string"]:
        bounds = {key: value for each in choices for key, value in each.items() if key != "type"}
        return {"type": ["number", "string"], **bounds}
    if len(choices) == 1:
        plain |= choices[0]
    elif choices:
        plain["anyOf"] = choices
    return plain


def main(target: str) -> None:
    """Make one of the two."""
    if target == "schema":
        SCHEMA.write_text(values_schema())
    elif target == "manifests":
        for name, text in plain_manifests().items():
            (MANIFESTS / name).write_text(text)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:] or ("",))
