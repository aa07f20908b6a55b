"""Lint a bundle: every rule, every finding at once, each with its place and its mend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.bundle import (
    lint_code,
    lint_layout,
    lint_manifest,
    lint_prompts,
    lint_recorded,
    lint_skill,
)
from kit.bundle.findings import Finding
from kit.bundle.lint_context import Context, Rule

__all__ = ["RULES", "lint"]

RULES: tuple[Rule, ...] = (
    *lint_layout.RULES,
    *lint_manifest.RULES,
    *lint_recorded.RULES,
    *lint_skill.RULES,
    *lint_prompts.RULES,
    *lint_code.RULES,
)
"""The rule table, in the order in which rules are checked."""


def lint(root: Path, *, draft: bool, index: Mapping[str, Any] | None = None) -> list[Finding]:
    """Check a bundle directory against every rule.

    Args:
        root: `strategies/<id>/draft`, a version directory, or a staging copy of one.
        draft: Whether it is a draft: version numbers and generated files are then exempt.
        index: The parsed INDEX.json, for the uniqueness of the id.

    Returns:
        Findings by file, line and rule; empty when the bundle is clean.

    Raises:
        BundleError: `bundle.not_found` or `bundle.symlink` when there is no directory to lint.
    """
    context = Context(root, draft=draft, index=index)
    _ = context.tree
    found = [
        Finding(
            rule=rule.id,
            severity=rule.severity,
            path=hit.path,
            line=hit.line,
            message=hit.message,
            mend=hit.mend or rule.mend,
        )
        for rule in RULES
        for hit in rule.check(context)
    ]
    return sorted(found, key=lambda f: (f.path, f.line or 0, f.rule, f.message))
