"""Deploying: one model of the capacity -> the files that run it: compose, Kubernetes, AWS, systemd."""

from collections.abc import Callable, Mapping
from typing import Final

from forebay.core.deploying.aws import aws_files
from forebay.core.deploying.compose import compose_files
from forebay.core.deploying.kubernetes import kubernetes_files
from forebay.core.deploying.model import Model
from forebay.core.deploying.systemd import systemd_files

PLACES: Final[Mapping[str, Callable[[Model], dict[str, str]]]] = {
    "compose": compose_files,
    "k8s": kubernetes_files,
    "aws": aws_files,
    "systemd": systemd_files,
}

__all__ = ["PLACES", "Model"]
