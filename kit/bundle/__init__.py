"""Strategy bundles: the model, lint, versions, freeze, verify and the registry.

Names are loaded when they are first used: `kit list` needs neither the linter nor YAML. The
functions that are called like their modules are imported from there:
`from kit.bundle.freeze import freeze`, and `lint`, `diff`, `verify`, `rebuild` in the same way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.bundle.checksums import Difference
    from kit.bundle.code import PickLike, SignalEngine
    from kit.bundle.conversation import (
        append_event,
        conversation_files,
        read_conversation,
        record_note,
        slugify,
    )
    from kit.bundle.diff import Change, VersionDiff
    from kit.bundle.disagreements import index_findings
    from kit.bundle.draft import near_ids, new_draft
    from kit.bundle.findings import Finding, errors_of
    from kit.bundle.flow import daily_stages
    from kit.bundle.frozen import CheckResult, FreezeChecks, FrozenVersion
    from kit.bundle.layout import Ref, Version, check_id, parse_ref
    from kit.bundle.lint import RULES
    from kit.bundle.manifest import Manifest
    from kit.bundle.model import Bundle, fingerprints, resolve
    from kit.bundle.prompt import Prompt
    from kit.bundle.rebuild import Rebuilt
    from kit.bundle.registry import (
        Index,
        Strategy,
        VersionEntry,
        activate,
        list_strategies,
        read_index,
        retire,
        show,
    )
    from kit.bundle.skill import SkillDoc
    from kit.bundle.verify import Row, Verification

_HOMES = {
    "checksums": ("Difference",),
    "code": ("PickLike", "SignalEngine"),
    "conversation": (
        "append_event",
        "conversation_files",
        "read_conversation",
        "record_note",
        "slugify",
    ),
    "diff": ("Change", "VersionDiff"),
    "disagreements": ("index_findings",),
    "draft": ("near_ids", "new_draft"),
    "findings": ("Finding", "errors_of"),
    "flow": ("daily_stages",),
    "frozen": ("CheckResult", "FreezeChecks", "FrozenVersion"),
    "layout": ("Ref", "Version", "check_id", "parse_ref"),
    "lint": ("RULES",),
    "manifest": ("Manifest",),
    "model": ("Bundle", "fingerprints", "resolve"),
    "prompt": ("Prompt",),
    "rebuild": ("Rebuilt",),
    "registry": (
        "Index", "Strategy", "VersionEntry", "activate", "list_strategies", "read_index", "retire",
        "show",
    ),
    "skill": ("SkillDoc",),
    "verify": ("Row", "Verification"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "RULES",
    "Bundle",
    "Change",
    "CheckResult",
    "Difference",
    "Finding",
    "FreezeChecks",
    "FrozenVersion",
    "Index",
    "Manifest",
    "PickLike",
    "Prompt",
    "Rebuilt",
    "Ref",
    "Row",
    "SignalEngine",
    "SkillDoc",
    "Strategy",
    "Verification",
    "Version",
    "VersionDiff",
    "VersionEntry",
    "activate",
    "append_event",
    "check_id",
    "conversation_files",
    "daily_stages",
    "errors_of",
    "fingerprints",
    "index_findings",
    "list_strategies",
    "near_ids",
    "new_draft",
    "parse_ref",
    "read_conversation",
    "read_index",
    "record_note",
    "resolve",
    "retire",
    "show",
    "slugify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
