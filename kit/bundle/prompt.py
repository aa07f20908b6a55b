"""A prompt file: what the model is told, its schemas, and what stands in for it offline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kit.bundle.frontmatter import FrontMatter, split
from kit.bundle.layout import label
from kit.bundle.markdown import Section, sections
from kit.bundle.text import decode, read_bundle_text
from kit.errors import BundleError
from kit.llm.shorthand import compile_schema
from kit.schemas import validate

__all__ = ["OFFLINE_SECTION", "QUALITIES", "SECTIONS", "Offline", "Prompt"]

OFFLINE_SECTION = "offline quantization equivalent"
SECTIONS = ("task", "input format", "output format", OFFLINE_SECTION)
"""Sections a prompt's body must have, by `Section.key`."""
QUALITIES = ("exact", "approximate", "partial")

_QUALITY = re.compile(r"^\W*quality\W*[:：]\W*([A-Za-z]+)", re.IGNORECASE | re.MULTILINE)
_CALLABLE = re.compile(r"[\w./-]+\.py::[A-Za-z_]\w*")
_DIFFERENCES = re.compile(r"^\W*(?:differences?\b|与模型的差异|差异)", re.IGNORECASE)
_BULLET = re.compile(r"\s*[-*+]\s+(.*)")


@dataclass(frozen=True, kw_only=True)
class Offline:
    """The deterministic stand-in a prompt declares.

    Attributes:
        quality: `exact`, `approximate` or `partial`; empty when undeclared.
        reference: `code/helpers/x.py::function`; empty when undeclared.
        differences: What it does not do that the model does.
        line: Line of the section's heading in the file.
    """

    quality: str
    reference: str
    differences: tuple[str, ...]
    line: int


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One `prompts/<step>.md`.

    Attributes:
        prompt_id: Step name; equals the file's stem.
        path: Path relative to the bundle.
        body: The system message, as it stands in the file after the front matter.
        input_schema: Compiled JSON Schema of the one user message.
        output_schema: Compiled JSON Schema of the answer.
        model_default: Model used when the manifest names none.
        invocation_mode: `single` or `per_pick_concurrent`.
        fallback_template: Path relative to the bundle, or None.
        offline: The declared stand-in; None when the section is missing.
        sections: Headings of the body.
        lines: Dotted front matter key -> line in the file.
    """

    prompt_id: str
    path: str
    body: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    model_default: str
    invocation_mode: str
    fallback_template: str | None
    offline: Offline | None
    sections: tuple[Section, ...]
    lines: Mapping[str, int]

    @classmethod
    def parse(cls, path: Path, *, relative: str | None = None) -> Prompt:
        """Read a prompt file by its path; see `read` for one inside a bundle.

        Raises:
            BundleError: `bundle.text`, `bundle.front_matter`, `bundle.prompt`, `prompt.shorthand`,
                each with `file:line`.
        """
        name = relative or f"{path.parent.name}/{path.name}"
        return _parse(decode(path.read_bytes(), name), name, name)

    @classmethod
    def read(cls, root: Path, relative: str) -> Prompt:
        """Read a prompt of the bundle at `root`, refusing paths that leave it.

        Raises:
            BundleError: As `parse`, and `bundle.missing_file`, `bundle.path_escape`.
        """
        return _parse(read_bundle_text(root, relative), relative, label(root, relative))

    def section(self, key: str) -> Section | None:
        """Return the section with that key (lower case), or None."""
        return next((s for s in self.sections if s.key == key), None)


def _parse(text: str, relative: str, where: str) -> Prompt:
    front = split(text, where)
    problems = validate("prompt", dict(front.values))
    if problems:
        first = problems[0]
        raise BundleError(
            "bundle.prompt",
            "; ".join(str(problem) for problem in problems),
            where=f"{where}:{front.lines.get(first.path, 1)}",
            remedy="mend the front matter keys named above",
            details={"problems": [vars(problem) for problem in problems]},
        )
    found = tuple(sections(front.body, front.body_line))
    values = front.values
    return Prompt(
        prompt_id=values["prompt_id"],
        path=relative,
        body=front.body.strip("\n") + "\n",
        input_schema=_schema(front, "input_schema", where),
        output_schema=_schema(front, "output_schema", where),
        model_default=values["model_default"],
        invocation_mode=values.get("invocation_mode", "single"),
        fallback_template=_fallback(values.get("fallback_template"), relative),
        offline=_offline(found),
        sections=found,
        lines=front.lines,
    )


def _schema(front: FrontMatter, key: str, where: str) -> dict[str, Any]:
    try:
        return compile_schema(front.values[key])
    except BundleError as error:
        path = f"{key}.{error.where}" if error.where else key
        line = front.lines.get(path, front.lines.get(key, 1))
        raise BundleError(
            error.code, f"{path}: {error.message}", where=f"{where}:{line}", remedy=error.remedy
        ) from error


def _fallback(value: Any, prompt: str) -> str | None:
    """Resolve a fallback path: relative to the bundle, or with `./` and `../` to the prompt."""
    if value is None:
        return None
    path = str(value["path"] if isinstance(value, Mapping) else value)
    if not path.startswith(("./", "../")):
        return path
    parts = list(PurePosixPath(prompt).parent.parts)
    for part in PurePosixPath(path).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)  # a `..` too many stays, and is refused when the file is opened
    return PurePosixPath(*parts).as_posix()


def _offline(found: tuple[Section, ...]) -> Offline | None:
    section = next((s for s in found if s.key == OFFLINE_SECTION), None)
    if section is None:
        return None
    quality = _QUALITY.search(section.text)
    reference = _CALLABLE.search(section.text)
    return Offline(
        quality=quality[1].lower() if quality else "",
        reference=reference[0] if reference else "",
        differences=tuple(_differences(section.text)),
        line=section.line,
    )


def _differences(text: str) -> list[str]:
    """Collect the bullets after the line that announces the differences."""
    announced = False
    found: list[str] = []
    for line in text.split("\n"):
        bullet = _BULLET.fullmatch(line)
        if not announced:
            announced = _DIFFERENCES.match(line.lstrip("#*- ")) is not None
        elif bullet:
            found.append(bullet[1].strip())
        elif line.startswith((" ", "\t")) and line.strip() and found:
            found[-1] += f" {line.strip()}"
        elif line.strip() and found:
            break
    return [item for item in found if item]
