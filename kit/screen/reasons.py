"""The reason text of a pick: what it may quote, and what stands in for it.

A model's sentence goes on a card only when every number in it is one that the rule measured.
Otherwise the bundle's template takes its place, and a plain list when that fails too.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from kit.screen.picks import Candidate
from kit.screen.wording import CONFIDENCE, code_of, figure
from kit.text import clip, one_line

__all__ = [
    "check_reason",
    "confidence_of",
    "params_numbers",
    "reason_line",
    "render_template",
    "ungrounded",
]

_MAX_REASON = 300
_NUMBER = re.compile(
    r"(?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    r"(?P<unit>\s*(?:%|‰|万亿|亿|万|千|百分点|个百分点))?",
    re.ASCII,
)
_SCALES = {
    "%": 0.01,
    "‰": 0.001,
    "百分点": 0.01,
    "个百分点": 0.01,
    "千": 1e3,
    "万": 1e4,
    "亿": 1e8,
    "万亿": 1e12,
}
_LINK = re.compile(r"(?i)(?:https?|ftp)\s*:\s*//|www\.\w|\b[\w-]+\.(?:com|cn|net|org|io|top|xyz)\b")


def check_reason(text: Any, pick: Candidate, facts: Iterable[float], today: str) -> str | None:
    """Say what is wrong with a reason text, or None when it may go on a card.

    Args:
        text: The text.
        pick: The pick it is about.
        facts: Numbers it may quote beside the pick's own: price, parameters.
        today: Trade date, `YYYY-MM-DD`.
    """
    if not isinstance(text, str) or not one_line(text):
        return "the reason is empty"
    if len(text) > _MAX_REASON:
        return f"the reason has {len(text)} characters, {_MAX_REASON} are allowed"
    if _LINK.search(text):
        return "the reason holds a link"
    invented = ungrounded(text, pick, facts, today)
    if invented:
        return f"the reason quotes numbers that the pick does not hold: {', '.join(invented)}"
    return None


def ungrounded(text: str, pick: Candidate, facts: Iterable[float], today: str) -> list[str]:
    """Return the numbers of a text that none of the facts gives, to the precision shown.

    The pick's code, name and rule names, and the trade date, may be repeated as they are. A share
    (0.012) may be written as 1.2 %, and a loss without its sign.
    """
    plain = _ascii_digits(unicodedata.normalize("NFKC", text))
    for known in _repeatable(pick, today):
        plain = plain.replace(unicodedata.normalize("NFKC", known), " ")
    values = [pick.score, *_numbers(pick.fields.values()), *facts]
    values += [float(n) for name in _names(pick) for n in re.findall(r"\d+(?:\.\d+)?", name)]
    return [
        match[0].strip()
        for match in _NUMBER.finditer(plain)
        if not any(_shows(match, value) for value in values)
    ]


def render_template(template: str | None, pick: Candidate, price: float | None, today: str) -> str:
    """Write the reason of a pick from the bundle's template; never fails.

    The template is Jinja2 in its sandbox and sees `symbol`, `code`, `name`, `score`, `price`,
    `today`, `matched_rules` and `fields`, the pick's own also as `pick`. Without a template, or
    when it cannot be rendered, the text lists the rules and the figures.
    """
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if template:
        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined,
            autoescape=False,  # the card escapes for its channel
            finalize=lambda value: "未知" if value is None else value,
        )
        own = pick.to_dict()
        facts = own | {"pick": own, "code": code_of(pick.symbol), "price": price, "today": today}
        try:
            text = one_line(environment.from_string(template).render(facts))
        except Exception:  # noqa: BLE001 - a template may call anything; the plain list follows
            text = ""
        if text:
            return clip(text, _MAX_REASON)
    return clip(_plain_reason(pick), _MAX_REASON)


def _plain_reason(pick: Candidate) -> str:
    rules = "、".join(pick.matched_rules) or "未注明"
    figures = "，".join(
        f"{name} {figure(value)}"
        for name, value in pick.fields.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    return f"命中规则：{rules}" + (f"；{figures}" if figures else "")


def _repeatable(pick: Candidate, today: str) -> list[str]:
    year, month, day = today.split("-")
    dates = [
        today,
        f"{year}年{int(month)}月{int(day)}日",
        f"{int(month)}月{int(day)}日",
        f"{int(month)}/{int(day)}",
    ]
    texts = [value for value in pick.fields.values() if isinstance(value, str)]
    own = [pick.symbol, code_of(pick.symbol), pick.name, *pick.matched_rules, *texts, *dates]
    # Longest first: the code stands inside the symbol.
    return sorted((text for text in own if text), key=len, reverse=True)


def _names(pick: Candidate) -> list[str]:
    return [*pick.fields, *pick.matched_rules]


def _numbers(values: Iterable[Any]) -> list[float]:
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ]


def _ascii_digits(text: str) -> str:
    """Write the digits of every script as ASCII ones: a figure must not hide in another script."""
    return "".join(
        str(unicodedata.digit(char)) if unicodedata.category(char) == "Nd" else char
        for char in text
    )


def _shows(match: re.Match[str], value: float) -> bool:
    """Whether the number in a text is `value`, rounded as the text rounds."""
    unit = (match["unit"] or "").strip()
    digits = match["digits"].replace(",", "")
    number = float(digits)
    step = 10.0 ** -len(digits.partition(".")[2])
    scale = _SCALES.get(unit, 1.0)
    readings = [number * scale]
    if scale < 1:
        # A field such as distance_pct holds the percentage itself.
        readings.append(number)
    tolerances = [step * scale, step]
    return any(
        abs(abs(value) - reading) <= 0.5 * tolerance * (1 + 1e-9) + 1e-12
        for reading, tolerance in zip(readings, tolerances, strict=False)
    )


def params_numbers(params: Mapping[str, Any]) -> list[float]:
    """Return the numeric parameters of a rule, which a reason may quote."""
    return _numbers(params.values())


def reason_line(text: str) -> str:
    """Return a checked reason as it goes into the result: one line, bounded."""
    return clip(one_line(text), _MAX_REASON)


def confidence_of(value: Mapping[str, Any]) -> str | None:
    """Return the confidence an answer states, when it is one of the known words."""
    stated = value.get("confidence")
    return stated if stated in CONFIDENCE else None
