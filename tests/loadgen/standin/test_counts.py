from loadgen.standin.counts import TopicCounts


def test_entries_messages_and_bytes_are_counted_in_each_direction():
    counts = TopicCounts()
    counts.receive(messages=10, size=100)
    counts.receive(messages=1, size=20)
    counts.deliver(messages=10, size=100)
    assert counts == TopicCounts(2, 11, 120, 1, 10, 100)
