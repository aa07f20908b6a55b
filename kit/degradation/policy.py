"""The degradation policy of a manifest: which action answers which trigger.

Read strictly, every mistake is an error (lint, freeze). Read at run time, a mistaken or missing
rule gives way to the trigger's default, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kit.degradation import wording
from kit.degradation.triggers import ACTIONS, TRIGGERS, Trigger
from kit.errors import BundleError
from kit.schemas import suggestion

__all__ = ["Policy", "Rule", "problems"]

_ANY = "any"
_SELECTORS = ("step", "field", "mcp")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is done about one trigger.

    Attributes:
        trigger: Name of the trigger.
        step: The LLM step the rule is limited to, or None.
        action: A word of `ACTIONS`.
        report_text: Reason text with placeholders; empty uses the trigger's own.
        params: Numbers of the rule, such as `max_lag_minutes`.
        selectors: Key -> value the rule is limited to (`step`, `field`, `mcp`).
        by_default: Whether no rule of the manifest applied.
    """

    trigger: str
    step: str | None = None
    action: str
    report_text: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    selectors: Mapping[str, str] = field(default_factory=dict)
    by_default: bool = False


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rules of one manifest, and which of its steps have a fallback template.

    Attributes:
        rules: Rules in the manifest's order.
        templated: Names of LLM steps that declare `fallback_template_path`.
        ignored: Mistakes that were passed over, when the policy was read for a run.
    """

    rules: tuple[Rule, ...] = ()
    templated: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Policy:
        """Read the policy of a whole manifest, strictly.

        Raises:
            BundleError: `bundle.policy`, listing every mistaken rule (a missing rule is lint's).
        """
        policy = cls.at_run_time(manifest)
        if policy.ignored:
            raise BundleError(
                "bundle.policy",
                "; ".join(policy.ignored),
                where="manifest.json",
                remedy="mend the rules named above",
                details={"problems": list(policy.ignored)},
            )
        return policy

    @classmethod
    def at_run_time(cls, manifest: Mapping[str, Any]) -> Policy:
        """Read the policy of a whole manifest for a run: never fails, mistakes go to `ignored`."""
        rules, mistakes = _read_rules(manifest)
        return cls(rules=tuple(rules), templated=_templated(manifest), ignored=tuple(mistakes))

    def rule(
        self,
        trigger: str,
        step: str | None = None,
        *,
        field: str | None = None,
        mcp: str | None = None,
    ) -> Rule:
        """Return the rule for a trigger: the most specific one, else the default.

        Args:
            trigger: Name of the trigger.
            step: LLM step concerned.
            field: Field concerned, for `required_field_missing`.
            mcp: Server concerned, for `required_mcp_unavailable`.

        Raises:
            KeyError: The trigger is not in the vocabulary: a mistake of the caller.
        """
        known = TRIGGERS[trigger]
        facts = {"step": step, "field": field, "mcp": mcp}
        fitting = [
            rule
            for rule in self.rules
            if rule.trigger == trigger
            and all(facts[key] == value for key, value in rule.selectors.items())
        ]
        if fitting:
            # max keeps the first of equals: the manifest's order decides.
            return max(fitting, key=lambda rule: len(rule.selectors))
        action = known.default
        if step in self.templated and known.default_with_template is not None:
            action = known.default_with_template
        return Rule(trigger=trigger, step=step, action=action, by_default=True)


def problems(manifest: Mapping[str, Any]) -> list[str]:
    """Return everything wrong with a manifest's policy, missing rules included, for lint.

    Each entry starts with a dotted path such as `degradation_policy.rules[2].action`.
    """
    policy = Policy.at_run_time(manifest)
    return [*policy.ignored, *_missing(manifest, policy)]


def _templated(manifest: Mapping[str, Any]) -> frozenset[str]:
    steps = manifest.get("llm_steps")
    if not isinstance(steps, Mapping):
        return frozenset()
    return frozenset(
        name
        for name, step in steps.items()
        if isinstance(step, Mapping) and step.get("fallback_template_path")
    )


def _missing(manifest: Mapping[str, Any], policy: Policy) -> list[str]:
    """Name the rules a manifest owes: the triggers it can meet, a rule for each of its steps."""
    found = []
    lock = manifest.get("env_lock")
    mcps = lock.get("required_mcps") if isinstance(lock, Mapping) else None
    steps = manifest.get("llm_steps")
    for trigger in TRIGGERS.values():
        if not trigger.owed or (trigger.name == "required_mcp_unavailable" and not mcps):
            continue
        if trigger.name == "llm_step_failed":
            found += [
                f"degradation_policy.rules: no rule for {trigger.name} of step {step!r}"
                for step in (steps if isinstance(steps, Mapping) else ())
                if policy.rule(trigger.name, step).by_default
            ]
        elif all(rule.trigger != trigger.name for rule in policy.rules):
            found.append(f"degradation_policy.rules: no rule for {trigger.name}")
    return found


def _read_rules(manifest: Mapping[str, Any]) -> tuple[list[Rule], list[str]]:
    block = manifest.get("degradation_policy")
    rows = block.get("rules") if isinstance(block, Mapping) else None
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return [], ["degradation_policy.rules: missing, or not a list"]
    steps = manifest.get("llm_steps")
    known_steps = set(steps) if isinstance(steps, Mapping) else set()
    rules: list[Rule] = []
    mistakes: list[str] = []
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    for position, row in enumerate(rows):
        path = f"degradation_policy.rules[{position}]"
        rule, wrong = _read_rule(row, path, known_steps)
        mistakes += wrong
        if rule is None:
            continue
        key = (rule.trigger, tuple(sorted(rule.selectors.items())))
        if key in seen:
            mistakes.append(f"{path}: says again what rules[{seen[key]}] says")
            continue
        seen[key] = position
        rules.append(rule)
    return rules, mistakes


def _read_rule(row: Any, path: str, known_steps: set[str]) -> tuple[Rule | None, list[str]]:
    if not isinstance(row, Mapping):
        return None, [f"{path}: must be an object"]
    name, action, text = row.get("trigger"), row.get("action"), row.get("report_text", "")
    trigger = TRIGGERS.get(name) if isinstance(name, str) else None
    if trigger is None:
        return None, [f"{path}.trigger: unknown trigger {name!r}{_hint(name, TRIGGERS)}"]
    wrong = _wrong_action(trigger, action, path) + _wrong_text(trigger, text, path)
    selectors, wrong_selectors = _read_selectors(trigger, row, path, known_steps)
    params, wrong_params = _read_params(trigger, row, path)
    known = {"trigger", "action", "report_text", *trigger.selectors, *trigger.params}
    wrong += wrong_selectors + wrong_params
    wrong += [
        f"{path}.{key}: a rule of {trigger.name} has no such key{_hint(key, known)}"
        for key in row
        if key not in known and not str(key).startswith("x-")
    ]
    if wrong:
        return None, wrong
    return Rule(
        trigger=trigger.name,
        step=selectors.get("step"),
        action=str(action),
        report_text=str(text),
        params=params,
        selectors=selectors,
    ), []


def _wrong_action(trigger: Trigger, action: Any, path: str) -> list[str]:
    if not isinstance(action, str) or action not in ACTIONS:
        return [f"{path}.action: unknown action {action!r}{_hint(action, ACTIONS)}"]
    if action not in trigger.allowed:
        allowed = ", ".join(trigger.allowed)
        return [f"{path}.action: {action} cannot answer {trigger.name}; allowed: {allowed}"]
    return []


def _wrong_text(trigger: Trigger, text: Any, path: str) -> list[str]:
    if not isinstance(text, str):
        return [f"{path}.report_text: must be text"]
    try:
        used = wording.placeholders(text)
    except ValueError as error:
        return [f"{path}.report_text: {error}"]
    return [
        f"{path}.report_text: {trigger.name} offers no {{{name}}}"
        f"{_hint(name, trigger.placeholders) or '; it offers ' + _list(trigger.placeholders)}"
        for name in sorted(used - trigger.placeholders)
    ]


def _read_selectors(
    trigger: Trigger, row: Mapping[str, Any], path: str, known_steps: set[str]
) -> tuple[dict[str, str], list[str]]:
    selectors: dict[str, str] = {}
    wrong = []
    for key in _SELECTORS:
        if key not in row or key not in trigger.selectors:
            continue
        value = row[key]
        if not isinstance(value, str) or not value:
            wrong.append(f"{path}.{key}: must be a name, or 'any'")
        elif value != _ANY:
            selectors[key] = value
            if key == "step" and value not in known_steps:
                wrong.append(f"{path}.step: llm_steps has no {value!r}{_hint(value, known_steps)}")
    return selectors, wrong


def _read_params(
    trigger: Trigger, row: Mapping[str, Any], path: str
) -> tuple[dict[str, int], list[str]]:
    params: dict[str, int] = {}
    wrong = []
    for key in sorted(trigger.params & row.keys()):
        value = row[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            wrong.append(f"{path}.{key}: must be a whole number, 0 or more")
        else:
            params[key] = value
    return params, wrong


def _hint(word: Any, known: Any) -> str:
    text = suggestion(word, sorted(known)) if isinstance(word, str) else ""
    return f"; {text}" if text else ""


def _list(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
