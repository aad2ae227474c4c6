"""Sizing: how large the queue, how many replicas, what becomes of a load: formulas with their sources.

Nothing here is measured and nothing is guessed: numbers in, numbers and reasons out.
"""
