"""Linting: files that say how inference is called, run and scaled -> what in them goes wrong under load."""

from forebay.core.linting.files import kind_of, lint
from forebay.core.linting.findings import RULES, Known, Level, Lint

__all__ = ["RULES", "Known", "Level", "Lint", "kind_of", "lint"]
