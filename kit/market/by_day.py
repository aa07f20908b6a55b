"""A market's rules laid over the bars of a panel: what each symbol could do on each date.

What the source stored about a day (`limit_up`, `limit_down`, `is_st`, `suspended`) is a fact and
wins; the dated tables answer for everything it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kit.market.fees import FeeSchedule
from kit.market.panel import MarketPanel
from kit.market.rules import MarketRules
from kit.market.sources import Security

__all__ = ["DayRules", "day_rules"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_OPTIONAL: Final = ("is_st", "limit_up", "limit_down", "suspended")


@dataclass(frozen=True, kw_only=True)
class DayRules:
    """Rules by date and symbol; T dates of the panel, N symbols, K kinds of security.

    Attributes:
        lot: Smallest order to buy in shares, [T, N], read-only.
        lot_step: Shares an order grows by, [T, N], read-only.
        limit_down: Lowest raw price of the day, [T, N]; NaN where there is no limit.
        limit_up: Highest raw price, [T, N].
        suspended: Where the source says that nothing could trade, [T, N].
        session: Number of the session each bar belongs to, [T], ascending.
        kind: Row of `fees` each symbol pays by, [N].
        fees: Every charge on each date.
        t_plus: Sessions a bought share must be held.
    """

    lot: Ints
    lot_step: Ints
    limit_down: Floats
    limit_up: Floats
    suspended: npt.NDArray[np.bool_]
    session: Ints
    kind: Ints
    fees: FeeSchedule
    t_plus: int


def day_rules(rules: MarketRules, panel: MarketPanel, securities: Sequence[Security]) -> DayRules:
    """Lay the rules of a market over a panel.

    The limit of a day hangs on the last close there was, however long the halt before it, less
    what a dividend or a split takes off on the ex-date.

    Args:
        rules: Rules of the panel's market.
        panel: Bars by date.
        securities: What is known of the panel's symbols, in its order.

    Raises:
        DataError: `rules.before_table`, `rules.no_board` or `rules.no_lot`.
    """
    dates: list[date] = [stamp.date() for stamp in panel.dates]
    sessions = np.unique(panel.dates.normalize(), return_inverse=True)[1]
    factor = panel.wide_raw("adj_factor")
    previous = _session_before(panel.wide_raw("close"), sessions)
    previous *= _session_before(factor, sessions) / factor.to_numpy()
    known = panel.known(_OPTIONAL)
    is_st = None
    if "is_st" in known:
        flags = _raw(panel, "is_st")
        listed = np.asarray([security.is_st for security in securities])
        is_st = np.where(np.isnan(flags), listed, flags == 1)
    stored = None
    if known & {"limit_down", "limit_up"}:
        stored = (_raw(panel, "limit_down"), _raw(panel, "limit_up"))
    down, up = rules.limit_prices(
        previous,
        dates,
        securities,
        is_st=is_st,
        adjust_kinds=panel.adjust_kinds,
        stored=stored,
    )
    lot, step = rules.lots_by_date(securities, dates)
    kinds = sorted({security.kind for security in securities})
    return DayRules(
        lot=lot,
        lot_step=step,
        limit_down=down,
        limit_up=up,
        suspended=_raw(panel, "suspended") == 1
        if "suspended" in known
        else np.broadcast_to(np.False_, previous.shape),
        session=sessions,
        kind=np.asarray([kinds.index(s.kind) for s in securities], dtype=np.int64),
        fees=rules.fee_schedule(dates, kinds),
        t_plus=rules.t_plus,
    )


def _session_before(values: pd.DataFrame, sessions: Ints) -> Floats:
    """Return the last value known before each bar's session, [T, N]."""
    if sessions[-1] + 1 == len(sessions):
        return values.shift(1).ffill().to_numpy(copy=True)
    return values.groupby(sessions).last().shift(1).ffill().to_numpy()[sessions]


def _raw(panel: MarketPanel, field: str) -> Floats:
    return panel.wide_raw(field).to_numpy(dtype=np.float64)
