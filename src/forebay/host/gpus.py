"""GPUs: how many there are, and what nvidia-smi says of them."""

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forebay.core.doctor.readings import Gpu
from forebay.host.cgroups import ROOT

ASK_MAX_S: Final = 10.0
GPUS_MAX: Final = 64  # told
_FIELDS: Final = ("name", "utilization.gpu", "memory.total", "memory.used")
_HELD: Final = "clocks_throttle_reasons.active"  # newer drivers know it by this name too
_MIB: Final = 1 << 20
# Bits of that field which mean that something is wrong. A power cap by software is how a busy GPU works.
_REASONS: Final = ((0x08, "hardware slowdown"), (0x60, "heat"), (0x80, "power brake"))


def gpu_files(root: Path = ROOT) -> int:
    """Return how many NVIDIA GPUs there are by their device files. Starts no program and loads no driver."""
    listed = _names(root / "proc/driver/nvidia/gpus")
    nodes = [name for name in _names(root / "dev") if re.fullmatch(r"nvidia\d+", name)]
    # A container given one card of eight sees eight in /proc and one device file.
    return len(nodes) if nodes else len(listed)


def read_gpus(root: Path = ROOT) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs as nvidia-smi tells them, and why it does not when there are some."""
    program = shutil.which("nvidia-smi")
    if program is None:
        there = gpu_files(root)
        return (), f"{there} NVIDIA GPUs are here and there is no nvidia-smi to read them" if there else ""
    why = ""
    for fields in ((*_FIELDS, _HELD), _FIELDS):  # an old driver refuses the whole question
        text, why = _ask([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
        if not why:
            return gpus_of(text), ""
    return (), f"nvidia-smi does not answer: {why}"


def gpus_of(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of an answer of nvidia-smi, one line each; what it does not know is None."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()[:GPUS_MAX]) if row]
    return tuple(_gpu(row) for row in rows if len(row) >= len(_FIELDS))


def _gpu(row: list[str]) -> Gpu:
    busy, size, used = (_number(cell) for cell in row[1:4])
    bits = int(row[4], 16) if len(row) > 4 and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", row[4]) else 0
    return Gpu(
        row[0],
        None if busy is None else busy / 100,
        None if size is None else int(size * _MIB),
        None if used is None else int(used * _MIB),
        tuple(name for mask, name in _REASONS if bits & mask),
    )


def _number(cell: str) -> float | None:
    return float(cell) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", cell) else None


def _ask(command: Sequence[str]) -> tuple[str, str]:
    """Return what a program prints, and why it could not be asked."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_MAX_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        return "", str(error)
    said = (done.stderr or done.stdout).strip().partition("\n")[0]
    return (done.stdout, "") if done.returncode == 0 else ("", said or f"exit code {done.returncode}")


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
