"""The commands of the load generator, where what they need is not installed."""

import subprocess
import sys


def test_load_without_a_client_says_what_to_install(tmp_path):
    """A package of the client's name that cannot be imported stands before the real one."""
    (tmp_path / "pulsar.py").write_text("raise ModuleNotFoundError('no', name='pulsar')")
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[0] = 'sluice'"
    code = f"{first}; import sluice.cli; sluice.cli.main()"
    arguments = ["load", "--service-url", "pulsar://127.0.0.1:1", "--scenario", str(tmp_path / "a.yaml")]
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "sluice load: pulsar is not installed: run `pip install 'pulsar-sluice[load]'`\n"
