from loadgen.bench_limits.orders import LaneOrder, LaneResult, Order, order_file, read, write

ORDER = Order("pulsar://127.0.0.1:1", b"8 bytes\xff", [LaneOrder(client="c", topic="t", index=3, end_s=2.5)], 1.0)


def test_an_order_is_read_as_it_was_written(tmp_path):
    write(order_file(tmp_path), ORDER)
    assert read(order_file(tmp_path), Order) == ORDER


def test_a_file_is_whole_or_not_there(tmp_path):
    results = [LaneResult(1, [0.25], 2, {"Timeout": 1})]
    write(tmp_path / "r", results)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert read(tmp_path / "r", list[LaneResult]) == results
