"""Degradation: the vocabulary, a manifest's policy, and the report that travels with a result."""

from __future__ import annotations

from kit.degradation.policy import Policy, Rule, problems
from kit.degradation.report import DegradationReport, Entry, ReportBuilder
from kit.degradation.triggers import ABORT, ACTIONS, TRIGGERS, Trigger, failure_label
from kit.degradation.wording import QUALITIES, step_label

__all__ = [
    "ABORT",
    "ACTIONS",
    "QUALITIES",
    "TRIGGERS",
    "DegradationReport",
    "Entry",
    "Policy",
    "ReportBuilder",
    "Rule",
    "Trigger",
    "failure_label",
    "problems",
    "step_label",
]
