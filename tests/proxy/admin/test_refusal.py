"""The admin address's errors."""

import json

from proxy.admin.refusals import refusal


def test_it_has_the_form_that_pulsars_tools_read() -> None:
    answer = refusal(412, "not “served” here")
    assert (answer.status, answer.content_type) == (412, "application/json")
    assert json.loads(answer.text or "") == {"reason": "not “served” here"}
