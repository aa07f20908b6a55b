"""Verify: is every frozen version what was frozen, and does INDEX.json agree with the disk?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import checksums
from kit.bundle.disagreements import index_findings
from kit.bundle.findings import Finding
from kit.bundle.layout import Version, parse_ref
from kit.bundle.rebuild import strategy_dirs, version_dirs
from kit.bundle.registry import read_index, require_strategy, require_version
from kit.bundle.trust import Facts
from kit.errors import BundleError, UsageError
from kit.workspace import Workspace

__all__ = ["Row", "Verification", "verify"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One difference.

    Attributes:
        ref: `id@version`, or the id, or empty for INDEX.json as a whole.
        path: File relative to the version, or to the workspace.
        kind: `missing`, `extra`, `changed`, `symlink`, `odd`, `unreadable`, `mode` (advice), the
            code of a bundle error, or the id of a registry finding.
        detail: What is wrong, in words.
        advice: Whether the content is intact: it does not fail the check.
    """

    ref: str
    path: str
    kind: str
    detail: str
    advice: bool = False


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The outcome of `verify`.

    Attributes:
        checked: Versions that were re-hashed.
        rows: Everything that differs.
        fixed: Versions whose modes were re-applied.
    """

    checked: tuple[str, ...]
    rows: tuple[Row, ...]
    fixed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing but advice was found."""
        return all(row.advice for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            "ok": self.ok,
            "checked": list(self.checked),
            "differences": [dict(vars(row)) for row in self.rows],
            "fixed": list(self.fixed),
        }


def verify(workspace: Workspace, ref: str | None = None, *, fix: bool = False) -> Verification:
    """Re-hash frozen versions and validate INDEX.json.

    Args:
        workspace: The workspace.
        ref: `id` or `id@version` to check only that; None checks everything.
        fix: Whether to set files to 0444 and directories to 0555 again, where content is intact.

    Raises:
        UsageError: `bundle.bad_id`, `bundle.bad_version`; `bundle.is_draft` for a draft.
        RegistryError: `registry.unknown_id`, `registry.unknown_version`.
    """
    rows: list[Row] = []
    checked: list[str] = []
    fixed: list[str] = []
    versions = [Facts(root) for root in _roots(workspace, ref)]
    for facts in versions:
        name = f"{facts.root.parent.name}@{facts.root.name}"
        checked.append(name)
        found = _version_rows(facts, name)
        if fix and any(row.kind == "mode" for row in found) and all(row.advice for row in found):
            files.set_readonly(facts.root)
            fixed.append(name)
            found = _version_rows(facts, name)
        rows += found
    disagreements = index_findings(workspace, versions)
    rows += [_row(finding) for finding in disagreements if _concerns(finding, ref)]
    return Verification(checked=tuple(checked), rows=tuple(rows), fixed=tuple(fixed))


def _roots(workspace: Workspace, ref: str | None) -> list[Path]:
    if ref is None:
        return [root for folder in strategy_dirs(workspace) for root in version_dirs(folder)]
    wanted = parse_ref(ref)
    if wanted.is_draft:
        raise UsageError(
            "bundle.is_draft",
            "a draft has no checksums to verify",
            remedy=f"check it with: kit lint {wanted.id}",
        )
    folder = workspace.strategies / wanted.id
    if folder.is_symlink():
        return []  # a row of its own says so
    roots = version_dirs(folder) if folder.is_dir() else []
    if wanted.version is not None:
        roots = [root for root in roots if root.name == wanted.version]
    if not roots:
        strategy = require_strategy(workspace, read_index(workspace), wanted.id)
        require_version(strategy, wanted.version) if wanted.version else None
    return roots


def _version_rows(facts: Facts, ref: str) -> list[Row]:
    try:
        rows = [
            Row(
                ref=ref,
                path=difference.path,
                kind=difference.kind,
                detail=_DETAILS[difference.kind],
                advice=difference.is_advice,
            )
            for difference in checksums.verify(facts.root, facts.listed)
        ]
    except BundleError as error:
        detail = f"{error.message}; {error.remedy}"
        return [Row(ref=ref, path=error.where, kind="unreadable", detail=detail)]
    if all(row.advice for row in rows):
        try:
            _ = facts.place
        except BundleError as error:
            detail = f"{error.message}; {error.remedy}"
            rows.append(Row(ref=ref, path=error.where, kind=error.code, detail=detail))
    return rows


_DETAILS = {
    "missing": "listed in checksums.txt, and not there",
    "extra": "not listed in checksums.txt (an empty directory never is)",
    "changed": "content differs from its checksum",
    "symlink": "a symbolic link; a version has none",
    "odd": "no plain file with a plain name",
    "mode": "not read-only; `kit verify --fix` re-applies it (git keeps no modes)",
}


def _concerns(finding: Finding, ref: str | None) -> bool:
    if ref is None:
        return True
    wanted = parse_ref(ref)
    inside = finding.path.removeprefix("strategies/").removeprefix("INDEX.json: ").split("/")
    if inside[0] == "INDEX.json":
        return True
    if inside[0] != wanted.id:
        return False
    other = Version.read(inside[1]) if len(inside) > 1 else None
    return wanted.version is None or other is None or str(other) == wanted.version


def _row(finding: Finding) -> Row:
    return Row(
        ref="",
        path=finding.path,
        kind=finding.rule,
        detail=f"{finding.message}; {finding.mend}",
        advice=finding.severity == "warning",
    )
