"""Lint rules on files: what must be there, what may not, and what every reader can read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.bundle import checksums, layout
from kit.bundle.lint_context import Context, Hit, Rule, line_in
from kit.bundle.text import MAX_TEXT_BYTES, read_bundle_text
from kit.errors import BundleError, UsageError
from kit.redact import Redactor

__all__ = ["RULES"]

_TEXT_SUFFIXES = (".md", ".json", ".jsonl", ".py", ".txt", ".csv", ".ipynb")
_LARGE_ALLOWED = ("backtests/", "notebook.ipynb", "conversations/", "schemas/", "references/")


# What a terminal obeys, and what shows text in another order than it is read in.
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _required(context: Context) -> Iterator[Hit]:
    wanted = layout.DRAFT_FILES if context.draft else layout.FROZEN_FILES
    for path in wanted:
        if path not in context.tree.files:
            yield Hit(path=path, message=f"{path} is missing")


def _links(context: Context) -> Iterator[Hit]:
    for path in context.tree.symlinks:
        yield Hit(path=path, message="is a symbolic link")


def _names(context: Context) -> Iterator[Hit]:
    for path in context.tree.odd:
        yield Hit(path=path, message=f"{path!r} is no plain file with a plain name")
    for path, other in layout.twins(context.tree.files):
        yield Hit(path=path, message=f"differs from {other} only by case or composition")


def _text(context: Context) -> Iterator[Hit]:
    for path in context.tree.files:
        if not path.endswith(_TEXT_SUFFIXES):
            continue
        if path.startswith(_LARGE_ALLOWED):
            continue
        try:
            text = read_bundle_text(context.root, path)
        except BundleError as error:
            if error.code in {"bundle.text", "bundle.too_large"}:
                yield Hit(path=path, message=error.message, line=line_in(error), mend=error.remedy)
            continue
        control = _CONTROL.search(text)
        if control and path not in context.problems:  # its parser says so
            message = f"holds the control character U+{ord(control[0]):04X}"
            yield Hit(path=path, message=message, line=text.count("\n", 0, control.start()) + 1)


def _secrets(context: Context) -> Iterator[Hit]:
    redactor = Redactor({})  # what looks like one anywhere; this machine's own say nothing of it
    for path in context.tree.files:
        if not path.endswith(_TEXT_SUFFIXES):
            continue
        text = (context.root / path).read_bytes().decode("utf-8", "replace")
        masked = redactor.text(text).split("\n")
        lines = zip(text.split("\n"), masked, strict=False)  # a key of many lines becomes one
        line = next((at for at, (was, now) in enumerate(lines, start=1) if was != now), None)
        if line is not None:
            message = "holds what looks like a key, a token or a password"
            yield Hit(path=path, message=message, line=line)


def _json(context: Context) -> Iterator[Hit]:
    for path, error in context.problems.items():
        if error.code == "bundle.bad_json":
            yield Hit(path=path, message=error.message, line=line_in(error))


def _id(context: Context) -> Iterator[Hit]:
    try:
        layout.check_id(context.strategy_id)
    except UsageError as error:
        yield Hit(path=".", message=error.message, mend=error.remedy)
    known = context.index.get("strategies", {}) if context.index else {}
    for other in known:
        if other != context.strategy_id and other.casefold() == context.strategy_id.casefold():
            yield Hit(path=".", message=f"INDEX.json has {other}, which differs only by case")


def _checksums(context: Context) -> Iterator[Hit]:
    if context.draft or layout.CHECKSUMS not in context.tree.files:
        return
    try:
        for difference in checksums.verify(context.root):
            if not difference.is_advice:
                yield Hit(path=difference.path, message=f"{difference.kind} since the freeze")
    except BundleError as error:
        yield Hit(path=layout.CHECKSUMS, message=error.message, line=line_in(error))


def _changelog(context: Context) -> Iterator[Hit]:
    version = layout.version_of(context.root)
    if context.draft or version is None or layout.CHANGELOG not in context.tree.files:
        return
    try:
        text = read_bundle_text(context.root, layout.CHANGELOG)
    except BundleError:
        return  # layout.text says so
    if f"## {version} " not in f"{text} ".replace("\n", " "):
        yield Hit(path=layout.CHANGELOG, message=f"has no entry for {version}")


RULES = (
    Rule(
        id="layout.required",
        severity="error",
        what="The required files are there.",
        mend="write the file; `SKILL.md`, `manifest.json`, `config.json` and "
        "`code/signal_engine.py` are the least a draft has",
        check=_required,
    ),
    Rule(
        id="layout.links",
        severity="error",
        what="No symbolic links: a bundle is self-contained.",
        mend="put a copy of the file there",
        check=_links,
    ),
    Rule(
        id="layout.names",
        severity="error",
        what="File names work on every machine and in checksums.txt.",
        mend="rename it: no backslash, no control characters, at most 200 bytes, 16 folders deep, "
        "no twin that differs only by case",
        check=_names,
    ),
    Rule(
        id="layout.text",
        severity="error",
        what="Text is UTF-8 with LF, without BOM, NUL and control characters, at most "
        f"{MAX_TEXT_BYTES:,} bytes.",
        mend="save the file as plain UTF-8 text with LF line ends",
        check=_text,
    ),
    Rule(
        id="layout.secrets",
        severity="error",
        what="No file holds a key, a token or a password: a frozen version keeps it for ever.",
        mend="remove it, and revoke it where it was real",
        check=_secrets,
    ),
    Rule(
        id="layout.json",
        severity="error",
        what="JSON files parse, with no duplicate key and no NaN.",
        mend="mend the JSON at that place",
        check=_json,
    ),
    Rule(
        id="layout.id",
        severity="error",
        what="The strategy's directory has a valid id, unique whatever the case.",
        mend="rename the strategy's directory",
        check=_id,
    ),
    Rule(
        id="layout.checksums",
        severity="error",
        what="A frozen version is what its checksums say.",
        mend="restore the file (git checkout), or freeze the change as a new version",
        check=_checksums,
    ),
    Rule(
        id="layout.changelog",
        severity="error",
        what="A frozen version's CHANGELOG.md has an entry for it.",
        mend="let `kit freeze` write the entry",
        check=_changelog,
    ),
)
