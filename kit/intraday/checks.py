"""Postflight: is the judgement fit to be sent?

The checks read the judgement's own text only, so that a data block cannot satisfy a rule on its
behalf. Critical findings fail it, one or two escalating ones warn, more than two fail, advisory
ones never change the product.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from kit.intraday.figures import exact
from kit.intraday.judgement import NEXT_TRIGGER, VIEW_MARKER, Judgement

__all__ = ["Finding", "Severity", "Verdict", "check_judgement", "verdict_of"]

Severity = Literal["critical", "escalating", "advisory"]
Verdict = Literal["pass", "warn", "fail"]

_MOST_ESCALATING = 2
_MOST_NUMBERS = 4
# Chinese characters may stand right beside a number; letters, digits and underscores may not.
_NUMBER = re.compile(r"(?<![0-9A-Za-z_.])[-+]?(\d[\d,]*(?:\.\d+)?)\s*(%?)(?![0-9A-Za-z_])")
_CLOCK = re.compile(r"(?<![0-9:])\d{1,2}:\d{2}(?![0-9:])")
_DATE = re.compile(r"(?<![0-9])(?:\d{4}-)?\d{2}-\d{2}(?![0-9])")
# How many items a list left out is said by the list itself, not read off the data.
_LEFT_OUT = re.compile(r"另 ?\d+ ?条")
_PERCENT_KEYS = re.compile(r"(?:^|_)pct(?:_|$)")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing wrong with a judgement.

    Attributes:
        rule: `view_marker`, `empty_view`, `next_trigger` or `numeric_claims`.
        severity: See the module.
        message: In Chinese, for the card.
    """

    rule: str
    severity: Severity
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rule": self.rule, "severity": self.severity, "message": self.message}


def check_judgement(judgement: Judgement, packet: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return everything found, critical first."""
    found = [*_marker(judgement), *_next_trigger(judgement), *_numbers(judgement, packet)]
    order: Sequence[Severity] = ("critical", "escalating", "advisory")
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return what the findings make of the product."""
    severities = [finding.severity for finding in findings]
    escalating = severities.count("escalating")
    if "critical" in severities or escalating > _MOST_ESCALATING:
        return "fail"
    return "warn" if escalating else "pass"


def _marker(judgement: Judgement) -> list[Finding]:
    if not judgement.view or not judgement.view[0].lstrip(" #*").startswith(VIEW_MARKER):
        message = f"缺少 {VIEW_MARKER} 段首"
        return [Finding(rule="view_marker", severity="critical", message=message)]
    said = judgement.view[0].lstrip(" #*").removeprefix(VIEW_MARKER).strip(" *：:")
    if len(judgement.view) == 1 and not said:
        return [Finding(rule="empty_view", severity="critical", message="看法没有正文")]
    return []


def _next_trigger(judgement: Judgement) -> list[Finding]:
    if judgement.next_trigger.startswith(NEXT_TRIGGER):
        return []
    message = f"缺少 {NEXT_TRIGGER}一行"
    return [Finding(rule="next_trigger", severity="escalating", message=message)]


def _numbers(judgement: Judgement, packet: Mapping[str, Any]) -> list[Finding]:
    """Name the numbers that stand nowhere in the packet, compared within their own unit."""
    percents, plains, words = _known(packet)
    foreign = []
    text = _LEFT_OUT.sub(" ", judgement.text)
    for pattern in (_CLOCK, _DATE):
        foreign += [found for found in pattern.findall(text) if found not in words]
        text = pattern.sub(" ", text)
    labels = {str(row["ticker"]) for row in packet["full_holdings"]}
    labels |= {str(row["symbol"]).partition(".")[0] for row in packet["full_holdings"]}
    for match in _NUMBER.finditer(text):
        digits, unit = match[1], match[2]
        if not unit and digits in labels:
            continue
        if not _stands(digits, percents if unit else plains):
            foreign.append(match[0].strip())
    if not foreign:
        return []
    named = "、".join(dict.fromkeys(foreign[:_MOST_NUMBERS]))
    more = f" 等 {len(foreign)} 处" if len(foreign) > _MOST_NUMBERS else ""
    return [
        Finding(
            rule="numeric_claims", severity="advisory", message=f"数字在数据里找不到：{named}{more}"
        )
    ]


def _stands(digits: str, known: Iterable[Decimal]) -> bool:
    """Whether a number stands among the known ones, to within half of its last printed digit."""
    value = Decimal(digits.replace(",", ""))
    places = -int(value.as_tuple().exponent)
    half = Decimal(1).scaleb(-places) / 2
    return any(abs(abs(other) - value) <= half for other in known)


def _known(packet: Mapping[str, Any]) -> tuple[set[Decimal], set[Decimal], str]:
    """Collect a packet's numbers by unit, and all its text."""
    percents: set[Decimal] = set()
    plains: set[Decimal] = set()
    words: list[str] = []

    def walk(value: Any, key: str) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                walk(item, str(name))
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, str):
            words.append(value)
            for match in _NUMBER.finditer(value):
                number = Decimal(match[1].replace(",", ""))
                (percents if match[2] else plains).add(number)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            (percents if _PERCENT_KEYS.search(key) else plains).add(exact(value))

    walk(packet, "")
    return percents, plains, "\n".join(words)
