"""Sealing: what jobs hold is encrypted before an engine sees it, and opened on the way back."""

from forebay.brokers.sealed.sealing import sealed
from forebay.brokers.sealed.vault import Vault, vault_for

__all__ = ["Vault", "sealed", "vault_for"]
