"""Readings: what a machine, its containers and a server said. None everywhere: it could not be read."""

from typing import NamedTuple

from forebay.core.throttling import CpuStat


class Cpu(NamedTuple):
    """The processors of a group of processes, over a window of time."""

    there: int  # that the process may run on, before any quota
    quota: float | None = None  # CPUs that its cgroup allows
    stat: CpuStat | None = None  # what the quota did within the window
    used: float | None = None  # CPUs in use, the mean over the window
    window_s: float = 0.0
    steal_ratio: float | None = None  # of the machine's time, taken by whoever runs the machine

    @property
    def allowed(self) -> float:
        """CPUs that the process gets at most."""
        return float(self.there) if self.quota is None else min(float(self.there), self.quota)


class Memory(NamedTuple):
    """The memory of a group of processes, in bytes. `limit` is the group's, or all the machine has."""

    limit_b: int | None = None
    used_b: int | None = None  # without what the kernel can drop at once
    oom_kills: int | None = None  # since the group was made


class Disk(NamedTuple):
    """A file system under a directory."""

    name: str  # what lies there
    path: str
    size_b: int
    free_b: int
    inodes: int = 0  # 0: it has no fixed number of them
    inodes_free: int = 0


class Gpu(NamedTuple):
    """One accelerator, now."""

    name: str
    busy_ratio: float | None = None
    memory_b: int | None = None
    used_b: int | None = None
    held_by: tuple[str, ...] = ()  # what slows its clock: "thermal", "power"


class Container(NamedTuple):
    """What a container runtime says of one container."""

    name: str
    quota: float | None = None  # CPUs; None: no limit
    memory_b: int | None = None  # None: no limit
    gpus: int = 0  # -1: all
    oom_killed: bool = False
    restarts: int = 0
    used: float | None = None  # CPUs
    used_b: int | None = None


class Host(NamedTuple):
    """One machine, as one process on it sees it."""

    cpu: Cpu
    memory: Memory = Memory()
    disks: tuple[Disk, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpus_unseen: str = ""  # why a GPU that is there could not be read
    thread_caps: tuple[tuple[str, int | None], ...] = ()  # variables of maths libraries, and what they say
    processes: int = 1  # that would each use as many threads
    files_max: int | None = None  # descriptors of one process
    model: str = ""  # of the machine, as its firmware says: "t2.large"
    clock_ahead_s: float | None = None  # of the server's clock


class Served(NamedTuple):
    """One task of a running server."""

    task: str
    waiting: int = 0
    running: int = 0
    capacity: int = 0  # jobs its queue may hold
    size_b: int = 0
    capacity_b: int = 0
    oldest_age_s: float | None = None
    arrivals_per_s: float = 0.0  # lately
    served_per_s: float | None = None  # what all replicas can do; None: never measured
    replicas: int = 0
    ready: int | None = None  # replicas that take work now; None: not shown to us
    restarts: int = 0
    last_crash: str = ""
    paused: bool = False
    breaker: str = ""  # "open", "half_open", "closed", or none
    fixed_s: float | None = None  # of a run
    each_s: float | None = None  # of one item in it
    batch_max: int = 1
    deadline_s: float | None = None
    stale: int = 0  # results that came after their lease had ended
