"""How a backtest is to be executed, read from a bundle's `config.json` and manifest.

No number has a fallback here: money, slippage and warm-up are written in the bundle, where a reader
of the result can find them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kit.errors import BundleError, GuardError
from kit.schemas import suggestion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kit.bundle.manifest import DataContract, Execution

__all__ = ["FILLS", "MASKS", "Settings", "rebalance_bars"]

FILLS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "next_open": ("open", 1),
        "next_close": ("close", 1),
        "vwap": ("vwap", 1),
        "same_open": ("open", 0),
        "same_close": ("close", 0),
    }
)
"""Fill rule -> (price of the fill bar, bars from decision to fill)."""

MASKS: Mapping[str, str] = MappingProxyType({"W": "W", "MS": "M", "QS": "Q", "YS": "Y"})
"""Rebalance mask -> pandas period; the mask is true on the first bar of each period."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The execution of one backtest.

    Attributes:
        initial_cash: Money at the start, in the market's currency.
        slippage: Fraction of the price lost at each fill (0.001 is 10 bps).
        position_adjustment: `hold` (open, close, flip only) or `rebalance`.
        rebalance_mask: A key of `MASKS`, or None for every bar.
        tolerance: Weight difference that rebalancing leaves alone.
        fill: A key of `FILLS`.
        same_bar_waiver: Why a same-bar fill is acceptable, or None.
        warmup_bars: Bars a symbol must have before its weights count; never graded.
    """

    initial_cash: float
    slippage: float
    position_adjustment: str = "hold"
    rebalance_mask: str | None = None
    tolerance: float = 0.0
    fill: str = "next_open"
    same_bar_waiver: str | None = None
    warmup_bars: int = 0

    def __post_init__(self) -> None:
        _one_of("execution.fill", self.fill, FILLS)
        _one_of("position_adjustment", self.position_adjustment, ("hold", "rebalance"))
        if self.rebalance_mask is not None:
            _one_of("rebalance_mask", self.rebalance_mask, MASKS)
        if self.same_bar and not self.same_bar_waiver:
            raise GuardError(
                "backtest.same_bar",
                f"fill {self.fill!r} trades on the bar that decided, at a price the decision "
                "already knew",
                where="manifest.json: execution.fill",
                remedy="use next_open, or say in execution.same_bar_waiver why it can be traded",
            )

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        execution: Execution | None = None,
        contract: DataContract | None = None,
        **overrides: Any,
    ) -> Settings:
        """Read the settings of a bundle.

        Args:
            config: `config.json`.
            execution: `manifest.execution`; its fill and waiver.
            contract: `manifest.data_contract`; its `warmup_bars`, which wins over the config's.
            overrides: Fields of `Settings` that win over all of them; None is no override.

        Raises:
            BundleError: `backtest.bad_config` with the dotted key that is missing or wrong.
            GuardError: `backtest.same_bar`.
        """
        own = config.get("_kit") or {}
        warmup = None if contract is None else contract.warmup_bars
        values: dict[str, Any] = {
            "initial_cash": _number(config, "initial_cash"),
            "slippage": _number(own, "slippage", "_kit.slippage"),
            "position_adjustment": config.get("position_adjustment", "hold"),
            "rebalance_mask": config.get("rebalance_mask"),
            "warmup_bars": warmup if warmup is not None else config.get("warmup_bars") or 0,
        }
        if values["position_adjustment"] == "rebalance":
            values["tolerance"] = _number(config, "rebalance_tolerance")
        if execution is not None:
            values["fill"] = execution.fill
            values["same_bar_waiver"] = execution.same_bar_waiver
        given = {key: value for key, value in overrides.items() if value is not None}
        return cls(**(values | given))

    @property
    def same_bar(self) -> bool:
        """Whether orders fill on the bar that decided."""
        return FILLS[self.fill][1] == 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return dict(vars(self))


def rebalance_bars(mask: str | None, dates: pd.DatetimeIndex) -> NDArray[np.bool_]:
    """Return on which bars rebalancing may trade, `[T]`: the first bar of each period."""
    if mask is None:
        return np.ones(len(dates), dtype=np.bool_)
    periods = dates.to_period(MASKS[mask])
    first = np.ones(len(dates), dtype=np.bool_)
    first[1:] = periods[1:] != periods[:-1]
    return first


def _one_of(key: str, value: str, known: Any) -> None:
    if value not in known:
        raise BundleError(
            "backtest.bad_config",
            f"{key} is {value!r}",
            where=key,
            remedy=suggestion(str(value), known) or f"one of {', '.join(known)}",
        )


def _number(config: Mapping[str, Any], key: str, dotted: str | None = None) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BundleError(
            "backtest.bad_config",
            f"{dotted or key} is missing" if value is None else f"{dotted or key} is {value!r}",
            where=f"config.json: {dotted or key}",
            remedy="write it as a number; the kit has no default for it",
        )
    return float(value)
