"""Whole jobs: the only place that wires rooms together."""
