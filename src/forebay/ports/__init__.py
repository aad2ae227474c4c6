"""Contracts: Protocols that the outside must satisfy."""
