from proxy.observe.log_writer import LineRun, Loss, Losses

KILLED = Loss("boot-0", "killed", "", None, 7, None, 1, 2)


def test_losses_of_one_cause_are_summed_up():
    losses = Losses("boot-1")
    losses.lose("disk", LineRun(2, 5, 6, 100, 110), "full")
    losses.lose("queue", LineRun(1, 7, 7, 120, 120))
    losses.lose("disk", LineRun(3, 9, 11, 130, 140), "still full")
    assert losses.take() == [
        Loss("boot-1", "disk", "still full", 5, 5, 11, 100, 140),
        Loss("boot-1", "queue", "", 1, 7, 7, 120, 120),
    ]
    assert (losses.total, losses.take()) == (6, [])


def test_what_is_given_back_is_declared_again_with_what_was_lost_since():
    losses = Losses("boot-1", [KILLED])
    losses.lose("disk", LineRun(2, 5, 6, 100, 110), "full")
    taken = losses.take()
    losses.lose("disk", LineRun(1, 7, 7, 120, 120), "full")
    losses.give_back(taken)
    assert losses.take() == [KILLED, Loss("boot-1", "disk", "full", 3, 5, 7, 100, 120)]
    assert losses.total == 3


def test_the_rest_of_some_lines_begins_behind_those_that_are_there():
    assert LineRun(5, 10, 14, 1, 2).without_first(2) == LineRun(3, 12, 14, 1, 2)
