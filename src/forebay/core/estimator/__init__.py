"""Estimating: what was measured of a task -> position to p50 and p90, calibrated by what became true."""

from forebay.core.estimator.crew import Crew
from forebay.core.estimator.estimator import Estimator
from forebay.core.estimator.eta import Eta

__all__ = ["Crew", "Estimator", "Eta"]
