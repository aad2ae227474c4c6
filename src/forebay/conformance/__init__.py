"""The contract of an engine as checks that run: CHECKS, run_checks; needs no test framework.

Authors of an engine run it so, and get a Report that names what failed and what was skipped and why:

    report = asyncio.run(run_checks(open_engine, reopen=reopen_engine))
    print(report)
"""

from forebay.conformance import (
    amending,
    blobs,
    cancelling,
    contending,
    crons,
    delivering,
    editing,
    joining,
    leasing,
    ordering,
    purging,
    quarantining,
    reading,
    redriving,
    reopening,
    settling,
    storing,
    tenants,
    timing,
)
from forebay.conformance.suite import CHECKS, Check, Open, Reopen, Report, run_check, run_checks

__all__ = [
    "CHECKS",
    "Check",
    "Open",
    "Reopen",
    "Report",
    "amending",
    "blobs",
    "cancelling",
    "contending",
    "crons",
    "delivering",
    "editing",
    "joining",
    "leasing",
    "ordering",
    "purging",
    "quarantining",
    "reading",
    "redriving",
    "reopening",
    "run_check",
    "run_checks",
    "settling",
    "storing",
    "tenants",
    "timing",
]
