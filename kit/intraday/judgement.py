"""The judgement of a slot: a model's words, or facts in its place when no model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kit.bundle.prompt import Prompt
from kit.errors import ConfigError
from kit.intraday import figures
from kit.intraday.figures import change_pct, exact
from kit.intraday.signals import LINE_NAMES
from kit.intraday.wording import UNCHECKED
from kit.llm import StepResult, StepSpec
from kit.workspace import Workspace

__all__ = ["NEXT_TRIGGER", "STEP", "VIEW_MARKER", "Judgement", "judgement_step", "offline_view"]

STEP = "intraday"
VIEW_MARKER = "▎我的看法"
NEXT_TRIGGER = "下一触发："
_OFFLINE_HEAD = f"{VIEW_MARKER}（离线整理：只列事实与未满足的条件，不作判断）"
_PROMPT = "prompts/intraday.md"
_MOST_LINES = 4
_CONDITIONS = {"stop": "跌破", "trim": "升至"}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was answered, in parts.

    Attributes:
        view: Lines of the view; the first carries the marker.
        next_trigger: The one line of next triggers, possibly empty.
        notes: A note for each mover, by label.
        mode: `live`, `offline` or `replay`.
    """

    view: tuple[str, ...]
    next_trigger: str
    notes: Mapping[str, str]
    mode: str

    @classmethod
    def from_result(cls, result: StepResult) -> Judgement | None:
        """Read a step's answer; None when it has none."""
        value = result.value
        if value is None:
            return None
        return cls(
            view=tuple(line for line in value["view"].splitlines() if line.strip()),
            next_trigger=" ".join(value["next_trigger"].split()),
            notes={row["ticker"]: " ".join(row["note"].split()) for row in value["movers"]},
            mode=str(result.mode),
        )

    @property
    def text(self) -> str:
        """The judgement as `prose.md` keeps it: everything that was written, nothing else."""
        notes = [f"· {ticker}：{note}" for ticker, note in self.notes.items()]
        return "\n".join([*self.view, *notes, self.next_trigger]).rstrip("\n") + "\n"


def judgement_step(workspace: Workspace, config: Mapping[str, Any]) -> StepSpec:
    """Return the step that `prompts/intraday.md` declares, with its numbers from the config.

    Args:
        workspace: Whose prompt to read.
        config: `config/intraday.json`.

    Raises:
        ConfigError: `slot.prompt` when there is no prompt, or it does not declare this module's
            stand-in.
        BundleError: The prompt file is malformed.
    """
    try:
        prompt = Prompt.parse(workspace.root / _PROMPT, relative=_PROMPT)
    except OSError as error:
        raise ConfigError(
            "slot.prompt",
            f"the prompt of the judgement cannot be read: {error.strerror}",
            where=_PROMPT,
            remedy="`kit init` writes it into a new workspace; copy it from there",
        ) from error
    offline = prompt.offline
    if offline is None or offline.reference != "kit/intraday/judgement.py::offline_view":
        raise ConfigError(
            "slot.prompt",
            "the prompt does not declare the offline equivalent of the judgement",
            where=_PROMPT,
            remedy="keep its Offline Quantization Equivalent section with the callable "
            "kit/intraday/judgement.py::offline_view",
        )
    numbers = config["judgement"]
    return StepSpec(
        name=STEP,
        system=prompt.body,
        input_schema=prompt.input_schema,
        output_schema=prompt.output_schema,
        model=numbers["model"],
        temperature=numbers["temperature"],
        max_tokens=numbers["max_tokens"],
        timeout_sec=numbers["timeout_sec"],
        quality=offline.quality,
        differences=offline.differences,
        offline=offline_view,
        max_calls=numbers["max_calls"],
    )


def offline_view(packet: dict[str, Any]) -> dict[str, Any]:
    """Return facts and unmet conditions from a core packet; no verdict.

    Args:
        packet: What a model would be shown. Every number is copied from it as it stands.
    """
    lines = [_OFFLINE_HEAD, _coverage(packet["quote_coverage"]), *_moves(packet["full_holdings"])]
    unmet, met = _price_lines(packet["full_holdings"])
    if met:
        lines.append(f"已到价：{'；'.join(met)}。")
    if unmet:
        lines.append(f"未触及：{_listed([text for text, _ in unmet])}。")
    return {
        "view": "\n".join(lines),
        "next_trigger": f"{NEXT_TRIGGER}{_triggers(packet, [text for _, text in unmet], met)}",
        "movers": [
            {"ticker": row["ticker"], "note": f"{row['reason']}，原因未查"}
            for row in packet["anomalies"]
        ],
    }


def _triggers(packet: Mapping[str, Any], unmet: Sequence[str], met: Sequence[str]) -> str:
    """Write what to wait for: lines not met yet, then those that nobody could check."""
    parts = [_listed(unmet)] if unmet else []
    unchecked = _unchecked(packet["raw_wechat_block"])
    if unchecked:
        parts.append(f"{UNCHECKED}{_listed(unchecked)}")
    return "；".join(parts) or ("价位线都已到价" if met else "没有设价位线")


def _unchecked(block: str) -> list[str]:
    """Return the lines that the card's health block names as unchecked.

    A price that is missing has no distance, so `plan_distances` cannot carry its lines.
    """
    for line in block.splitlines():
        _, found, names = line.partition(UNCHECKED)
        if found:
            # What the last price did stands in the health block; here the line itself is enough.
            return [name.partition("（")[0] for name in names.split("；")]
    return []


def _listed(items: Sequence[str]) -> str:
    """Join the first items, and count the others."""
    more = len(items) - _MOST_LINES
    return "；".join(items[:_MOST_LINES]) + (f"，另 {more} 条" if more > 0 else "")


def _coverage(coverage: Mapping[str, Any]) -> str:
    text = f"持仓 {coverage['active']} 只，行情已证实 {coverage['refreshed']} 只"
    waiting = [*coverage["unrefreshed"], *coverage["missing"]]
    return f"{text}；{'、'.join(waiting)} 现价不明。" if waiting else f"{text}。"


def _moves(holdings: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [row for row in holdings if row["quote_fresh"] and row["pct_1d"] is not None]
    if not known:
        return []
    ranked = sorted(known, key=lambda row: row["pct_1d"])
    told = [ranked[-1]] if len(ranked) == 1 else [ranked[-1], ranked[0]]
    words = ("今日最强", "最弱") if len(told) > 1 else ("今日",)
    parts = [
        f"{word} {row['ticker']} {figures.percent(exact(row['pct_1d']))}"
        for word, row in zip(words, told, strict=True)
    ]
    return [f"{'，'.join(parts)}。"]


def _price_lines(
    holdings: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (what is not met, its trigger), nearest first, and what is met."""
    unmet: list[tuple[tuple[Decimal, str, str], str, str]] = []
    met = []
    for row in holdings:
        for line in row["plan_distances"]:
            level = figures.price(exact(line["condition_price"]))
            name = f"{row['ticker']} {LINE_NAMES[line['kind']]} {level}"
            if line["met"]:
                met.append(name)
                continue
            distance = figures.percent(exact(line["pct_to_trigger"]))
            # Not the printed distance: two that round to the same are still told in order.
            away = change_pct(exact(line["condition_price"]), exact(row["price"])) or Decimal()
            unmet.append(
                (
                    (abs(away), row["ticker"], line["kind"]),
                    f"{name}（距 {distance}）",
                    f"{row['ticker']} {_CONDITIONS[line['kind']]} {level}",
                )
            )
    unmet.sort(key=lambda item: item[0])
    return [(text, trigger) for _, text, trigger in unmet], met
