"""Pipeline: stages in a row, declared once and checked; `run` takes frames through them to the sinks."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from forebay.config import process_environment
from forebay.core.fairness import WEIGHT_MAX, WEIGHT_MIN
from forebay.core.lanes import StreamShare
from forebay.declare.options import Reader, refuse
from forebay.errors import AppError
from forebay.node.limits import gpus_present
from forebay.pipeline.report import Report
from forebay.pipeline.running import GRACE_S, Running
from forebay.pipeline.stage import Stage

STAGES_MAX: Final = 32
SOURCES_MAX: Final = 256


class Pipeline:
    """Stages in a row, each with a bounded queue before it.

    `deadline`: of each frame, from its capture; one that is past it is dropped before the next stage takes
    it. `weights`: of streams that are to have more (or less) than an equal part of the turns. `protected`:
    streams that are degraded one step later than others and lose frames after them. `bytes_max`: of all
    frames that wait; without it, 80 % of the memory that is free.

    Every frame is accounted for: sent = served + dropped, by reason + in flight. Results of one stream leave
    in the order of its frames. Not promised: any order between streams. Raises AppError with one line.
    """

    def __init__(
        self,
        *stages: Stage,
        deadline: float | str | None = None,
        weights: Mapping[str, float] | None = None,
        protected: Collection[str] = (),
        bytes_max: int | str | None = None,
        name: str = "pipeline",
    ) -> None:
        read = Reader("pipeline")
        if not 1 <= len(stages) <= STAGES_MAX:
            raise AppError(f"pipeline: it has 1 to {STAGES_MAX} stages, not {len(stages)}")
        for stage in stages:
            if not isinstance(stage, Stage):
                raise refuse("pipeline", "each stage", "a forebay.Stage", stage)
        names = [stage.name for stage in stages]
        twice = next((one for one in names if names.count(one) > 1), None)
        if twice is not None:
            raise AppError(f"pipeline: two stages are called {twice}; give one of them another name=")
        self.stages = stages
        self.name = name
        self._deadline_s = None if deadline is None else read.seconds("deadline", deadline)
        self._bytes_max = read.size_or_none("bytes_max", bytes_max)
        self._shares = _shares(weights or {}, protected)

    def start(self, *sources: Any, sinks: Iterable[Any] = ()) -> Running:
        """Load the stages and begin; return what is running. Raises AppError when a stage cannot be loaded,
        InvalidError for what is no source or sink, NoMemoryError for queues that memory cannot hold."""
        if not 1 <= len(sources) <= SOURCES_MAX:
            raise AppError(f"pipeline {self.name}: it takes 1 to {SOURCES_MAX} sources, not {len(sources)}")
        running = Running(
            self.name,
            self.stages,
            sources,
            tuple(sinks),
            shares=self._shares,
            deadline_s=self._deadline_s,
            bytes_max=self._bytes_max,
            gpus=gpus_present(process_environment()),
        )
        running.start()
        return running

    def run(
        self, *sources: Any, sink: Any = None, sinks: Iterable[Any] = (), grace: float | str = GRACE_S
    ) -> Report:
        """Run until every source has ended and every frame is served or dropped; return what was done.

        A source is an iterable of arrays, bytes or Captured, or one of `forebay.sources`. A sink is a
        function of one Result, or one of `forebay.sinks`. An interrupt closes the sources, serves what waits
        for `grace`, and is raised again. Raises what `start` raises, and the error of a source that failed.
        """
        grace_s = Reader("pipeline").seconds("grace", grace, positive=False)
        all_sinks = (*sinks, *(() if sink is None else (sink,)))
        running = self.start(*sources, sinks=all_sinks)
        try:
            running.wait()
        except BaseException:
            running.stop(grace_s)
            raise
        if running.errors:
            raise running.errors[0]
        return running.report()

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {' > '.join(stage.name for stage in self.stages)}>"


def _shares(weights: Mapping[str, float], protected: Collection[str]) -> dict[str, StreamShare]:
    if isinstance(protected, str):
        raise refuse("pipeline", "protected", 'names of streams, such as ["door"]', protected)
    for name, weight in weights.items():
        if type(weight) not in (int, float) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            raise refuse(
                "pipeline", f"the weight of {name}", f"from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}", weight
            )
    return {
        name: StreamShare(float(weights.get(name, 1.0)), name in protected) for name in {*weights, *protected}
    }
