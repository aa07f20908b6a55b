"""How the lab's results look in a notebook: small tables and short texts, escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kit.errors import KitError

__all__ = ["Note", "Rows", "Sheet", "register", "show_error"]


class Rows:
    """A titled table that shows as HTML in a notebook and as text elsewhere.

    Attributes:
        title: One line above the table.
        headers: Column names.
        rows: Cells; None shows as an empty cell.
    """

    def __init__(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.title = title
        self.headers = tuple(headers)
        self.rows = tuple(tuple(row) for row in rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [self.title, "  ".join(self.headers)]
        lines += ["  ".join("" if cell is None else str(cell) for cell in row) for row in self.rows]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from kit.render import html_table

        return f"<p><b>{escape(self.title)}</b></p>{html_table(self.rows, self.headers)}"


class Note:
    """A short text, with an optional list of next steps."""

    def __init__(self, text: str, steps: Sequence[str] = ()) -> None:
        self.text = text
        self.steps = tuple(steps)

    def __repr__(self) -> str:
        return "\n".join([self.text, *(f"  → {step}" for step in self.steps)])

    def _repr_html_(self) -> str:
        steps = "".join(f"<li><code>{escape(step)}</code></li>" for step in self.steps)
        return f"<p>{escape(self.text)}</p>" + (f"<ul>{steps}</ul>" if steps else "")


class Sheet:
    """Named texts side by side: one card as each channel shows it."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)

    def __repr__(self) -> str:
        return "\n\n".join(f"[{name}]\n{text}" for name, text in self.texts.items())

    def _repr_html_(self) -> str:
        columns = "".join(
            "<div style='flex:1 1 20em;min-width:0'>"
            f"<b>{escape(name)}</b>"
            "<pre style='white-space:pre-wrap;border:1px solid #8884;border-radius:6px;"
            f"padding:.8em'>{escape(text)}</pre></div>"
            for name, text in self.texts.items()
        )
        return f"<div style='display:flex;flex-wrap:wrap;gap:1em'>{columns}</div>"


def show_error(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    _traceback: Any,
    tb_offset: int | None = None,
) -> list[str]:
    """Show a `KitError` as message and remedy instead of a wall of traceback.

    The cell fails all the same, for *Run All* and for nbval: `_showtraceback` is what a kernel
    publishes an error with, and there is no public name for it.
    """
    del tb_offset
    assert isinstance(error, KitError)
    lines = [f"{type(error).__name__} [{error.code}]: {error}"]
    if error.remedy:
        lines.append(f"  → {error.remedy}")
    shell._showtraceback(kind, error, lines)  # noqa: SLF001
    return lines


def register(ipython: Any) -> None:
    """Teach a notebook to show results whose rooms know nothing of notebooks.

    By name, so that nothing is imported before it is used.
    """
    formatter = ipython.display_formatter.formatters["text/html"]
    formatter.for_type_by_name("kit.bundle.frozen", "FrozenVersion", _frozen_html)
    formatter.for_type_by_name("kit.jobs.screen_outcome", "ScreenOutcome", _outcome_html)
    formatter.for_type_by_name("kit.jobs.slot", "SlotOutcome", _outcome_html)
    formatter.for_type_by_name("kit.jobs.runs", "RunDetails", _details_html)


def _frozen_html(frozen: Any) -> str:
    parent = f" from {frozen.parent_version}" if frozen.parent_version else ""
    checks = [
        (check.name, "✔" if check.ok else "✘" if check.blocking else "!", check.detail)
        for check in frozen.checks
    ]
    changes = [(change.level, change.area, change.text) for change in frozen.changes]
    table = Rows(f"{frozen.ref}: {frozen.bump}{parent}", ("check", "", "found"), checks)
    html = table._repr_html_()
    if changes:
        html += Rows("Changes", ("bump", "area", "change"), changes)._repr_html_()
    return html


def _outcome_html(outcome: Any) -> str:
    if outcome.run is None:
        return Note(f"{outcome.status}: {outcome.reason}")._repr_html_()
    head = f"<p><b>{escape(outcome.status)}</b> {escape(outcome.run.run_id)}</p>"
    receipts = ", ".join(f"{receipt.channel}: {receipt.state}" for receipt in outcome.run.receipts)
    return f"{head}{_card_html(outcome.run.card)}<p>{escape(receipts)}</p>"


def _details_html(details: Any) -> str:
    head = f"<p><b>{escape(details.status)}</b> {escape(details.run_id)}</p>"
    files = Rows("Files", ("file",), [(name,) for name in details.files])
    report = details.degradation or {}
    entries = [(e["code"], e["reason"], e["impact"]) for e in report.get("entries", [])]
    degraded = Rows("Degradations", ("code", "reason", "impact"), entries) if entries else None
    return (
        f"{head}{_card_html(details.card)}"
        f"{degraded._repr_html_() if degraded else ''}{files._repr_html_()}"
    )


def _card_html(card: Any) -> str:
    from kit.card import render_card

    return Sheet({"card": render_card(card, "plain")})._repr_html_() if card else ""
