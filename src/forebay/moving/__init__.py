"""Moving: all jobs of one engine to another, whole, as often as it takes."""

from forebay.moving.move import Moved, give_up, move, survey

__all__ = ["Moved", "give_up", "move", "survey"]
