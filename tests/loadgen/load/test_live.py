import io
import json

from loadgen.load.live import LiveLines


def test_each_call_is_one_line_of_json() -> None:
    out = io.StringIO()
    live = LiveLines(out)
    live(0.51234, {"t": {"offered_messages": 1}})
    live(1.0, {})
    first, second = out.getvalue().splitlines()
    assert json.loads(first) == {"at_s": 0.512, "topics": {"t": {"offered_messages": 1}}}
    assert json.loads(second) == {"at_s": 1.0, "topics": {}}
