"""LLM steps: run them live or through their offline equivalents, checked, counted and recorded."""

from __future__ import annotations

from kit.llm.answer import AnswerError, read_answer, valid_value
from kit.llm.client import LLM, CallError, Completion, LiteLLM, Request, Usage
from kit.llm.limits import CallLimits
from kit.llm.mode import REQUESTS, Mode, offline_cause, resolve_mode
from kit.llm.record import Recorder
from kit.llm.replay import ReplaySource
from kit.llm.step import StepFailure, StepResult, StepSpec, run_each, run_step

__all__ = [
    "LLM",
    "REQUESTS",
    "AnswerError",
    "CallError",
    "CallLimits",
    "Completion",
    "LiteLLM",
    "Mode",
    "Recorder",
    "ReplaySource",
    "Request",
    "StepFailure",
    "StepResult",
    "StepSpec",
    "Usage",
    "offline_cause",
    "read_answer",
    "resolve_mode",
    "run_each",
    "run_step",
    "valid_value",
]
