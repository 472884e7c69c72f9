"""Without a container engine: everything that is named exists."""

import json
import re
import shlex
from pathlib import Path

import typer.main
import yaml

from proxy.config.model import load_config
from sluice.cli import app
from tests.docs.headings import SITE, anchors, links_to_the_site, section

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/sluice"
RULES = ROOT / "deploy/prometheus/rules.yml"
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())


def _dockerfile() -> list[str]:
    return [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]


def _option_names(command: str) -> set[str]:
    group = typer.main.get_group(app)
    return {name for option in group.commands[command].params for name in option.opts}


def _check_command(words: list[str]) -> None:
    command, *flags = words
    known = _option_names(command)
    assert [flag for flag in flags if flag.startswith("--") and flag not in known] == []


def test_the_dockerfile_copies_what_is_there():
    copied = [
        source
        for line in _dockerfile()
        if line.startswith("COPY ") and "--from" not in line
        for source in shlex.split(line)[1:-1]
    ]
    assert copied
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_dockerfile_copies_every_package_of_the_wheel():
    packages = re.search(r"packages = (\[.*?\])\n", (ROOT / "pyproject.toml").read_text())
    assert packages
    copies = {line for line in _dockerfile() if line.startswith("COPY ")}
    assert [name for name in yaml.safe_load(packages[1]) if f"COPY {name} {name}" not in copies] == []


def test_the_image_runs_a_command_that_exists_and_not_as_root():
    lines = _dockerfile()
    _check_command(yaml.safe_load(next(line for line in lines if line.startswith("CMD")).removeprefix("CMD ")))
    users = [line for line in lines if line.startswith("USER")]
    assert users
    assert users[-1] not in {"USER root", "USER 0"}


def test_the_image_has_no_spark():
    lock = (ROOT / "requirements/proxy.lock").read_text()
    assert "pyspark" not in lock
    assert "requirements/proxy.lock" in (ROOT / "Dockerfile").read_text()


def test_locks_of_the_images_agree():
    """`make locks` makes all; the report's image has whatever the proxy's has."""

    def pinned(name: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / f"requirements/{name}.lock").read_text(), re.MULTILINE))

    assert pinned("proxy") <= pinned("report") <= pinned("all")


def test_compose_mounts_what_is_there_and_gives_commands_that_exist():
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / "deploy" / source).exists()
    _check_command(COMPOSE["services"]["sluice"]["command"])
    build = COMPOSE["services"]["sluice"]["build"]
    assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).exists()


def test_images_of_the_compose_file_have_a_digest_or_say_why_not():
    text = (ROOT / "deploy/compose.yaml").read_text()
    images = re.findall(r"^( *#.*\n)? *image: (\S+)$", text, re.MULTILINE)
    assert len(images) == 2
    for comment, image in images:
        name, digest, sha256 = image.partition("@sha256:")
        assert re.search(r":v?\d+\.\d+\.\d+$", name), "a tag of one release"
        assert re.fullmatch("[0-9a-f]{64}", sha256) if digest else "digest" in comment


def test_the_parts_find_each_other():
    """Sluice names the broker's service, Prometheus names Sluice's, each at the port that is listened on."""
    config = load_config(ROOT / "deploy/sluice.yaml", {})
    scrape = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    assert str(config.broker[0]) == "pulsar://broker:6650"
    broker = COMPOSE["services"]["broker"]
    assert broker["command"][-2:] == ["--advertised-address", "broker"]
    by_a_script = [name for name in broker["environment"] if name.startswith("PULSAR_PREFIX_")]
    assert by_a_script == [], "bin/pulsar reads none of them"
    assert config.metrics is not None
    metrics_port = str(config.metrics.port)
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == [f"sluice:{metrics_port}"]
    published = [port.split(":")[-1] for port in COMPOSE["services"]["sluice"]["ports"]]
    assert set(published) == {str(config.listen[0].port), metrics_port}


def test_the_access_log_goes_where_the_image_lets_it_be_written():
    config = load_config(ROOT / "deploy/sluice.yaml", {})
    mounts = [volume.split(":")[1] for volume in COMPOSE["services"]["sluice"]["volumes"]]
    assert str(config.access_log.dir) in mounts
    assert any(str(config.access_log.dir) in line and "-g 0 -m 775" in line for line in _dockerfile())


def _rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _asked():
    """Return the expressions of rules, questions and dashboards, by place."""
    asked = {rule.get("alert") or rule["record"]: rule["expr"] for rule in _rules()}
    pages = {page: (ROOT / "docs" / page).read_text() for page in ("questions.md", "runbooks.md")}
    dashboards = {file.name: file.read_text() for file in (ROOT / "deploy/grafana").glob("*.json")}
    return asked | pages | dashboards


def test_rules_pages_and_dashboards_name_metrics_that_exist():
    page = (ROOT / "docs/metrics.md").read_text()
    known = set(re.findall(r"`((?:sluice|process)_[a-z_]+)", page))
    names = {place: set(re.findall(r"\b(?:sluice|process)_[a-z_]+\b", text)) for place, text in _asked().items()}
    assert sum(map(len, names.values())) > 20
    assert {place: named - known for place, named in names.items() if named - known} == {}


def test_each_alert_has_a_runbook_and_a_unit_test():
    alerts = [rule["alert"] for rule in _rules() if "alert" in rule]
    runbooks = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE)
    assert alerts == runbooks
    links = links_to_the_site()
    assert all(links[alert] == f"runbooks.html#{alert.lower()}" for alert in alerts)
    rung = {
        each["alertname"]
        for file in RULES.parent.glob("*_test.yml")
        for test in yaml.safe_load(file.read_text())["tests"]
        for each in test["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert rung == set(alerts)


def test_links_of_alerts_and_panels_lead_to_headings():
    for place, link in links_to_the_site().items():
        page, _, anchor = link.partition(".html#")
        assert anchor in anchors(ROOT / f"docs/{page}.md"), f"{place} leads to {link}"


def test_chart_puts_the_docs_of_choice_in_place_of_the_files():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["docsUrl"] == ""
    for template in ("prometheusrule.yaml", "_helpers.tpl"):
        assert f'replace "{SITE}"' in (CHART / "templates" / template).read_text()


def test_prometheus_of_the_compose_file_has_the_rules():
    named = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["rule_files"]
    assert named == ["/etc/prometheus/rules.yml"]
    assert "./prometheus/rules.yml:/etc/prometheus/rules.yml:ro" in COMPOSE["services"]["prometheus"]["volumes"]


def test_each_panel_has_unit_description_and_a_runbook():
    files = sorted((ROOT / "deploy/grafana").glob("*.json"))
    assert [file.stem for file in files] == ["sluice-fleet", "sluice-limit", "sluice-tenant"]
    links = links_to_the_site()
    for file in files:
        for panel in json.loads(file.read_text())["panels"]:
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert len(panel["links"]) == 1
            assert links[f"{file.stem}: {panel['title']}"].startswith("runbooks.html#")


def test_panels_of_the_moment_have_no_pods_of_before():
    """A range has the last value of a pod that a rolling update has replaced, for as long as the dashboard shows."""
    panels = [
        each for file in (ROOT / "deploy/grafana").glob("*.json") for each in json.loads(file.read_text())["panels"]
    ]
    stats = [target for panel in panels if panel["type"] == "stat" for target in panel["targets"]]
    assert stats
    assert all(target["instant"] is True and target["range"] is False for target in stats)


def test_fullest_limits_have_a_line_each_however_many_members():
    dashboard = json.loads((ROOT / "deploy/grafana/sluice-fleet.json").read_text())
    (target,) = [
        target for panel in dashboard["panels"] if panel["title"] == "Fullest limits" for target in panel["targets"]
    ]
    labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
    assert f"max by ({', '.join(labels)})" in target["expr"]


def test_each_panel_leads_to_a_heading_about_its_metrics():
    links = links_to_the_site()
    strays = {}
    for file in sorted((ROOT / "deploy/grafana").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            place = f"{file.stem}: {panel['title']}"
            page, _, anchor = links[place].partition(".html#")
            text = section(ROOT / f"docs/{page}.md", anchor)
            asked = " ".join(target["expr"] for target in panel["targets"])
            names = set(re.findall(r"\b(?:sluice|process)_[a-z_]+\b", asked))
            assert names, place
            lacking = {name for name in names if not re.search(rf"\b{name}\b", text)}
            if lacking:
                strays[place] = lacking
    assert strays == {}
