"""Device: where a replica computes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or the CPU. `str(device)` is what the common frameworks take: "cuda:0" or "cpu".

    A replica sees only its own GPU (CUDA_VISIBLE_DEVICES), so inside it the index is 0; `slot` is the
    number of the GPU on the machine.
    """

    kind: str = "cpu"  # "cuda" or "cpu"
    index: int = 0
    slot: int | None = None

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else self.kind
