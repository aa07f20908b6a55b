"""A researcher's desk: one workspace, one open draft, and every step from idea to card.

The functions of `kit.lab` act on the current desk, so a notebook reads as a list of steps. A
notebook that authors or freezes begins with `lab.scratch()`: a copy of the workspace in a
temporary folder, so running it never changes what cron runs.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kit import files
from kit.clock import Clock, SystemClock, parse_date, parse_instant
from kit.errors import UsageError
from kit.lab.display import Note, Rows, Sheet
from kit.workspace import Workspace, copy_workspace

if TYPE_CHECKING:
    from kit.backtest import BacktestResult
    from kit.bundle import FrozenVersion
    from kit.jobs.runs import RunDetails
    from kit.jobs.screen import ScreenOutcome
    from kit.jobs.slot import SlotOutcome
    from kit.jobs.sweep import Sweep
    from kit.mcp import ServerPool

__all__ = ["Desk", "scratch_desk"]


class Desk:
    """A workspace with an open draft.

    Args:
        workspace: Where everything happens.
        clock: Where time comes from.
    """

    def __init__(self, workspace: Workspace, clock: Clock | None = None) -> None:
        self.workspace = workspace
        self.clock = clock or SystemClock()
        self.open_id: str | None = None

    def __repr__(self) -> str:
        draft = f", draft {self.open_id}" if self.open_id else ""
        return f"Desk({self.workspace.root.name}{draft})"

    def strategies(self) -> Rows:
        """List strategies and their versions."""
        from kit import bundle

        found = bundle.list_strategies(self.workspace)["strategies"]
        rows = [
            (
                name,
                entry["latest_active_version"],
                ", ".join(version["version"] for version in entry["all_versions"]),
                "yes" if entry["has_draft"] else "no",
            )
            for name, entry in found.items()
        ]
        return Rows("Strategies", ("strategy", "active", "versions", "draft"), rows)

    def draft(self, strategy_id: str, *, from_: str | None = None, empty: bool = False) -> Note:
        """Open a draft: the existing one, a copy of a version, or an empty folder.

        Args:
            strategy_id: Strategy id.
            from_: `ID@VERSION` to copy; None opens the existing draft, else the latest version.
            empty: Begin from nothing (the way of `01-author`).

        Raises:
            RegistryError: `draft.exists` when a copy or an empty one is asked for over a draft.
        """
        from kit import bundle

        bundle.check_id(strategy_id)
        root = self.workspace.strategies / strategy_id / "draft"
        if empty and not root.exists():
            files.make_dir(root)
        elif empty or from_ or not root.exists():
            bundle.new_draft(self.workspace, strategy_id, from_)
        self.open_id = strategy_id
        count = sum(1 for path in root.rglob("*") if path.is_file())
        return Note(f"draft of {strategy_id} open: {count} files", ("%kit_lint", "%kit_backtest"))

    @property
    def draft_root(self) -> Path:
        """Directory of the open draft.

        Raises:
            UsageError: `lab.no_draft`.
        """
        if self.open_id is None:
            raise UsageError(
                "lab.no_draft", "no draft is open", remedy="open one: %kit_draft ma250-pullback"
            )
        return self.workspace.strategies / self.open_id / "draft"

    def file(self, path: str, text: str) -> Rows | Note:
        """Write a file of the open draft, show what changed in it and what lint says of it.

        Raises:
            UsageError: `lab.no_draft`, or `lab.bad_path` when the path leaves the draft.
        """
        name = _inside(self.draft_root, path)
        target = self.draft_root / name
        text = text if text.endswith("\n") else text + "\n"
        # What stood there may be no text at all; it is being replaced.
        old = target.read_bytes().decode("utf-8", "replace") if target.is_file() else ""
        files.make_dir(target.parent)
        files.write_text(target, text)
        plus, minus = _changed_lines(old, text)
        head = f"{name}: +{plus} -{minus} lines" if plus or minus else f"{name}: unchanged"
        findings = [f for f in self._findings(self.draft_root) if f.path == name]
        if not findings:
            return Note(f"{head}; lint: clean")
        rows = [(f.where, f.rule, f.message, f.mend) for f in findings]
        return Rows(f"{head}; lint:", ("where", "rule", "finding", "mend"), rows)

    def lint(self, ref: str | None = None) -> Rows:
        """Lint the open draft, or a version."""
        root = self._bundle_root(ref)
        rows = [(f.severity, f.where, f.rule, f.message, f.mend) for f in self._findings(root)]
        title = "Lint" if rows else "Lint: clean"
        return Rows(title, ("severity", "where", "rule", "finding", "mend"), rows)

    def diff(self, old: str | None = None, new: str = "draft") -> Rows:
        """Explain what changed in the open draft since what it was made from, or since a version.

        Raises:
            UsageError: `lab.no_draft`, or `bundle.no_parent` when it was made from nothing.
            RegistryError: There is no such version.
        """
        from kit import bundle
        from kit.bundle.diff import diff
        from kit.bundle.numbering import origin_of

        strategy = self._open()
        target = bundle.resolve(self.workspace, f"{strategy}@{new}")
        named = bundle.resolve(self.workspace, f"{strategy}@{old}").root if old else None
        origin = named or origin_of(self.workspace, target)
        if origin is None:
            raise UsageError(
                "bundle.no_parent",
                f"{strategy} has no frozen version to compare with",
                remedy="cut the first one: lab.freeze()",
            )
        found = diff(origin, target.root)
        same = origin.parent == target.root.parent
        name = origin.name if same else f"{origin.parent.name}/{origin.name}"
        return Rows(
            f"{name} → {target.root.name}: {found.bump}",
            ("bump", "area", "change"),
            [(change.level, change.area, change.text) for change in found.changes],
        )

    def note(self, text: str, *, kind: str = "decision") -> Note:
        """Record a decision into the open draft's conversation."""
        from kit.bundle import record_note

        path = record_note(self.draft_root, text, clock=self.clock, kind=kind)
        return Note(f"noted in {path.name}")

    def chat(self, question: str, *, model: str | None = None) -> Note:
        """Ask a model about the open draft; question and answer go into its conversation.

        Without a configured model the question is kept as a note, and the result says so.

        Raises:
            UsageError: `lab.no_draft`; `conversation.empty_note`.
            CallError: No answer came; the question is recorded.
        """
        from kit.jobs.conversation import ask

        reply = ask(self.workspace, self.draft_root, question, clock=self.clock, model=model)
        if reply.text is not None:
            return Note(reply.text)
        why = "no key is configured" if reply.cause == "no_key" else "the mode is offline"
        return Note(
            f"no model was asked: {why} ({reply.model}); the question is a note in "
            f"{reply.path.name}"
        )

    def record_cell(self, draft: Path, source: str, output: Mapping[str, Any]) -> None:
        """Record a cell into a draft's conversation; what `kit.lab.cells` calls."""
        from kit.bundle import append_event

        content = {"tool": "cell", "source": source}
        extra = {"output": dict(output)}
        append_event(
            draft, role="user", kind="tool_call", content=content, clock=self.clock, extra=extra
        )

    def recording(self, strategy_id: str | None = None) -> AbstractContextManager[ServerPool]:
        """Open the MCP servers; what is read of their answers is what the draft's freeze locks.

        Args:
            strategy_id: Strategy whose draft it is for; the open one by default.
        """
        from kit.jobs.recording import recording

        return recording(self.workspace, strategy_id or self._open())

    def backtest(
        self,
        ref: str | None = None,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        symbols: Sequence[str] | None = None,
        source: str = "sample",
        label: str | None = None,
    ) -> BacktestResult:
        """Backtest the open draft, or a version; the evidence is written beside it."""
        from kit.jobs.backtest import backtest

        result, _ = backtest(
            self.workspace,
            ref or f"{self._open()}@draft",
            start=_day(start),
            end=_day(end),
            symbols=symbols,
            source=source,
            label=label,
            clock=self.clock,
        )
        return result

    def validate(self, ref: str | None = None, *, source: str = "sample") -> Rows:
        """Run every guard on the open draft, or on a version: `kit validate`."""
        from kit.jobs.validate import validate

        found = validate(
            self.workspace, ref or f"{self._open()}@draft", source=source, clock=self.clock
        )
        title = f"{found.ref}: {'no guard refuses' if found.ok else 'REFUSED'}"
        return Rows(title, ("guard", "result", "found"), found.rows())

    def sweep(self, *params: str, ref: str | None = None, **options: Any) -> Sweep:
        """Backtest a grid of parameters, such as `"near_pct=2,3,4"`: `kit sweep`."""
        from kit.jobs.sweep import sweep

        return sweep(
            self.workspace, ref or f"{self._open()}@draft", params, clock=self.clock, **options
        )

    def freeze(self, strategy_id: str | None = None, **options: Any) -> FrozenVersion:
        """Cut the next version from a draft (the open one by default): `kit freeze`."""
        from kit.jobs.freeze import freeze_draft

        return freeze_draft(
            self.workspace, strategy_id or self._open(), clock=self.clock, **options
        )

    def verify(self, ref: str | None = None) -> Rows:
        """Re-hash frozen versions."""
        from kit.bundle.verify import verify

        found = verify(self.workspace, ref)
        rows = [(row.ref, row.path, row.kind, row.detail) for row in found.rows if not row.advice]
        state = "intact" if found.ok else "NOT INTACT"
        title = f"{len(found.checked)} versions re-hashed: {state}"
        return Rows(title, ("version", "file", "kind", "detail"), rows)

    def screen(self, ref: str, day: str | None = None, **options: Any) -> ScreenOutcome:
        """Run a daily screen as cron would, in a kernel of its own."""
        from kit.jobs.screen import run_screen
        from kit.state import Store

        store = Store(self.workspace.state_path)
        return run_screen(self.workspace, ref, date=day, clock=self.clock, store=store, **options)

    def slot(self, market: str, now: str | datetime | None = None, **options: Any) -> SlotOutcome:
        """Run an intraday slot as cron would, in a kernel of its own."""
        from kit.jobs.slot import run_slot
        from kit.state import Store

        instant = parse_instant(now) if isinstance(now, str) else now
        store = Store(self.workspace.state_path)
        return run_slot(
            self.workspace, market, now=instant, clock=self.clock, store=store, **options
        )

    def load(self, run: str | None = None) -> RunDetails:
        """Load a past run; the latest by default."""
        from kit.jobs.runs import list_runs, show_run
        from kit.state import Store

        if run is None:
            rows = sorted(list_runs(self.workspace), key=lambda row: row.started_at)
            if not rows:
                raise UsageError("lab.no_runs", "no runs yet", remedy="lab.screen(...) makes one")
            run = rows[-1].run_id
        return show_run(self.workspace, Store(self.workspace.state_path), run)

    def card(self, run: str | None = None) -> Sheet:
        """Show a run's card as each channel would show it."""
        from kit.card import render_card

        details = self.load(run)
        if details.card is None:
            return Sheet({details.run_id: "no card"})
        formats = ("plain", "wecom", "telegram")
        return Sheet({name: render_card(details.card, name) for name in formats})

    def _open(self) -> str:
        return self.draft_root.parent.name

    def _bundle_root(self, ref: str | None) -> Path:
        from kit import bundle

        return bundle.resolve(self.workspace, ref, verify=False).root if ref else self.draft_root

    def _findings(self, root: Path) -> list[Any]:
        from kit.bundle import read_index
        from kit.bundle.lint import lint

        return lint(root, draft=root.name == "draft", index=read_index(self.workspace).raw)


def scratch_desk(origin: Workspace, clock: Clock | None = None) -> Desk:
    """Copy a workspace, without runs and drafts, into a temporary folder, and sit down there."""
    folder = Path(tempfile.mkdtemp(prefix="kit-scratch-"))
    return Desk(copy_workspace(origin, folder / origin.root.name), clock)


def _inside(draft: Path, path: str) -> str:
    """Return a path as the draft's own files are named: relative, forward slashes, no detours.

    Raises:
        UsageError: `lab.bad_path` when it leaves the draft, passes a link, or names no file.
    """
    inside = PurePosixPath(path)
    parts = inside.parts
    steps = [draft.joinpath(*parts[:count]) for count in range(len(parts) + 1)]
    if (
        not parts
        or inside.is_absolute()
        or ".." in parts
        or path.endswith("/")
        or not path.isprintable()
        or any(step.is_symlink() for step in steps)
        or steps[-1].is_dir()
    ):
        raise UsageError(
            "lab.bad_path",
            f"{path!r} is not a file of the draft",
            remedy="name a path inside it, such as code/signal_engine.py",
        )
    return inside.as_posix()


def _changed_lines(old: str, new: str) -> tuple[int, int]:
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return sum(line[:2] == "+ " for line in lines), sum(line[:2] == "- " for line in lines)


def _day(value: str | date | None) -> date | None:
    return parse_date(value) if isinstance(value, str) else value
