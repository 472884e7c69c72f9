import pytest

from compliance.report.settings import in_words, subject


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"publishThrottlingRateInMsg": 600, "publishThrottlingRateInByte": -1}', "600 messages/s"),
        ('{"form":"pulsar","body":{"publishThrottlingRateInMsg":-1,"publishThrottlingRateInByte":-1}}', "no limit"),
        ('{"form":"sluice","body":{"messages":"50/s","mode":"reject"}}', "50 messages/s, mode reject"),
        ('{"form":"sluice","body":{"bytes":20000}}', "20 kB/s"),
        (
            '{"dispatchThrottlingRateInMsg":10,"dispatchThrottlingRateInByte":1500,"relativeToPublishRate":true}',
            "10 messages/s, 1.5 kB/s, relative to publish rate",
        ),
        (
            '{"publishRateInMsgs":5,"dispatchRateInMsgs":7,"dispatchRateInBytes":null}',
            "5 messages/s publish, 7 messages/s dispatch",
        ),
        ('{"limits":{"topics":{"a":{"publish":{"messages":3}}}}}', "limits topics a publish 3 messages/s"),
        ('{"publishThrottlingRateInMsg": 60', "settings too long for this list"),
        ("3000", "3000"),
        ("gold", "gold"),
        ("", ""),
    ],
)
def test_setting_is_in_words_and_never_raw_json(text, words):
    assert in_words(text) == words


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("publish of topic_of_namespace", "acme/orders", "publish limit of each topic of namespace acme/orders"),
        ("publish topic", "t", "publish limit of topic t"),
        ("dispatch of tenant", "acme", "dispatch limit of tenant acme"),
        ("attachment of namespace", "acme/orders", "resource group of namespace acme/orders"),
        ("dynamic", "maxPublishRate", "broker setting of maxPublishRate"),
        ("file", "", "configuration file"),
    ],
)
def test_change_names_its_subject(kind, name, words):
    assert subject(kind, name) == words
