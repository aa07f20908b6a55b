"""`SKILL.md`: the front matter, the sections, and the daily flow an agent follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.bundle.frontmatter import split
from kit.bundle.layout import SKILL, label
from kit.bundle.markdown import Item, Section, code_spans, numbered_items, sections
from kit.bundle.text import decode, read_bundle_text
from kit.errors import BundleError
from kit.schemas import validate

__all__ = ["HOW_TO_INVOKE", "SECTIONS", "SkillDoc"]

HOW_TO_INVOKE = "how to invoke"
SECTIONS = (
    "purpose",
    "when to use",
    HOW_TO_INVOKE,
    "inputs / outputs",
    "dependencies",
    "provenance",
)
"""Sections every SKILL.md must have, by `Section.key`."""

_DAILY = re.compile(r"daily|screen|每日|选股", re.IGNORECASE)
_BACKTEST = re.compile(r"backtest|回测", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SkillDoc:
    """A parsed SKILL.md.

    Attributes:
        name: Strategy id.
        title: Text of the first-level heading, or the name.
        description: One paragraph for agents that choose skills.
        category: Always `strategy`.
        version: Version the text was written for.
        sections: Headings of the body, in order.
        spans: Inline code of the body as (line, text).
        lines: Front matter key -> line.
        body: Text after the front matter.
    """

    name: str
    title: str
    description: str
    category: str
    version: str
    sections: tuple[Section, ...]
    spans: tuple[tuple[int, str], ...]
    lines: Mapping[str, int]
    body: str

    @classmethod
    def parse(cls, path: Path) -> SkillDoc:
        """Read a SKILL.md by its path.

        Raises:
            BundleError: `bundle.text`, `bundle.front_matter` or `bundle.skill`, with `file:line`.
        """
        return _parse(decode(path.read_bytes(), path.name), path.name)

    @classmethod
    def read(cls, root: Path) -> SkillDoc:
        """Read the SKILL.md of the bundle at `root`.

        Raises:
            BundleError: As `parse`, and `bundle.missing_file`.
        """
        return _parse(read_bundle_text(root, SKILL), label(root, SKILL))

    def section(self, key: str) -> Section | None:
        """Return the second-level section with that key (lower case), or None."""
        return next((s for s in self.sections if s.level == 2 and s.key == key), None)

    @property
    def daily_flow(self) -> Section | None:
        """The sub-section of How to Invoke that lists the daily stages."""
        return self._flow(lambda title: bool(_DAILY.search(title) and not _BACKTEST.search(title)))

    @property
    def backtest_flow(self) -> Section | None:
        """The sub-section of How to Invoke that says how to backtest."""
        return self._flow(lambda title: _BACKTEST.search(title) is not None)

    @property
    def daily_steps(self) -> list[Item]:
        """The numbered entries of the daily flow."""
        flow = self.daily_flow
        return numbered_items(flow.text, flow.line + 1) if flow else []

    def _flow(self, wanted: Callable[[str], bool]) -> Section | None:
        inside = False
        for section in self.sections:
            if section.level <= 2:
                inside = section.key == HOW_TO_INVOKE
            elif inside and wanted(section.title):
                return section
        return None


def _parse(text: str, where: str) -> SkillDoc:
    front = split(text, where)
    problems = validate("skill", dict(front.values))
    if problems:
        raise BundleError(
            "bundle.skill",
            "; ".join(str(problem) for problem in problems),
            where=f"{where}:{front.lines.get(problems[0].path, 1)}",
            remedy="mend the front matter keys named above; put a version such as 0.3.1 in quotes "
            "if it reads as a number",
            details={"problems": [vars(problem) for problem in problems]},
        )
    found = tuple(sections(front.body, front.body_line))
    return SkillDoc(
        name=front.values["name"],
        title=next((s.title for s in found if s.level == 1), front.values["name"]),
        description=front.values["description"],
        category=front.values["category"],
        version=front.values["version"],
        sections=found,
        spans=tuple((front.body_line + at, span) for at, span in code_spans(front.body)),
        lines=front.lines,
        body=front.body,
    )
