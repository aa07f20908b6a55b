"""Write the authoring skill's list of lint rules: `python tests/docs/self_check.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from kit.bundle.lint import RULES

PAGE = (
    Path(__file__).resolve().parents[2]
    / "prompts"
    / "strategy-skill-author"
    / "references"
    / "checks.md"
)
HEAD = """# Self-check

What `kit lint` checks, rule by rule. Tick each before running it: an error blocks freezing, a
warning is shown. The list is made from the rules themselves: there is nothing else to satisfy.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    area = ""
    for rule in RULES:
        name = rule.id.partition(".")[0]
        if name != area:
            area = name
            parts.append(f"\n## {area}\n\n")
        warning = " (warning)" if rule.severity == "warning" else ""
        parts.append(f"- [ ] `{rule.id}`{warning}: {rule.what} If not: {rule.mend}.\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit(0)
