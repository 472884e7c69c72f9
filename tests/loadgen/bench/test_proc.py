import os

from loadgen.bench import proc


def test_the_use_of_all_threads_is_summed_up(tmp_path):
    for number, (cpu, waited) in enumerate([("1500000000 7 9\n", 3), ("500000000 0 1\n", 4)]):
        task = tmp_path / "12" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(cpu)
        (task / "status").write_text(f"Name:\tx\nvoluntary_ctxt_switches:\t{waited}\nnonvoluntary_ctxt_switches:\t9\n")
    assert proc.used(12, tmp_path) == proc.Used(2.0, 7)


def test_a_thread_that_has_just_ended_counts_for_nothing(tmp_path):
    (tmp_path / "12" / "task" / "1").mkdir(parents=True)
    assert proc.used(12, tmp_path) == proc.Used(0.0, 0)


def test_memory_is_in_bytes(tmp_path):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "status").write_text("VmPeak:\t   900 kB\nVmRSS:\t   300 kB\n")
    assert proc.resident_bytes(12, tmp_path) == 300 * 1024


def test_the_most_memory_is_that_since_it_was_forgotten():
    proc.forget_peak(os.getpid())
    before = proc.peak_bytes(os.getpid())
    large = bytearray(64 << 20)
    at_most = proc.peak_bytes(os.getpid())
    del large
    proc.forget_peak(os.getpid())
    assert before + (60 << 20) < at_most
    assert proc.peak_bytes(os.getpid()) < at_most - (32 << 20)


def test_a_field_that_is_not_there_is_0():
    assert proc.field_of("Name:\tx\n", "VmRSS") == 0


def test_the_processes_are_found_that_any_of_its_threads_started(tmp_path):
    for number, children in enumerate(["13 14 ", "", "15 "]):
        task = tmp_path / "12" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
    (tmp_path / "12" / "task" / "ended").mkdir()
    assert sorted(proc.children(12, tmp_path)) == [13, 14, 15]


def test_the_kernel_tells_of_this_process():
    assert proc.resident_bytes(os.getpid()) > 1 << 20
    assert proc.used(os.getpid()).cpu_s > 0
