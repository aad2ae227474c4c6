"""TaskSpec: what servers, nodes and the simulator know of one task. Plain numbers, units last."""

from dataclasses import dataclass, field

from forebay.core.breaker import BreakerPolicy
from forebay.core.codel import Discipline
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.settle import SettlePolicy
from forebay.core.turns import Order
from forebay.core.upstream import UpstreamSpec
from forebay.core.variants import LadderPolicy

FORMATS_BY = "x-formats"  # in a schema: the library whose reading of "format" the door shares


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task as its application described it; every limit is explicit here."""

    name: str
    # "class": load once, predict batches; "function": shares the pool; "upstream": calls to a server
    kind: str = "function"
    upstream: UpstreamSpec | None = field(default=None, repr=False)
    doc: str = ""
    input_schema: dict[str, object] = field(
        default_factory=dict[str, object]
    )  # JSON Schema; {} takes any JSON
    output_schema: dict[str, object] = field(default_factory=dict[str, object])
    version: str = "1"
    priority: int = PRIORITY_NORMAL
    order: Order = Order.ARRIVAL  # inside a priority
    reserve: float = 0.0  # share of the replicas that only urgent jobs may use
    batch_max: int = 1
    batch_wait_s: float = 0.0
    timeout_s: float = 600.0  # of one run
    load_timeout_s: float = 600.0
    attempts_max: int = 3
    ttl_s: float = 86_400.0
    deadline_s: float | None = None
    discipline: Discipline = Discipline.DEADLINE  # of requests that wait
    wait_target_s: float | None = None  # of it; None: by the measured time of a full batch
    wait_interval_s: float | None = None
    queue_max: int | None = None  # None: the setting of the same name
    queue_bytes_max: int | None = None
    concurrency: int = 1  # async handlers running at once in one child
    replicas: int | None = None  # the most
    replicas_least: int | None = None  # where it is less: as many as the work needs, between the two
    devices: tuple[str, ...] | None = None
    recycle_after: int | None = None  # runs of a child before it is replaced
    recycle_memory_b: int | None = None  # resident bytes of a child before it is replaced
    coalesce: bool = False  # equal submissions join a job that has not ended
    cache_s: float = 0.0  # and one that succeeded, for so long
    retention_s: float | None = None  # of its jobs; None: the setting of the same name
    retention_failed_s: float | None = None  # of its dead letters
    breaker: BreakerPolicy | None = None  # None: it is called whatever became of the calls before
    fallback: str = ""  # the task that runs its jobs while the breaker is open
    canned: bytes | None = None  # or the JSON text that answers them
    ladder: LadderPolicy | None = None  # its variants, and when which of them runs
    on_version: str = "run"  # what becomes of a job of another version: run, wait (for its own) or fail
    settle: SettlePolicy = field(default_factory=SettlePolicy)
