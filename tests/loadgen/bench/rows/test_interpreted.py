from loadgen.bench.rows import interpreted


def test_the_interpreted_form_is_measured_beside_the_forwarder(stage, name):
    found = interpreted.row().measure(stage, name)
    assert found["rate"] > 0
    assert found["lost"] == 0
