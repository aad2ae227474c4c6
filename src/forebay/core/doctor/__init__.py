"""What is wrong, from readings alone: each rule names a cause, its evidence and the exact change."""

from forebay.core.doctor.container_rules import container_findings
from forebay.core.doctor.host_rules import host_findings
from forebay.core.doctor.served_rules import readiness_findings, served_findings

__all__ = ["container_findings", "host_findings", "readiness_findings", "served_findings"]
