from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.policies import Change, Policies, PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.keys import Layer
from proxy.policies.layers import Layers

_TOPICS: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_TOTAL: PolicyTarget = ("publish", Setting.NAMESPACE, "acme/shop")
_FROM_THE_TOP = (Layer.REST, Layer.GLOBAL, Layer.DYNAMIC, Layer.FILE)


def value(messages: int, layer: Layer) -> Value:
    return Value(Limit(rate(messages)), layer.origin)


def shown(layers: Layers, place: PolicyTarget = _TOPICS) -> Value | None:
    return layers.policies.get(*place)


def test_what_was_set_at_run_time_hides_the_file_s_value_until_it_is_taken_back() -> None:
    layers = Layers(Policies())
    layers.put(Layer.FILE, _TOPICS, value(10, Layer.FILE))

    layers.put(Layer.REST, _TOPICS, value(20, Layer.REST))
    assert shown(layers) == value(20, Layer.REST)

    layers.put(Layer.REST, _TOPICS, None)
    assert shown(layers) == value(10, Layer.FILE)


def test_the_file_changes_under_what_hides_it() -> None:
    layers = Layers(Policies())
    layers.put(Layer.REST, _TOPICS, value(20, Layer.REST))

    layers.put(Layer.FILE, _TOPICS, value(11, Layer.FILE))

    assert shown(layers) == value(20, Layer.REST)
    assert layers.written(Layer.FILE, _TOPICS) == value(11, Layer.FILE)

    layers.put(Layer.REST, _TOPICS, None)
    assert shown(layers) == value(11, Layer.FILE)


def test_of_a_layer_that_is_to_be_another_only_what_differs_is_to_be_written() -> None:
    layers = Layers(Policies())
    layers.put(Layer.FILE, _TOPICS, value(10, Layer.FILE))
    layers.put(Layer.FILE, _TOTAL, value(100, Layer.FILE))

    assert layers.difference(Layer.FILE, {_TOTAL: value(100, Layer.FILE)}) == {_TOPICS: None}
    assert layers.difference(Layer.FILE, {_TOPICS: value(11, Layer.FILE), _TOTAL: value(100, Layer.FILE)}) == {
        _TOPICS: value(11, Layer.FILE)
    }
    assert shown(layers) == value(10, Layer.FILE)


def test_a_topic_s_value_that_limits_nothing_hides_the_file_s_but_not_the_global_one() -> None:
    """A 4.0.8 broker passed 12/s where -1 was set for a topic, 12 with --global and 10 for its namespace."""
    layers, nothing = Layers(Policies()), Value(Limit(), Layer.REST.origin)
    layers.put(Layer.FILE, _TOPICS, value(10, Layer.FILE))
    layers.put(Layer.REST, _TOPICS, nothing)
    assert shown(layers) == nothing

    layers.put(Layer.GLOBAL, _TOPICS, value(12, Layer.GLOBAL))
    assert shown(layers) == value(12, Layer.GLOBAL)

    layers.put(Layer.GLOBAL, _TOPICS, None)
    assert shown(layers) == nothing


@given(
    st.lists(
        st.tuples(st.sampled_from(Layer), st.sampled_from([_TOPICS, _TOTAL]), st.none() | st.integers(1, 9)),
        max_size=30,
    )
)
def test_after_any_changes_the_highest_layer_that_says_something_holds(
    changes: list[tuple[Layer, PolicyTarget, int | None]],
) -> None:
    layers, model = Layers(Policies()), dict[tuple[PolicyTarget, Layer], int]()
    for layer, place, messages in changes:
        layers.put(layer, place, None if messages is None else value(messages, layer))
        if messages is None:
            model.pop((place, layer), None)
        else:
            model[place, layer] = messages

    for place in (_TOPICS, _TOTAL):
        values = [(layer, model[place, layer]) for layer in _FROM_THE_TOP if (place, layer) in model]
        assert shown(layers, place) == (value(values[0][1], values[0][0]) if values else None)


def test_what_changed_is_told_once_with_whether_it_only_tunes() -> None:
    layers = Layers(Policies())
    layers.put(Layer.FILE, _TOPICS, value(10, Layer.FILE))
    layers.put(Layer.FILE, _TOTAL, value(10, Layer.FILE))
    assert layers.changes() == [Change(*_TOPICS), Change(*_TOTAL)]

    layers.put(Layer.REST, _TOPICS, value(20, Layer.REST))
    layers.put(Layer.REST, _TOTAL, value(20, Layer.REST))
    layers.put(Layer.REST, _TOTAL, None)
    assert layers.changes() == [Change(*_TOPICS, only_tunes=True)]
    assert layers.changes() == []
