"""Watermark: a high and a low mark with hysteresis, so that an answer does not flap at one level."""


class Watermark:
    """Raised when a level reaches `high`, lowered when it falls to `low`."""

    __slots__ = ("high", "low", "raised")

    def __init__(self, *, low: float, high: float) -> None:
        assert low <= high
        self.low = low
        self.high = high
        self.raised = False

    def see(self, level: float) -> bool:
        """Take in a level and return whether the mark is raised now."""
        if level >= self.high:
            self.raised = True
        elif level <= self.low:
            self.raised = False
        return self.raised
