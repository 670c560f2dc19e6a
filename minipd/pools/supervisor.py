"""Starting workers, telling them of each other, and starting them again when they die."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from pathlib import Path

from minipd.cache.store import KVLayout, free_bytes
from minipd.model.config import ModelConfig
from minipd.model.load import DTYPES, find_folder
from minipd.pools import messages as m
from minipd.pools.links.base import Link
from minipd.pools.links.choose import choose_link
from minipd.pools.links.emulated import Emulated
from minipd.pools.setup import Setup
from minipd.pools.spawn import ProcessWorker, ThreadWorker, WorkerHandle, WorkerSpec
from minipd.pools.tickets import Member

MAX_RESTARTS = 3  # of one worker within `RESTART_WINDOW_S`: one more, and it is given up
RESTART_WINDOW_S = 600.0


class ClusterError(RuntimeError):
    """Workers that cannot be started or have all gone; the message says what to do."""


class Supervisor:
    """The workers of one cluster, by name, and the folder in which they share memory (empty: none).

    Worker i keeps the name `worker-i` through all its lives; each life has the next epoch.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.roles: dict[str, m.Role] = {}  # of workers that have changed theirs
        self.handles: dict[str, WorkerHandle] = {}
        self.started: dict[str, m.Started] = {}
        self.limits: m.Started | None = None  # of any worker: all are alike, in all their lives
        self._indices: dict[str, int] = {}
        self._restarts_s: dict[str, list[float]] = {}
        self._folder = _shared_folder(setup)

    def start(self, index: int, epoch: int = 0) -> Member:
        """Start worker `index`; it says `Started` when it is ready to be configured."""
        setup, name = self.setup, f"worker-{index}"
        spec = WorkerSpec(
            name=name,
            epoch=epoch,
            model=setup.model,
            device=setup.devices[index % len(setup.devices)],
            dtype=setup.dtype,
            num_blocks=setup.num_blocks,
            block_size=setup.block_size,
            link=self._link(),
            cpus=setup.cpus[index] if setup.cpus else (),
            threads=setup.threads,
            sm_share=setup.prefill_sm_share if index < setup.num_prefill else None,
            deterministic=setup.deterministic,
            pace=setup.pace,
            tiers=setup.tiers.of_worker(name),
        )
        kind = ProcessWorker if setup.pool == "processes" else ThreadWorker
        self.handles[name], self._indices[name] = kind(spec), index
        return self.member(name)

    def member(self, name: str) -> Member:
        handle = self.handles[name]
        return Member(name, handle.spec.epoch, self._order(name).role, handle.submit)

    def configure(self, name: str) -> None:
        self.handles[name].submit(self._order(name))

    def _order(self, name: str) -> m.Configure:
        if name in self.roles:
            return self.setup.configure_as(self.roles[name])
        return self.setup.configure(self._indices[name])

    def _link(self) -> Link:
        setup, is_one_process = self.setup, self.setup.pool == "threads"
        link = choose_link(setup.link, setup.devices, self._folder, in_one_process=is_one_process)
        return Emulated(link, setup.network) if setup.network else link

    def welcome(self, name: str, started: m.Started) -> None:
        """Give a new worker its role, and let it and all others write into each other's stores."""
        self.started[name] = self.limits = started
        self.configure(name)
        mine = self.handles[name]
        for other, known in self.started.items():
            if other != name:
                theirs = self.handles[other]
                theirs.submit(m.Connect(name, mine.spec.epoch, started.registration))
                mine.submit(m.Connect(other, theirs.spec.epoch, known.registration))

    def replace(self, name: str, reason: str) -> Member | None:
        """Make sure that a worker is gone, and start its next life; None when it had enough.

        Raises `ClusterError` when its very first life never began.
        """
        handle = self.handles[name]
        was_started = self.started.pop(name, None) is not None
        epoch = handle.spec.epoch
        handle.kill()  # from here on it writes to nobody's memory
        for file in Path(self._folder).glob(f"{name}-{epoch}.*") if self._folder else ():
            with contextlib.suppress(OSError):  # Windows keeps it while others map it
                file.unlink()
        if not was_started and epoch == 0:
            raise ClusterError(f"Worker {name} could not start: {reason.rstrip('.')}.")
        now, before = time.monotonic(), self._restarts_s.get(name, [])
        recent = [t for t in before if now - t < RESTART_WINDOW_S]
        if len(recent) >= MAX_RESTARTS:
            del self.handles[name]
            return None
        self._restarts_s[name] = [*recent, now]
        return self.start(self._indices[name], epoch + 1)

    def close(self) -> None:
        """Stop every worker and remove the shared files."""
        for handle in self.handles.values():
            handle.submit(m.Stop())
        try:
            for handle in self.handles.values():
                handle.close()
        except KeyboardInterrupt:  # a second Ctrl-C: no more patience
            for handle in self.handles.values():
                handle.kill()
            raise
        finally:
            self.handles.clear()
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)


def _shared_folder(setup: Setup) -> str:
    """A new folder with room for all workers' stores; "" where nobody shares memory as files.

    In memory where that is large enough (Docker's /dev/shm often has 64 MB), else on disk: the
    first write beyond the end of either would kill a worker. Raises `ClusterError`.
    """
    if not (setup.pool == "processes" and setup.link == "direct" and "cpu" in setup.devices):
        return ""
    config = json.loads((find_folder(setup.model) / "config.json").read_text("utf-8-sig"))
    sizes = ModelConfig.from_hf(config), setup.num_blocks, setup.block_size
    needed = setup.num_workers * KVLayout.of(*sizes, DTYPES[setup.dtype]).total_bytes
    memory, disk = Path("/dev/shm"), Path(tempfile.gettempdir())
    free = {x: shutil.disk_usage(x).free for x in (memory, disk) if x.is_dir()}
    if min(free.get(memory, 0), free_bytes("cpu")) > needed:
        return tempfile.mkdtemp(prefix="minipd-", dir=memory)
    if free[disk] > needed:
        return tempfile.mkdtemp(prefix="minipd-", dir=disk)
    raise ClusterError(
        f"The KV stores of {setup.num_workers} workers need {needed >> 20} MiB in a folder that "
        f"all can map, and {disk} has {free[disk] >> 20} MiB free: ask for fewer blocks, or set "
        "TMPDIR to a roomier folder."
    )
