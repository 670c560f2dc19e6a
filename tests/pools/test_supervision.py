"""Workers and their parent are killed for real: nothing is lost, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.llm import LLM
from minipd.pools import messages as m
from minipd.pools.cluster import Cluster, ClusterError, Run, Setup
from minipd.pools.links.direct import SameProcess, SharedMemory
from minipd.pools.links.emulated import Network
from minipd.pools.loop import serve
from minipd.pools.spawn import SILENT_AT_START_S, SILENT_S, ProcessWorker, WorkerSpec
from minipd.pools.supervisor import MAX_RESTARTS, RESTART_WINDOW_S, Supervisor
from minipd.request import Request
from minipd.timeline import TERMINAL_KINDS, Event
from tests.pools.helpers import answers, ask, check_same, check_sound, ending, events, when

posix = pytest.mark.skipif(os.name != "posix", reason="signals are sent to processes")
NOTICED_S = 15.0  # a second is the aim; a heart that stands still is noticed after SILENT_S
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


def process_of(cluster: Cluster, name: str) -> psutil.Process:
    handle = cluster.supervisor.handles[name]
    assert isinstance(handle, ProcessWorker) and handle.process.pid is not None
    return psutil.Process(handle.process.pid)


# -- workers in processes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow() -> Iterator[Cluster]:
    """A hand-off of 60 tokens (65,536 bytes in 4 layers) takes about 0.7 s."""
    setup = Setup(model="tiny", num_blocks=256, network=Network(0.01, 100e3))
    with Cluster(setup) as cluster:
        yield cluster


def run_and_kill(
    cluster: Cluster, victim: str, at: Callable[[Event], bool], requests: list[Request]
) -> tuple[Run, float]:
    """Kills the worker at an event; also how long it took until its death was in the timeline."""
    killed_s: list[float] = []

    def kill() -> None:
        process_of(cluster, victim).kill()
        killed_s.append(cluster.clock())

    when(cluster, at, kill)
    run = cluster.run(requests, timeout_s=200)
    cluster.on_event = None
    (died,) = [e for e in cluster.events if e.kind == "worker_died"]
    return run, died.t_s - killed_s[0]


DEATHS: dict[str, tuple[str, Callable[[Event], bool]]] = {
    "prefill worker, prompt begun": ("worker-0", lambda e: e.kind == "reserved"),
    "prefill worker, bytes on the wire": (
        "worker-0",
        lambda e: (e.kind, e.data.get("index")) == ("token", 0),
    ),
    "decode worker, bytes on the wire": (
        "worker-1",
        lambda e: (e.kind, e.data.get("index")) == ("token", 0),
    ),
    "decode worker, mid-answer": (
        "worker-1",
        lambda e: (e.kind, e.data.get("index")) == ("token", 5),
    ),
}


@pytest.mark.parametrize("death", DEATHS)
def test_killed_while_at_work(slow: Cluster, llm: LLM, death: str) -> None:
    victim, at = DEATHS[death]
    slow.reconfigure("disaggregated")  # with a clean list of lives
    epoch = slow.supervisor.handles[victim].spec.epoch
    requests = [ask("a", 60, 12), ask("b", 33, 8), ask("c", 20, 1), ask("d", 90, 4, 0.3)]
    run, noticed_s = run_and_kill(slow, victim, at, requests)
    check_sound(run, requests)
    assert {ending(run, r.id) for r in requests} == {("finished", "length")}
    check_same(llm, requests, answers(llm, requests), run)
    assert 0 <= noticed_s < NOTICED_S
    (died,) = events(run, "worker_died")
    assert (died.worker, died.data["epoch"]) == (victim, epoch)
    reasons = {e.data["reason"] for e in events(run, "prefill_started")}
    assert "recovered" in reasons
    slow._until_ready()  # nobody waits for a prefill worker: the run may end before it is back
    assert slow.supervisor.handles[victim].spec.epoch == epoch + 1
    started = {(e.worker, e.data["epoch"]) for e in events(run, "worker_started")}
    assert (victim, epoch + 1) in started or victim == "worker-0"


@posix
def test_submit_never_blocks(slow: Cluster) -> None:
    """A worker that does not read, as in a long prefill, must not hold up the coordinator."""
    worker = process_of(slow, "worker-0")
    handle = slow.supervisor.handles["worker-0"]
    worker.suspend()
    try:
        began = time.monotonic()
        for n in range(200):
            handle.submit(m.Connect("nobody", n, b"x" * 100_000))
        assert time.monotonic() - began < 20, "the worker does not read while it is stopped"
    finally:
        worker.resume()
    check_sound(slow.run([ask("a", 20, 3)], timeout_s=200), [ask("a", 20, 3)])


# -- the parent -------------------------------------------------------------------------------

SCRIPT = """
    import sys, threading
    from minipd.pools.cluster import Cluster, Setup
    from minipd.request import Request, SamplingParams

    def begun(event):
        if event.kind == "token":
            print("running", flush=True)
            cluster.on_event = None

    if __name__ == "__main__":
        with Cluster(Setup(model="tiny", num_blocks=256, cpus=((0,), (0,)))) as cluster:
            workers = [h.process.pid for h in cluster.supervisor.handles.values()]
            print(cluster.supervisor._folder, *workers, flush=True)
            print(*cluster.notes, flush=True)
            cluster.on_event = begun
            params = SamplingParams(3500, ignore_eos=True)
            while True:
                cluster.run([Request(f"r{n}", (5, 6, n + 9), params) for n in range(4)])
"""


@posix
@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_the_parent_ends_and_takes_all_with_it(tmp_path: Path, how: str) -> None:
    """Both workers on one core: it works, and a note says what that cannot show."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert parent.stdout is not None and parent.stderr is not None
    try:
        folder, *pids = parent.stdout.readline().split()
        assert "2 workers share 1 core" in parent.stdout.readline()
        assert parent.stdout.readline() == "running\n"
        workers = [psutil.Process(int(pid)) for pid in pids]
        assert len(workers) == 2 and Path(folder).is_dir()
        if hasattr(psutil.Process, "cpu_affinity"):
            assert [w.cpu_affinity() for w in workers] == [[0], [0]]
        if how == "SIGINT":  # a terminal sends it to the whole group
            os.killpg(parent.pid, signal.SIGINT)
        else:
            parent.kill()
        parent.wait(timeout=120)
        _, alive = psutil.wait_procs(workers, timeout=120)
        assert not alive
        give_up = time.monotonic() + 60
        while Path(folder).exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        assert not Path(folder).exists()
        if how == "SIGINT":
            told = parent.stderr.read()
            assert told.count("Traceback") == 1 and "KeyboardInterrupt" in told  # not the workers'
    finally:
        parent.kill()
        parent.stdout.close()
        parent.stderr.close()


def test_cores_that_are_not_there() -> None:
    with pytest.raises(ClusterError, match="Worker worker-. could not start: .*invalid"):
        Cluster(Setup(model="tiny", cpus=((4095,), (4095,))))


# -- workers in threads -----------------------------------------------------------------------


def test_a_worker_that_cannot_start(start: Callable[..., Cluster]) -> None:
    before = threading.enumerate()
    with pytest.raises(ClusterError, match="Worker worker-. could not start: .*no-such-model"):
        start(model="no-such-model")
    assert not [t for t in threading.enumerate() if "worker" in t.name and t not in before]


def test_a_link_that_cannot_be_set_up(
    start: Callable[..., Cluster], llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decode workers read the prompts themselves, and say why."""

    def no_link(*_: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(SameProcess, "connect", no_link)
    requests = [ask(f"r{n}", 30 + n, 1 + n) for n in range(4)]
    run = start().run(requests, timeout_s=60)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert not events(run, "committed")
    reasons = {(e.worker, e.data["reason"]) for e in events(run, "prefill_started")}
    assert reasons == {("worker-0", "prompt"), ("worker-1", "recovered")}


def failing(
    monkeypatch: pytest.MonkeyPatch, worker: str, times: float, request_id: str = "a"
) -> None:
    """The executor of one worker raises whenever it should run this request."""
    run, left = Executor.run, [times]

    def raises(self: Executor, chunks: list[Chunk]) -> list[int]:
        is_it = any(c.request_id == request_id for c in chunks)
        if is_it and threading.current_thread().name == worker and left[0] > 0:
            left[0] -= 1
            raise RuntimeError("a broken machine")
        return run(self, chunks)

    monkeypatch.setattr(Executor, "run", raises)


@pytest.mark.parametrize("worker", ["worker-0", "worker-1"])
def test_a_worker_that_crashes_once(
    start: Callable[..., Cluster], llm: LLM, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    requests = [ask(n, 40, 6) for n in "abc"]
    cluster = start(network=Network(0.05, 1e6))
    failing(monkeypatch, worker, 1)
    run = cluster.run(requests, timeout_s=100)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    (died,) = events(run, "worker_died")
    assert (died.worker, died.data["reason"]) == (worker, "RuntimeError: a broken machine")
    assert run.leaked_blocks  # of those that are there at its end


def test_an_audit_waits_for_nobody_who_starts_meanwhile(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """worker-1 answers only after worker-0's next life has begun, which nobody has asked."""
    cluster = start()
    cluster._died("worker-0", "for this test")
    handle, kept = cluster.supervisor.handles["worker-1"], list[m.FromWorker]()
    poll = handle.poll

    def answers_late() -> list[m.FromWorker]:
        kept.extend(poll())
        if "worker-0" not in cluster.supervisor.started:
            return []
        told = list(kept)
        kept.clear()
        return told

    monkeypatch.setattr(handle, "poll", answers_late)
    monkeypatch.setattr("minipd.pools.cluster.Cluster._until", in_time(Cluster._until))
    assert cluster.audit() == {"worker-1": 0}
    assert set(cluster.audit()) == {"worker-0", "worker-1"}


def in_time(until: Callable[..., None]) -> Callable[..., None]:
    """The same waiting, with a shorter patience than that of a whole start."""
    return lambda cluster, done: until(cluster, done, 120.0)


def test_a_worker_that_crashes_again_and_again(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that does it is given up; others are answered as long as a worker is left."""
    cluster, requests = start(), [ask(n, 40, 6) for n in "ab"]
    failing(monkeypatch, "worker-1", float("inf"))
    run = cluster.run(requests[:1], timeout_s=100)
    check_sound(run, requests[:1])
    assert ending(run, "a") == ("failed", "its worker died 3 times")
    check_sound(cluster.run(requests[1:], timeout_s=100), requests[1:])
    run = cluster.run(requests[:1], timeout_s=100)
    reason = "no decode worker is left, and none can be restarted"
    assert ending(run, "a") == ("failed", reason)
    run = cluster.run(requests[1:], timeout_s=100)
    assert ending(run, "b") == ("failed", reason)
    cluster.reconfigure("colocated")  # what is left can still serve
    check_sound(cluster.run(requests, timeout_s=100), requests)


def test_a_prefill_pool_that_is_gone_for_good(
    start: Callable[..., Cluster], llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run costs the prefill worker a life; then the decode worker reads for itself."""
    cluster = start()
    for n in range(MAX_RESTARTS + 2):
        request = ask(f"r{n}", 40, 6)
        failing(monkeypatch, "worker-0", 1, request.id)
        run = cluster.run([request], timeout_s=100)
        check_sound(run, [request])
        check_same(llm, [request], answers(llm, [request]), run)
        (started,) = events(run, "prefill_started")
        assert started.data["reason"] == ("recovered" if n <= MAX_RESTARTS else "local")
    (routed,) = events(run, "routed")
    assert routed.data["reason"] == "no prefill worker is ready"


# -- the shared folder --------------------------------------------------------------------------


def test_threads_need_no_shared_folder(start: Callable[..., Cluster]) -> None:
    assert start().supervisor._folder == ""


def test_a_worker_whose_coordinator_died_while_it_was_built_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its store was already there or not."""
    folder = tmp_path / "minipd-x"

    def spec() -> WorkerSpec:
        return WorkerSpec("w", 0, "tiny", "cpu", "float32", 8, 16, SharedMemory(str(folder)))

    def gone(*_: object) -> None:
        raise BrokenPipeError

    def breaks(*_: object, **__: object) -> None:
        raise OSError("out of memory")

    folder.mkdir()
    serve(spec, gone, lambda _: [])
    assert not folder.exists()
    folder.mkdir()
    monkeypatch.setattr("minipd.pools.build.Executor", breaks)
    with pytest.raises(BrokenPipeError):
        serve(spec, gone, lambda _: [])
    assert not folder.exists()
    folder.mkdir()
    monkeypatch.setattr("minipd.pools.build.load", breaks)
    with pytest.raises(BrokenPipeError):
        serve(spec, gone, lambda _: [])
    assert not folder.exists()


@pytest.mark.parametrize(
    ("in_memory", "on_disk", "place"),
    [(1 << 40, 1 << 40, "/dev/shm"), (64 << 20, 1 << 40, "disk"), (0, 64 << 20, None)],
)
def test_the_shared_folder_lies_where_all_stores_fit(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    in_memory: int,
    on_disk: int,
    place: str | None,
) -> None:
    """Four stores of 128 MiB each: Docker's 64 MB of shared memory are not enough."""
    free = {Path("/dev/shm"): in_memory, tmp_path: on_disk}
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(
        "minipd.pools.supervisor.shutil.disk_usage", lambda x: SimpleNamespace(free=free[x])
    )
    setup = Setup(model="tiny", num_prefill=2, num_decode=2, num_blocks=8192, block_size=16)
    if place is None:
        with pytest.raises(ClusterError, match="stores of 4 workers need 512 MiB.* 64 MiB free"):
            Supervisor(setup)
        return
    if place == "/dev/shm" and not Path(place).is_dir():
        pytest.skip("there is no /dev/shm here")
    supervisor = Supervisor(setup)
    wanted = tmp_path if place == "disk" else Path(place)
    assert Path(supervisor._folder).parent == wanted
    supervisor.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="cannot reserve disk here")
def test_a_store_that_does_not_fit_is_an_error_and_no_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    said: list[m.FromWorker] = []
    spec = WorkerSpec("w", 0, "tiny", "cpu", "float32", 8, 16, SharedMemory(str(tmp_path / "x")))
    serve(lambda: spec, said.append, lambda _: [])
    assert said == [m.Crashed("OSError: [Errno 28] No space left on device")]


def test_restarts_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lives in a window are all; a worker that dies once an hour lives on for ever."""

    class Silent:
        def __init__(self, spec: WorkerSpec) -> None:
            self.spec = spec

        def submit(self, message: m.ToWorker) -> None: ...

        def kill(self) -> None: ...

        def close(self) -> None: ...

    now = [0.0]
    monkeypatch.setattr("minipd.pools.supervisor.ThreadWorker", Silent)
    monkeypatch.setattr("minipd.pools.supervisor.time", SimpleNamespace(monotonic=lambda: now[0]))
    supervisor = Supervisor(Setup(model="tiny", pool="threads"))
    supervisor.start(0)
    for _ in range(5 * MAX_RESTARTS):
        now[0] += RESTART_WINDOW_S
        supervisor.started["worker-0"] = object()  # type: ignore[assignment]
        assert supervisor.replace("worker-0", "killed") is not None
    for n in range(MAX_RESTARTS):
        now[0] += 1.0
        supervisor.started["worker-0"] = object()  # type: ignore[assignment]
        is_given_up = supervisor.replace("worker-0", "killed") is None
        assert is_given_up == (n == MAX_RESTARTS - 1)


@pytest.mark.parametrize(
    ("has_spoken", "patience_s"), [(True, SILENT_S), (False, SILENT_AT_START_S)]
)
def test_a_pause_of_the_coordinator_is_no_silence_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, has_spoken: bool, patience_s: float
) -> None:
    """A closed laptop stops both; the worker gets its time to beat again."""
    now = [100.0]
    worker = ProcessWorker.__new__(ProcessWorker)
    worker.process = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    worker._beat = SimpleNamespace(value=100.0)
    worker._asked_s = worker._since_s = 100.0
    worker._has_spoken = has_spoken
    monkeypatch.setattr("minipd.pools.spawn.time", SimpleNamespace(monotonic=lambda: now[0]))
    now[0] += 3600.0
    assert worker.is_alive
    for _ in range(200):
        now[0] += 1.0
        if not worker.is_alive:
            break
    assert now[0] == 3700.0 + patience_s  # and no more than that, if it is really hung


@posix
def test_a_hung_process_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP leaves it alive for the system; its heart stops, and its requests go on elsewhere."""
    with Cluster(Setup(model="tiny", num_blocks=256)) as cluster:
        monkeypatch.setattr("minipd.pools.spawn.SILENT_S", 15.0)
        process_of(cluster, "worker-1").suspend()
        run = cluster.run([ask("one", 40)], timeout_s=240)
    assert any(e.kind == "worker_died" for e in run.timeline)
    assert [e.kind for e in run.timeline if e.kind in TERMINAL_KINDS] == ["finished"]
    assert set(run.leaked_blocks.values()) == {0}
