"""The data stage: which symbols, their bars, how fresh these are, and who drops out why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from kit.errors import DataError

if TYPE_CHECKING:
    from kit.market import BarSource, Calendar, Dropped, MarketPanel, Security

__all__ = ["Contract", "ScreenData", "ScreenUniverse", "load_data", "window_start"]

# Calendar days read for each bar of history asked for. A year has about 243 sessions, that is 1.5
# days a bar; the rest leaves room for a stock that was halted for a few weeks.
_DAYS_PER_BAR = 1.9
# Columns that bars carry under another name than contracts use, or that are no figures.
_NOT_MEASURED = {"date", "symbol", "time"}
# What a symbol lacks whose bars are unusable, and why they are (zh-CN).
_SOUND = "有效行情"
_PROBLEMS = {
    "all_missing": "整段价格缺失",
    "duplicate": "同一时刻有两根",
    "factor": "复权因子有误",
    "missing": "价格缺失",
    "mixed_adjust": "复权口径混用",
    "negative_volume": "成交量缺失或为负",
    "not_monotonic": "时间倒序",
    "not_positive": "价格不为正",
    "ohlc": "高低价矛盾",
}


class Contract(Protocol):
    """What the data stage needs of a bundle's data contract."""

    @property
    def frequency(self) -> str:
        """Spacing of bars; `daily` here."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Needed columns; `close_adj` is the frame's adjusted `close`."""
        ...

    @property
    def history_days(self) -> int:
        """Bars of history a screen needs."""
        ...

    @property
    def warmup_bars(self) -> int | None:
        """Fewest bars after which outputs stop changing."""
        ...

    @property
    def adjustment(self) -> str:
        """`forward`, `backward` or `none`."""
        ...

    @property
    def market(self) -> str:
        """`cn`, `hk` or `us`."""
        ...

    @property
    def selector(self) -> Mapping[str, Any]:
        """Universe selector."""
        ...

    @property
    def asof(self) -> tuple[time, ZoneInfo]:
        """Time of day after which a session's data is complete, and its zone."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScreenUniverse:
    """Account of the symbols.

    Attributes:
        asked: How many the selector meant.
        got: How many of them the source serves on the day.
        screened: How many went into the rule.
        dropped: Everyone else, with a reason in Chinese.
        note: What the reader should know about the list, in Chinese.
    """

    asked: int
    got: int
    screened: int
    dropped: tuple[Dropped, ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in `picks.json`."""
        return {
            "asked": self.asked,
            "got": self.got,
            "screened": self.screened,
            "dropped": [{"symbol": d.symbol, "reason": d.reason} for d in self.dropped],
        }


@dataclass(frozen=True, kw_only=True)
class ScreenData:
    """What the rule is going to see.

    Attributes:
        panel: Bars of the screened symbols, up to the newest; None when nobody is left.
        securities: Symbol -> security, of the screened symbols.
        universe: Account of the symbols.
        day: The trade date asked for.
        data_date: Session of the newest bar.
        data_time: Close of that session, aware.
        expected_time: Close of the trade date's session, aware.
        lag_minutes: Minutes between the two.
        missing: Field -> symbols dropped because the newest bar lacks it.
        prices: Symbol -> newest close as it traded.
        restated: Symbols whose source only has forward-adjusted prices.
    """

    panel: MarketPanel | None
    securities: Mapping[str, Security]
    universe: ScreenUniverse
    day: date
    data_date: date
    data_time: datetime
    expected_time: datetime
    lag_minutes: int
    missing: Mapping[str, tuple[str, ...]]
    prices: Mapping[str, float]
    restated: frozenset[str]


def window_start(contract: Contract, day: date) -> date:
    """Return the first date whose bars a screen of `day` reads."""
    return day - timedelta(days=math.ceil(contract.history_days * _DAYS_PER_BAR))


def load_data(source: BarSource, contract: Contract, day: date, calendar: Calendar) -> ScreenData:
    """Resolve the universe, open its bars, and drop who cannot be screened.

    Args:
        source: Where bars come from.
        contract: The bundle's data contract.
        day: The trade date.
        calendar: Calendar of the contract's market.

    Raises:
        DataError: `data.no_bars` when the source has nothing to offer; `screen.frequency` for
            anything but daily bars; what the source raises.
    """
    from kit.market import resolve_universe

    if contract.frequency != "daily":
        raise DataError(
            "screen.frequency",
            f"the daily screen reads daily bars, the bundle asks for {contract.frequency!r}",
            where="manifest.json: data_contract.frequency",
            remedy="set it to daily",
        )
    resolved = resolve_universe(source, contract.market, contract.selector, day)
    panel = None
    dropped = list(resolved.dropped)
    missing: dict[str, tuple[str, ...]] = {}
    newest = day
    reasons: dict[str, str] = {}
    if resolved.got:
        panel, reasons = _open_panel(source, contract, resolved.symbols, day)
        if reasons:
            missing[_SOUND] = tuple(reasons)
    if panel is not None:
        newest = panel.last_date
        unfit, lacking = _unfit(panel, contract)
        reasons |= unfit
        missing |= lacking
        fit = [symbol for symbol in panel.symbols if symbol not in unfit]
        panel = panel.select(fit) if fit else None
    dropped += _as_dropped(resolved.got, reasons)
    expected, at = _close(calendar, contract, day), _close(calendar, contract, newest)
    securities = {s.symbol: s for s in resolved.got if panel is not None and s.symbol in panel}
    return ScreenData(
        panel=panel,
        securities=securities,
        universe=ScreenUniverse(
            asked=len(resolved.asked),
            got=len(resolved.got),
            screened=len(securities),
            dropped=tuple(dropped),
            note=resolved.note,
        ),
        day=day,
        data_date=newest,
        data_time=at,
        expected_time=expected,
        lag_minutes=max(0, round((expected - at).total_seconds() / 60)),
        missing=missing,
        prices=_prices(panel),
        restated=frozenset(
            symbol
            for symbol, kind in (panel.adjust_kinds if panel else {}).items()
            if kind == "qfq"
        ),
    )


def _open_panel(
    source: BarSource, contract: Contract, symbols: Sequence[str], day: date
) -> tuple[MarketPanel | None, dict[str, str]]:
    """Open the bars, without the symbols whose bars are unusable: one must not stop the others."""
    from kit.market import find_problems, load_panel

    start = window_start(contract, day)

    def opened(wanted: Sequence[str]) -> MarketPanel:
        panel = load_panel(
            source, wanted, start, day, market=contract.market, adjustment=contract.adjustment
        )
        # Reads and checks every column a rule may touch, of all symbols at once.
        _ = panel[panel.symbols[0]], panel.adjust_kinds
        return panel

    try:
        return opened(symbols), {}
    except DataError as error:
        if error.code != "data.bad_bars":
            raise
    reasons: dict[str, str] = {}
    for problem in find_problems(source.bars(symbols, start, day)):
        what = _PROBLEMS.get(problem.kind, problem.kind)
        reasons.setdefault(problem.symbol, f"行情有误：{problem.time:%Y-%m-%d} {what}")
    rest = [symbol for symbol in symbols if symbol not in reasons]
    return (opened(rest) if rest else None), reasons


def _close(calendar: Calendar, contract: Contract, day: date) -> datetime:
    """Return when a session's data is made; beyond the calendar, the contract's own time of day."""
    session = calendar.session(day)
    if session is not None:
        return session.close
    moment, zone = contract.asof
    return datetime.combine(day, moment, zone)


def _unfit(
    panel: MarketPanel, contract: Contract
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return symbol -> why it cannot be screened, and field -> symbols that lack it today."""
    reasons: dict[str, str] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for name in contract.fields:
        column = name.removesuffix("_adj")
        if column in _NOT_MEASURED:
            continue
        today = panel.wide(column).iloc[-1]
        lacking = tuple(str(symbol) for symbol in today.index[~(today.abs() < math.inf)])
        if lacking:
            missing[name] = lacking
            reasons |= {s: f"当日缺少字段 {name}" for s in lacking if s not in reasons}
    needed = contract.warmup_bars or contract.history_days
    bars = panel.wide("close").notna().sum().to_dict()
    for symbol in panel.symbols:
        have = int(bars[symbol])
        if have < needed and symbol not in reasons:
            reasons[symbol] = f"历史不足 {needed} 根日线（只有 {have} 根）"
    return reasons, missing


def _as_dropped(got: Sequence[Security], reasons: Mapping[str, str]) -> list[Dropped]:
    from kit.market import Dropped

    return [
        Dropped(symbol=s.symbol, name=s.name, reason=reasons[s.symbol])
        for s in got
        if s.symbol in reasons
    ]


def _prices(panel: MarketPanel | None) -> dict[str, float]:
    if panel is None:
        return {}
    row = panel.wide_raw("close").iloc[-1]
    return {str(symbol): float(value) for symbol, value in row.items() if math.isfinite(value)}
