"""What INDEX.json, the version directories and the activation logs say differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kit.bundle import activations
from kit.bundle.findings import Finding
from kit.bundle.layout import DRAFT, Version, staging_of, twins
from kit.bundle.rebuild import strategy_dirs, strategy_links, version_dirs
from kit.bundle.registry import Index, Strategy, VersionEntry, read_index
from kit.bundle.trust import Facts
from kit.errors import BundleError, KitError, RegistryError
from kit.workspace import Workspace

__all__ = ["index_findings"]

_MEND = "kit registry rebuild"
_MEND_LOG = (
    f"restore {activations.FILE} from git first (git checkout); "
    "where git never held it: kit registry rebuild"
)


def index_findings(workspace: Workspace, facts: Iterable[Facts] = ()) -> list[Finding]:
    """Compare INDEX.json with the directories and the logs; every disagreement is a finding.

    Args:
        workspace: The workspace.
        facts: Versions that have been looked at already.
    """
    found: list[Finding] = []
    known = {item.root: item for item in facts}
    try:
        index = read_index(workspace)
    except RegistryError as error:
        found.append(_finding("registry.index", error.where, error.message, error.remedy))
        index = Index(updated_at=None, strategies={}, raw={})
    folders = {folder.name: folder for folder in strategy_dirs(workspace)}
    links = {link.name: link for link in strategy_links(workspace)}
    for link in links.values():
        message = "the strategy's directory is a symbolic link"
        place = workspace.relative(link)
        found.append(_finding("registry.symlink", place, message, "put the directory itself there"))
    for id_ in sorted({*index.strategies, *folders} - links.keys()):
        folder = folders.get(id_, workspace.strategies / id_)
        roots = version_dirs(folder) if folder.is_dir() else []
        there = {root.name: known.get(root) or Facts(root) for root in roots}
        found += _strategy_findings(workspace, folder, index.strategies.get(id_), there)
    for id_, other in twins(sorted({*index.strategies, *folders})):
        message = f"{other} and {id_} differ only by case"
        found.append(_finding("registry.case", f"strategies/{id_}", message, "rename one"))
    return found


def _strategy_findings(
    workspace: Workspace, folder: Path, strategy: Strategy | None, there: Mapping[str, Facts]
) -> list[Finding]:
    place = workspace.relative(folder)
    listed = {entry.version: entry for entry in strategy.versions} if strategy else {}
    found = [
        _finding("registry.unlisted", f"{place}/{version}", "INDEX.json does not list it", _MEND)
        for version in there.keys() - listed.keys()
    ]
    found += [
        _finding(
            "registry.no_directory",
            f"{place}/{version}",
            "INDEX.json lists it, and there is no such directory",
            "restore the directory (git checkout)",
        )
        for version in listed.keys() - there.keys()
    ]
    for version in sorted(listed.keys() & there.keys()):
        found += _entry_findings(workspace, there[version], listed[version])
    if strategy is not None:
        found += _order_findings(strategy)
    found += _log_findings(workspace, folder, strategy, there)
    found += _stray_findings(workspace, folder) if folder.is_dir() else []
    return sorted(found, key=lambda finding: (finding.path, finding.rule))


def _entry_findings(workspace: Workspace, facts: Facts, listed: VersionEntry) -> list[Finding]:
    place = workspace.relative(facts.root)
    try:
        actual = {**facts.place, "digest": facts.digest}
    except KitError:
        return []  # the version's own check names what is wrong with it
    found = []
    for key in ("created_at", "channel", "digest"):
        wanted, stated = actual[key], getattr(listed, key)
        if stated != wanted and not (key == "digest" and stated is None):
            message = f"INDEX.json says {key} {stated!r}, the version {wanted!r}"
            mend = "restore the version (git checkout)" if key == "digest" else _MEND
            found.append(_finding(f"registry.{key}", place, message, mend))
    return found


def _order_findings(strategy: Strategy) -> list[Finding]:
    place = f"INDEX.json: {strategy.id}"
    found = []
    versions = [Version.parse(entry.version) for entry in strategy.versions]
    if versions != sorted(set(versions), reverse=True):
        message = "versions are not newest first, or one stands twice"
        found.append(_finding("registry.order", place, message, _MEND))
    active = [entry.version for entry in strategy.versions if entry.is_active]
    if len(active) > 1:
        message = f"more than one version is active: {', '.join(active)}"
        found.append(_finding("registry.active", place, message, _MEND))
    elif next(iter(active), None) != strategy.latest_active_version:
        message = f"latest_active_version is {strategy.latest_active_version}, active is {active}"
        found.append(_finding("registry.active", place, message, _MEND))
    return found


def _log_findings(
    workspace: Workspace, folder: Path, strategy: Strategy | None, there: Mapping[str, Facts]
) -> list[Finding]:
    place = f"{workspace.relative(folder)}/{activations.FILE}"
    try:
        events = activations.read(folder)
    except (RegistryError, BundleError) as error:
        return [_finding("registry.activations", error.where, error.message, error.remedy)]
    found = []
    listed = {entry.version for entry in strategy.versions} if strategy else set()
    recorded = activations.recorded_digests(events)
    for version in sorted(there):
        try:
            actual = there[version].digest
        except BundleError:
            continue
        if version not in recorded:
            # What INDEX.json lists was recorded once; only a freeze cut short never was.
            mend = _MEND_LOG if version in listed or not events else _MEND
            found.append(_finding("registry.no_record", place, f"no record of {version}", mend))
        elif recorded[version] != actual:
            message = f"{version} is not what was frozen: its digest differs from the record"
            found.append(
                _finding("registry.digest", place, message, "restore the version (git checkout)")
            )
    active = activations.active_version(events)
    if strategy is not None and active != strategy.latest_active_version:
        message = f"the log leaves {active} active, INDEX.json {strategy.latest_active_version}"
        known = strategy.latest_active_version in {None, *recorded}
        mend = _MEND if known else _MEND_LOG
        found.append(_finding("registry.active", place, message, mend))
    lost = {event.version for event in events} - there.keys()
    found += [
        _finding(
            "registry.no_directory",
            f"{workspace.relative(folder)}/{version}",
            "the log has it, and there is no such directory",
            "restore the directory (git checkout)",
        )
        for version in sorted(lost - listed)
    ]
    return found


def _stray_findings(workspace: Workspace, folder: Path) -> list[Finding]:
    found = []
    for path in sorted(folder.iterdir()):
        place = workspace.relative(path)
        if path.name.startswith("."):
            if staging_of(path.name):
                message = "a freeze was cut short here"
                found.append(
                    _finding("registry.staging", place, message, "freeze again", warning=True)
                )
        elif path.is_symlink() and (path.name == DRAFT or Version.read(path.name)):
            message = "is a symbolic link"
            found.append(_finding("registry.symlink", place, message, "put the directory there"))
        elif path.name == activations.FILE:
            continue  # reading it says what is wrong with it
        elif path.is_dir() and path.name != DRAFT and Version.read(path.name) is None:
            found.append(
                _finding(
                    "registry.stray",
                    place,
                    f"{path.name!r} is neither `draft` nor a version MAJOR.MINOR.PATCH",
                    "rename it, or move it out of the strategy's directory",
                )
            )
    return found


def _finding(rule: str, path: str, message: str, mend: str, *, warning: bool = False) -> Finding:
    return Finding(
        rule=rule,
        severity="warning" if warning else "error",
        path=path,
        message=message,
        mend=mend,
    )
