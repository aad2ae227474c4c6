"""ReplicaOwner: who hears what a child tells."""

from typing import Protocol, TypeVar

from forebay.node.death import Death
from forebay.node.frames import Breakers, Checkpoints, ItemResult, Parts, Ready

Child_contra = TypeVar("Child_contra", contravariant=True)  # whatever stands for a child


class ReplicaOwner(Protocol[Child_contra]):
    """Who hears from a replica. Called on the loop; must not raise; `on_death` comes last and once."""

    def on_ready(self, replica: Child_contra, ready: Ready) -> None:
        """The child is loaded and warm."""
        ...

    def on_results(self, replica: Child_contra, results: list[ItemResult], busy_s: float) -> None:
        """Items ended. `busy_s`: time the child spent on them, 0 when several ran at once."""
        ...

    def on_pass(self, replica: Child_contra, run: int, size: int) -> None:
        """Another call for part of a failed batch begins: its timeout starts anew."""
        ...

    def on_progress(self, replica: Child_contra, reports: list[tuple[int, float, str]]) -> None:
        """Newest progress: (tag, share, message)."""
        ...

    def on_news(self, replica: Child_contra, news: Checkpoints | Parts | Breakers) -> None:
        """Checkpoints to be stored, parts of outputs, or changes of breakers."""
        ...

    def on_returned(self, replica: Child_contra, tags: list[int]) -> None:
        """These never started and will not."""
        ...

    def on_death(self, replica: Child_contra, death: Death) -> None:
        """The process is gone and so is everything in its group. No results follow."""
        ...
