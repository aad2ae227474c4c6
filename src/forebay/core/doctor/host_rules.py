"""Rules over one machine: its processors, memory, disks, GPUs and limits."""

import math
import re
from collections.abc import Callable, Iterator

from forebay.core.doctor.readings import Disk, Gpu, Host
from forebay.core.sizing import words
from forebay.core.sizing.findings import Finding

THROTTLED_RATIO = 0.2  # of the periods; the share at which the shipped alert rings too
PERIODS_MIN = 10  # fewer say nothing
STEAL_RATIO = 0.05
MEMORY_RATIO = 0.9
DISK_FREE_RATIO = 0.1
GPU_MEMORY_RATIO = 0.95
FILES_MIN = 4096  # descriptors: a connection takes one
CLOCK_AHEAD_S = 1.0
_BURSTABLE = re.compile(r"t[1-9][a-z]{0,2}\.\w+")


def host_findings(host: Host) -> list[Finding]:
    """Return what is wrong with a machine, in the order of the rules; empty when nothing is."""
    return [found for rule in RULES for found in rule(host)]


def cpus_needed(used: float, throttled_s: float, window_s: float) -> float:
    """Return the CPUs that work which was cut would have used: what it used, and what it was kept from.

    `throttled_s` is summed by the kernel over CPUs, so it is a time of processors as `used` is. A lower
    bound: threads that waited behind a cut one are not in it.
    """
    return used + (throttled_s / window_s if window_s > 0 else 0.0)


def _throttled(host: Host) -> Iterator[Finding]:
    cpu = host.cpu
    if cpu.quota is None or cpu.stat is None or cpu.stat.periods < PERIODS_MIN:
        return
    if cpu.stat.ratio <= THROTTLED_RATIO:
        return
    used = cpu.quota if cpu.used is None else cpu.used
    wanted = max(math.ceil(cpus_needed(used, cpu.stat.throttled_s, cpu.window_s)), math.floor(cpu.quota) + 1)
    evidence = (
        f"{cpu.stat.throttled:,} of {cpu.stat.periods:,} periods were cut ({cpu.stat.ratio:.0%}), for "
        f"{words.span(cpu.stat.throttled_s)}; {used:.1f} CPUs in use, and the quota gives {cpu.quota:g}"
    )
    if wanted > host.cpu.there:
        change = (
            f"{wanted} CPUs are wanted and the machine has {host.cpu.there}: fewer workers, or more machines"
        )
    else:
        change = f'allow {wanted} CPUs: docker update --cpus {wanted}, or resources.limits.cpu: "{wanted}"'
    yield Finding("cpu_throttled", evidence, change)


def _stolen(host: Host) -> Iterator[Finding]:
    steal = host.cpu.steal_ratio
    if steal is not None and steal > STEAL_RATIO:
        yield Finding(
            "cpu_stolen",
            f"{steal:.0%} of the processors' time went to other machines on the same host",
            "a machine with processors of its own, or another host",
        )


def _burst_credits(host: Host) -> Iterator[Finding]:
    if _BURSTABLE.fullmatch(host.model):
        yield Finding(
            "cpu_by_credits",
            f"this machine is a {host.model}: fast while it has credits, and a steady load spends them",
            "a type without credits (m, c or g family), or unlimited mode and an alarm on CPUCreditBalance",
        )


def _memory(host: Host) -> Iterator[Finding]:
    memory = host.memory
    if memory.oom_kills:
        limit = "" if memory.limit_b is None else f"; the limit is {words.size(memory.limit_b)}"
        yield Finding(
            "out_of_memory",
            f"the kernel killed {memory.oom_kills:,} of this group's processes{limit}",
            "a larger memory limit, fewer workers, or a smaller batch_max",
        )
    if memory.limit_b and memory.used_b is not None and memory.used_b > MEMORY_RATIO * memory.limit_b:
        wanted = words.size(math.ceil(memory.used_b * 1.25))
        yield Finding(
            "memory_nearly_full",
            f"{words.size(memory.used_b)} of {words.size(memory.limit_b)} are in use",
            f"allow {wanted}, or fewer workers: at the limit the kernel kills one",
        )


def _disks(host: Host) -> Iterator[Finding]:
    for disk in host.disks:
        if disk.size_b and disk.free_b < DISK_FREE_RATIO * disk.size_b:
            yield Finding("disk_nearly_full", _disk_evidence(disk), _disk_change(disk))
        if disk.inodes and disk.inodes_free < DISK_FREE_RATIO * disk.inodes:
            yield Finding(
                "inodes_nearly_used",
                f"{disk.name} ({disk.path}): {disk.inodes_free:,} of {disk.inodes:,} file entries are free",
                "remove files, or a file system with more of them",
            )


def _disk_evidence(disk: Disk) -> str:
    return f"{disk.name} ({disk.path}): {words.size(disk.free_b)} of {words.size(disk.size_b)} are free"


def _disk_change(disk: Disk) -> str:
    wanted_b = math.ceil(DISK_FREE_RATIO * disk.size_b) - disk.free_b
    return f"free {words.size(wanted_b)} there, or move it to a larger disk"


def _threads(host: Host) -> Iterator[Finding]:
    if host.processes < 2 or not host.thread_caps:
        return
    fair = max(1, math.floor(host.cpu.allowed / host.processes))
    each = max((cap if cap is not None else host.cpu.there) for _, cap in host.thread_caps)
    total = each * host.processes
    if total <= 2 * host.cpu.allowed:
        return
    unset = [name for name, cap in host.thread_caps if cap is None]
    said = f"{unset[0]} is not set" if unset else f"{host.thread_caps[0][0]} is {each}"
    yield Finding(
        "too_many_threads",
        f"{said}: {host.processes} processes of up to {each} threads on {host.cpu.allowed:g} CPUs",
        " ".join(f"{name}={fair}" for name, _ in host.thread_caps),
    )


def _gpus(host: Host) -> Iterator[Finding]:
    if host.gpus_unseen:
        yield Finding(
            "gpu_unseen", host.gpus_unseen, "install the driver's nvidia-smi, or give the container the GPU"
        )
    for gpu in host.gpus:
        if gpu.memory_b and gpu.used_b is not None and gpu.used_b > GPU_MEMORY_RATIO * gpu.memory_b:
            yield Finding(
                "gpu_memory_nearly_full",
                f"{gpu.name}: {words.size(gpu.used_b)} of {words.size(gpu.memory_b)} are in use",
                "a smaller batch_max, or fewer replicas on this GPU",
            )
        if gpu.held_by:
            yield _held(gpu)


def _held(gpu: Gpu) -> Finding:
    return Finding(
        "gpu_slowed",
        f"{gpu.name} runs below its clock: {', '.join(gpu.held_by)}",
        "better cooling, or a higher power limit (nvidia-smi -pl)",
    )


def _files(host: Host) -> Iterator[Finding]:
    if host.files_max is not None and host.files_max < FILES_MIN:
        yield Finding(
            "few_open_files",
            f"a process here may open {host.files_max:,} files and connections",
            f"ulimit -n {FILES_MIN * 16}, or LimitNOFILE={FILES_MIN * 16} in the unit",
        )


def _clock(host: Host) -> Iterator[Finding]:
    ahead = host.clock_ahead_s
    if ahead is not None and abs(ahead) > CLOCK_AHEAD_S:
        yield Finding(
            "clocks_differ",
            f"the server's clock is {words.span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} ours",
            "time synchronisation on both (chrony, systemd-timesyncd)",
        )


Rule = Callable[[Host], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    _throttled,
    _stolen,
    _burst_credits,
    _memory,
    _disks,
    _threads,
    _gpus,
    _files,
    _clock,
)
