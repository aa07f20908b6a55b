"""The bundle as the rest of the kit sees it: opened, verified, and turned into things that run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import files
from kit.bundle import activations, checksums
from kit.bundle.activations import recorded_digests
from kit.bundle.code import SignalEngine, load_callable, load_engine
from kit.bundle.layout import (
    CHECKSUMS,
    CONFIG,
    DRAFT,
    MANIFEST,
    REASON_TEMPLATE,
    label,
    parse_ref,
    version_of,
    walk,
)
from kit.bundle.manifest import Manifest
from kit.bundle.prompt import Prompt
from kit.bundle.registry import (
    read_index,
    require_strategy,
    require_version,
    strategy_dir,
)
from kit.bundle.skill import SkillDoc
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.bundle.trust import require_digest
from kit.errors import BundleError, RegistryError
from kit.schemas import check, suggestion
from kit.workspace import Workspace

if TYPE_CHECKING:
    from kit.degradation.policy import Policy
    from kit.llm.step import StepSpec

__all__ = ["Bundle", "fingerprints", "read_config", "resolve"]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One strategy version, or a draft.

    Attributes:
        root: Directory.
        id: Strategy id.
        version: `X.Y.Z`, or None for a draft.
        manifest: `manifest.json`.
        skill: `SKILL.md`.
        prompts: Step name -> prompt, in the manifest's order.
        config: `config.json`.
        digest: SHA-256 of `checksums.txt`; of the checksums it would have for a draft.
    """

    root: Path
    id: str
    version: str | None
    manifest: Manifest
    skill: SkillDoc
    prompts: Mapping[str, Prompt]
    config: Mapping[str, Any]
    digest: str

    @classmethod
    def open(cls, root: Path, *, verify: bool = True) -> Bundle:
        """Open a bundle directory.

        Args:
            root: `strategies/<id>/<version>`, `strategies/<id>/draft`, or a copy of one.
            verify: Whether to re-hash every file of a frozen version first.

        Raises:
            BundleError: `bundle.tampered` naming the files; `bundle.symlink`, `bundle.path_escape`;
                `bundle.manifest`, `bundle.config`, `bundle.skill`, `bundle.prompt` and the like
                with `file:line` or dotted paths.
        """
        tree = walk(root, junk=True)
        if tree.symlinks:
            raise BundleError(
                "bundle.symlink",
                f"symbolic links are not allowed: {', '.join(tree.symlinks)}",
                where=label(root, tree.symlinks[0]),
                remedy="put copies of the files there",
            )
        named = version_of(root)
        # A version directory stays one when its checksums are deleted: it is then tampered with.
        frozen = named is not None or (root.name != DRAFT and CHECKSUMS in tree.files)
        if frozen and verify:
            checksums.require(root)
        manifest = Manifest.from_dict(read_bundle_json(root, MANIFEST), label(root, MANIFEST))
        if named is not None and manifest.version != str(named):
            raise BundleError(
                "bundle.version_mismatch",
                f"the manifest says {manifest.version}, the directory {named}",
                where=label(root, MANIFEST),
                remedy="restore the version from git or from an export",
            )
        return cls(
            root=root,
            id=manifest.strategy_id,
            version=manifest.version if frozen else None,
            manifest=manifest,
            skill=SkillDoc.read(root),
            prompts={
                name: Prompt.read(root, step.prompt_path)
                for name, step in manifest.llm_steps.items()
            },
            config=read_config(root),
            digest=checksums.digest(root) if frozen else checksums.tree_digest(root),
        )

    @property
    def is_draft(self) -> bool:
        """Whether this is the editable draft."""
        return self.version is None

    @property
    def ref(self) -> str:
        """`id@version`, or `id@draft`."""
        return f"{self.id}@{self.version or DRAFT}"

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the rule's parameters, `_kit.params` of `config.json`."""
        return dict(self.config["_kit"]["params"])

    @property
    def fingerprints(self) -> dict[str, str]:
        """See `fingerprints`."""
        return fingerprints(self.root)

    @cached_property
    def policy(self) -> Policy:
        """The degradation policy, read leniently; its `ignored` names what was passed over."""
        from kit.degradation.policy import Policy

        return Policy.at_run_time(self.manifest.raw)

    @cached_property
    def reason_template(self) -> str | None:
        """The fallback text of the explanation step; None when the bundle has none."""
        paths = [step.fallback_template_path for step in self.manifest.llm_steps.values()]
        named = next((path for path in paths if path), None)
        if named is None and not (self.root / REASON_TEMPLATE).is_file():
            return None
        return read_bundle_text(self.root, named or REASON_TEMPLATE)

    def engine(self) -> SignalEngine:
        """Return a new instance of the bundle's signal engine.

        Raises:
            BundleError: `bundle.syntax`, `bundle.import_failed` or `bundle.no_engine`, with
                `file:line`.
        """
        return load_engine(self.root, self.manifest.execution)

    def step(self, name: str) -> StepSpec:
        """Return an LLM step, with its offline equivalent loaded.

        Raises:
            BundleError: `bundle.unknown_step` with a suggestion; errors of loading the callable.
        """
        from kit.llm.step import StepSpec

        declared = self.manifest.llm_steps.get(name)
        if declared is None:
            known = list(self.manifest.llm_steps)
            hint = suggestion(name, known) or f"steps: {', '.join(known) or 'none'}"
            raise BundleError(
                "bundle.unknown_step",
                f"{self.ref} has no LLM step {name!r}; {hint}",
                where=label(self.root, MANIFEST),
                remedy="name a step of manifest.llm_steps",
            )
        prompt = self.prompts[name]
        offline = prompt.offline
        return StepSpec(
            name=name,
            system=prompt.body,
            input_schema=prompt.input_schema,
            output_schema=prompt.output_schema,
            model=declared.model,
            temperature=declared.temperature,
            max_tokens=declared.max_tokens,
            timeout_sec=declared.timeout_sec,
            invocation_mode=declared.invocation_mode,
            concurrency_limit=declared.concurrency_limit,
            quality=offline.quality if offline else "partial",
            differences=offline.differences if offline else (),
            offline=load_callable(self.root, offline.reference)
            if offline and offline.reference
            else None,
            max_calls=self.manifest.limits.max_calls(name),
        )


def read_config(root: Path) -> dict[str, Any]:
    """Read and check `config.json` of a bundle.

    Raises:
        BundleError: `bundle.config` with dotted paths; see also `read_bundle_json`.
    """
    value = read_bundle_json(root, CONFIG)
    check(
        "bundle-config", value, error=BundleError, code="bundle.config", where=label(root, CONFIG)
    )
    config: dict[str, Any] = value
    return config


def fingerprints(root: Path) -> dict[str, str]:
    """Return what a backtest depends on inside a bundle, as SHA-256 digests.

    `code` covers everything under `code/`, `prompts` everything under `prompts/`, `config` the
    bytes of `config.json` with the manifest's `execution` and `data_contract`. Freeze changes none
    of them, so evidence made on a draft stays valid for the version cut from it.

    Raises:
        BundleError: `manifest.json` or `config.json` cannot be read.
    """
    names = walk(root).files
    manifest = read_bundle_json(root, MANIFEST)
    shaping = {key: manifest.get(key) for key in ("execution", "data_contract")}

    def digest(prefix: str) -> str:
        kept = {n: files.sha256_file(root / n) for n in names if n.startswith(prefix)}
        return files.sha256_bytes(files.canonical_json(kept))

    config = read_bundle_text(root, CONFIG).encode("utf-8")
    return {
        "code": digest("code/"),
        "prompts": digest("prompts/"),
        "config": files.sha256_bytes(config + files.canonical_json(shaping)),
    }


def resolve(workspace: Workspace, ref: str, verify: bool = True) -> Bundle:
    """Open the bundle a person names.

    Args:
        workspace: Where to look.
        ref: `id` (the active version), `id@1.2.3`, or `id@draft`.
        verify: Whether to check a frozen version against its checksums, INDEX.json and the
            activation log.

    Raises:
        UsageError: `bundle.bad_id`, `bundle.bad_version`.
        RegistryError: `registry.unknown_id`, `registry.unknown_version`, `registry.no_active`,
            `registry.unlisted`, each with what there is instead.
        BundleError: `bundle.tampered` and everything `Bundle.open` raises.
    """
    wanted = parse_ref(ref)
    folder = strategy_dir(workspace, wanted.id)
    if wanted.is_draft:
        root = folder / DRAFT
        if not root.is_dir():
            require_strategy(workspace, read_index(workspace), wanted.id)
            raise RegistryError(
                "registry.no_draft",
                f"{wanted.id} has no draft",
                where=workspace.relative(root),
                remedy=f"make one from the latest version: kit new {wanted.id} --from {wanted.id}",
            )
        return _same_id(Bundle.open(root), wanted.id)
    strategy = require_strategy(workspace, read_index(workspace), wanted.id)
    version = wanted.version or strategy.latest_active_version
    if version is None:
        known = [entry.version for entry in strategy.versions]
        raise RegistryError(
            "registry.no_active",
            f"{wanted.id} has no active version; it has {', '.join(known) or 'none at all'}",
            where="INDEX.json",
            remedy=f"activate one: kit registry activate {wanted.id}@{known[0]} --why '...'"
            if known
            else f"freeze one: kit freeze {wanted.id}",
        )
    root = folder / version
    entry = strategy.version(version)
    if entry is None and root.is_dir():
        raise RegistryError(
            "registry.unlisted",
            f"INDEX.json does not list {wanted.id}@{version}, which has a directory",
            where="INDEX.json",
            remedy="a freeze may have been cut short; run: kit registry rebuild",
        )
    entry = require_version(strategy, version)
    bundle = _same_id(Bundle.open(root, verify=verify), wanted.id)
    if verify:
        require_digest(entry.digest, root, "INDEX.json")
        recorded = recorded_digests(activations.read(folder)).get(version)
        require_digest(recorded, root, activations.FILE)
    return bundle


def _same_id(bundle: Bundle, wanted: str) -> Bundle:
    if bundle.id != wanted:
        raise BundleError(
            "bundle.id_mismatch",
            f"the manifest says {bundle.id}, the directory {wanted}",
            where=label(bundle.root, MANIFEST),
            remedy="make strategy_id equal the directory's name",
        )
    return bundle
