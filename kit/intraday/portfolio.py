"""What is held, and the price lines that somebody set for it: `config/portfolio.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kit.errors import ConfigError
from kit.intraday.figures import exact
from kit.workspace import Workspace

__all__ = ["Holding", "Portfolio", "labels"]

_WHERE = "config/portfolio.json"


@dataclass(frozen=True, kw_only=True)
class Holding:
    """One position.

    Attributes:
        symbol: Exchange-suffixed code.
        label: What cards call it: the bare code, or the symbol when two holdings share a code.
        shares: Number of shares, above zero.
        cost: Average price paid for one.
        stop_price: A price at or below this is a STOP signal; None for no line.
        trim_price: A price at or above this is a TRIM signal; None for no line.
    """

    symbol: str
    label: str
    shares: int
    cost: Decimal
    stop_price: Decimal | None = None
    trim_price: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """The holdings of one market.

    Attributes:
        market: `cn`, `hk` or `us`.
        currency: ISO code of every amount.
        holdings: In the order of the file, which is the order of the table.
        indices: Symbols of the index strip.
    """

    market: str
    currency: str
    holdings: tuple[Holding, ...]
    indices: tuple[str, ...]

    @classmethod
    def load(cls, workspace: Workspace, market: str) -> Portfolio:
        """Read the holdings of a market.

        Raises:
            ConfigError: `config.missing`, `config.invalid` (also when a symbol stands twice), or
                `slot.no_holdings` when the file has no entry for the market.
        """
        markets = workspace.config("portfolio")["markets"]
        if market not in markets:
            raise ConfigError(
                "slot.no_holdings",
                f"there are no holdings of market {market!r}",
                where=_WHERE,
                remedy=f"add markets.{market} with its holdings to {_WHERE}; "
                f"known: {', '.join(markets) or 'none'}",
            )
        return cls.from_dict(market, markets[market])

    @classmethod
    def from_dict(cls, market: str, value: Mapping[str, Any]) -> Portfolio:
        """Read one market's entry of the file.

        Raises:
            ConfigError: `config.invalid` when a symbol stands twice.
        """
        rows = value["holdings"]
        symbols = [row["symbol"] for row in rows]
        for position, symbol in enumerate(symbols):
            if symbol in symbols[:position]:
                raise ConfigError(
                    "config.invalid",
                    f"markets.{market}.holdings[{position}].symbol: {symbol} stands twice",
                    where=_WHERE,
                    remedy="keep one entry a symbol, with the shares added up",
                )
        names = labels(symbols)
        return cls(
            market=market,
            currency=value["currency"],
            holdings=tuple(
                Holding(
                    symbol=row["symbol"],
                    label=names[row["symbol"]],
                    shares=row["shares"],
                    cost=exact(row["cost"]),
                    stop_price=_line(row.get("stop_price")),
                    trim_price=_line(row.get("trim_price")),
                )
                for row in rows
            ),
            indices=tuple(value["indices"]),
        )


def labels(symbols: Sequence[str]) -> dict[str, str]:
    """Return what to call each symbol: its code without the exchange, where that is unique."""
    codes = [symbol.partition(".")[0] for symbol in symbols]
    return {
        symbol: code if codes.count(code) == 1 else symbol
        for symbol, code in zip(symbols, codes, strict=True)
    }


def _line(value: float | None) -> Decimal | None:
    return None if value is None else exact(value)
