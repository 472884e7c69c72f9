"""A folder of configuration files, merged by key."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.config.model import Config, ConfigError, load, load_config, usable_part
from proxy.config.rereading import ConfigFiles
from proxy.config.showing import shown
from proxy.reload import changes_of, fingerprints
from sluice.cli import app


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def problems_of(folder: Path, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(folder, {}, environment or {})
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


BASE = "listen: 127.0.0.1:7000\nlimits:\n  plans:\n    free: {publish: {messages: 5}}\n"
TENANTS = "limits:\n  tenants:\n    acme: free\n"
MORE = "limits:\n  tenants:\n    other: {publish: {bytes: 9}}\n"


def test_files_of_a_folder_are_merged_by_key(tmp_path: Path) -> None:
    folder = written(
        tmp_path, {"10-a.yaml": BASE, "20-b.yml": TENANTS, "30-c.yaml": MORE, ".d.yaml": "x", "e.txt": "x"}
    )
    config = load_config(folder, {"admin": "127.0.0.1:7001"})
    assert (config.listen[0].address, config.admin.address) == ("127.0.0.1:7000", "127.0.0.1:7001")
    assert {name: section.plan for name, section in config.limits.tenants.items()} == {"acme": "free", "other": None}
    text = shown(load(folder, {}, {}), with_defaults=False)
    assert f"plan: free  # {folder}/20-b.yml" in text or f"acme: free  # {folder}/20-b.yml" in text


def test_check_warns_of_files_that_are_passed_over(tmp_path: Path) -> None:
    folder = written(
        tmp_path, dict.fromkeys(["b.YAML", "c.json", "d", ".e.yaml", "f.yaml~", ".g.swp", "#h.yaml#"], BASE)
    )
    written(folder, {"a.yaml": MORE})
    (folder / "inner").mkdir()
    answer = CliRunner().invoke(app, ["check", "--config", str(folder), "--json", "--values-only"])
    remedy = "is passed over: only files NAME.yaml and NAME.yml are read; rename it, or take it away"
    assert json.loads(answer.output) == {
        "problems": [],
        "warnings": [f"{folder}/{name}: {remedy}" for name in ("b.YAML", "c.json", "d", "inner")],
    }


def test_key_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    twice = "limits:\n  tenants:\n    other: {publish: {messages: 3}}\n    acme: free\n"
    folder = written(tmp_path, {"a.yaml": BASE, "b.yaml": TENANTS, "c.yaml": twice, "d.yaml": "listen: 127.0.0.1:1\n"})
    assert problems_of(folder) == [
        "c.yaml:4: limits.tenants.acme: is set in b.yaml:3 as well; keep it in one of the files",
        "d.yaml:1: listen: is set in a.yaml:1 as well; keep it in one of the files",
    ]


def test_mistakes_name_their_own_file_and_line(tmp_path: Path) -> None:
    folder = written(
        tmp_path, {"a.yaml": BASE, "b.yaml": TENANTS.replace("free", "fre"), "c.yaml": "max_connections: x"}
    )
    assert [problem.split(": ")[:2] for problem in problems_of(folder)] == [
        ["c.yaml:1", "max_connections"],
        ["b.yaml:3", "limits.tenants.acme.plan"],
    ]
    variable = problems_of(folder, {"SLUICE_MAX_CONNECTIONS": "y"})
    assert [problem.split(": ")[0] for problem in variable] == ["SLUICE_MAX_CONNECTIONS", "b.yaml:3"]
    part = usable_part(folder, {}, {})
    assert part is not None
    assert part.config.listen[0].address == "127.0.0.1:7000"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "it is a directory that has no file NAME.yaml"),
        ({"a.yaml": BASE, "b.yaml": "# nothing\n"}, "b.yaml: has no keys; remove the file"),
        ({"a.yaml": BASE, "b.yaml": "limits: [\n"}, "b.yaml:2:1: is not YAML"),
        ({"a.yaml": BASE, "b.yaml": "text"}, "b.yaml: holds text, not keys with values"),
    ],
)
def test_folder_with_a_file_that_cannot_be_used_is_refused(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    folder = written(tmp_path, files)
    assert problem in problems_of(folder)[0]
    with pytest.raises(ConfigError):
        ConfigFiles(folder, {}).reread()


def partly(files: ConfigFiles, folder: Path) -> tuple[Config | None, list[str]]:
    with pytest.raises(ConfigError) as caught:
        files.reread()
    part = caught.value.usable
    return part.config if part else None, [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def messages(config: Config | None) -> dict[str, int | None]:
    assert config is not None
    sections = config.limits.tenants.items()
    return {name: section.publish.messages[0] if section.publish else None for name, section in sections}


def tenant(name: str, messages: int | str) -> str:
    return f"limits:\n  tenants:\n    {name}: {{publish: {{messages: {messages}}}}}\n"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (tenant("acme", "x"), "a.yaml:3: limits.tenants.acme.publish.messages: 'x'"),
        ("limits: [", "a.yaml:2:1: is not YAML"),
        ("\xff", "a.yaml: "),
        ("", "a.yaml: has no keys"),
        ("limits:\n  tenants:\n    acme: gold\n", "a.yaml:3: limits.tenants.acme.plan: 'gold' is no plan"),
        (tenant("other", 9), "b.yaml:3: limits.tenants.other.publish.messages: is set in a.yaml:3 as well"),
    ],
)
def test_bad_file_keeps_its_values_and_holds_back_no_other(tmp_path: Path, bad: str, problem: str) -> None:
    folder = written(
        tmp_path, {"a.yaml": tenant("acme", 5), "b.yaml": tenant("other", 5), "c.yaml": tenant("third", 5)}
    )
    files = ConfigFiles(folder, {})
    files.read()
    written(folder, {"a.yaml": bad, "c.yaml": tenant("third", 6), "d.yaml": tenant("fourth", 1)})
    config, problems = partly(files, folder)
    assert messages(config) == {"acme": 5, "other": 5, "third": 6, "fourth": 1}
    assert problems[0].startswith(problem)
    assert problems[-1].startswith("a.yaml: the content of before holds: ")
    (folder / "c.yaml").unlink()
    assert messages(partly(files, folder)[0]) == {"acme": 5, "other": 5, "fourth": 1}
    written(folder, {"a.yaml": tenant("acme", 7)})
    assert messages(files.reread()) == {"acme": 7, "other": 5, "fourth": 1}


def test_new_file_with_a_mistake_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": tenant("acme", 5)})
    files = ConfigFiles(folder, {})
    files.read()
    written(folder, {"a.yaml": tenant("acme", 6), "b.yaml": tenant("other", "x")})
    config, problems = partly(files, folder)
    assert messages(config) == {"acme": 6}
    assert problems[-1].startswith(
        "b.yaml: left out, as there is no content of before: limits.tenants.other.publish.messages: "
    )


@pytest.mark.parametrize("base", [BASE.replace("free", "paid"), None])
def test_change_that_breaks_another_file_is_not_taken(tmp_path: Path, base: str | None) -> None:
    folder = written(tmp_path, {"a.yaml": BASE, "b.yaml": TENANTS, "c.yaml": tenant("third", 5)})
    files = ConfigFiles(folder, {})
    files.read()
    written(folder, {"c.yaml": tenant("third", 6)})
    if base is None:
        (folder / "a.yaml").unlink()
    else:
        written(folder, {"a.yaml": base})
    config, problems = partly(files, folder)
    assert messages(config) == {"acme": None, "third": 6}
    assert problems[0].startswith("b.yaml:3: limits.tenants.acme.plan: 'free' is no plan")
    stays = "the content of before holds" if base else "is gone, and the content of before holds"
    assert problems[-1].startswith(f"a.yaml: {stays}: limits.tenants.acme.plan: 'free' is no plan")


def test_files_that_contradict_each_other_are_both_named(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": tenant("acme", 5), "b.yaml": tenant("other", 5)})
    files = ConfigFiles(folder, {})
    files.read()
    written(folder, {"a.yaml": tenant("both", 6), "b.yaml": tenant("both", 7), "c.yaml": tenant("third", 1)})
    config, problems = partly(files, folder)
    assert messages(config) == {"acme": 5, "other": 5, "third": 1}
    assert problems == [
        "b.yaml:3: limits.tenants.both.publish.messages: is set in a.yaml:3 as well; keep it in one of the files",
        "a.yaml: the content of before holds: limits.tenants.both.publish.messages: is set in two files",
        "b.yaml: the content of before holds: limits.tenants.both.publish.messages: is set in two files",
    ]


def test_mistake_outside_the_files_keeps_all_as_it_was(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": tenant("acme", 5)})
    environment: dict[str, str] = {}
    files = ConfigFiles(folder, {}, environment)
    files.read()
    environment["SLUICE_LISTEN"] = "nowhere:x"
    written(folder, {"a.yaml": tenant("acme", 6)})
    assert partly(files, folder)[0] is None


def test_folder_that_was_emptied_keeps_all_as_it_was(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": "listen: 127.0.0.1:7000\n", "b.yaml": tenant("acme", 5)})
    files = ConfigFiles(folder, {})
    files.read()
    for each in ("a.yaml", "b.yaml"):
        (folder / each).unlink()
    config, problems = partly(files, folder)
    assert config is None
    assert len(problems) == 1
    assert problems[0].endswith("it is a directory that has no file NAME.yaml")
    written(folder, {"b.yaml": tenant("acme", 6)})
    assert messages(files.reread()) == {"acme": 6}


def test_check_takes_a_folder(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": BASE, "b.yaml": TENANTS})
    result = CliRunner().invoke(app, ["check", "--config", str(folder), "--values-only"])
    assert (result.exit_code, result.stderr) == (0, "")
    (folder / "b.yaml").write_text("listen: 127.0.0.1:7002\n")
    result = CliRunner().invoke(app, ["check", "--config", str(folder), "--values-only"])
    assert result.exit_code == 1
    assert f"{folder}/b.yaml:1: listen: is set in {folder}/a.yaml:1 as well" in result.stderr


async def test_changes_of_a_folder_are_noticed(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": BASE})
    async with aclosing(changes_of(fingerprints([folder]))) as changes:
        for change in (
            lambda: (folder / "a.yaml").write_text(BASE + "max_connections: 5\n"),
            lambda: (folder / "b.yaml").write_text(TENANTS),
            (folder / "b.yaml").unlink,
        ):
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            change()
            await asyncio.wait_for(waiting, 30)
