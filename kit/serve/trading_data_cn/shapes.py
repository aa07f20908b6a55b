"""What the tools answer. These classes are the published output schemas, units included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Bar",
    "Bars",
    "BulkFile",
    "Column",
    "Dropped",
    "Filters",
    "Meta",
    "Security",
    "Universe",
]

Symbol = Annotated[str, Field(description="six digits and the exchange: SH, SZ or BJ")]
Price = Annotated[float, Field(description="CNY per share as the source has it, not adjusted")]


class Dropped(BaseModel):
    """A symbol that was asked for and is not in the answer."""

    symbol: str
    reason: str = Field(description="why; from get_universe in Chinese")


class Asked(BaseModel):
    """How much of what was asked for is there: nothing goes missing without a word."""

    asked: int = Field(description="distinct symbols asked for")
    got: int = Field(description="symbols in the answer")
    dropped: list[Dropped] = Field(description="the first 200 that are not")
    dropped_more: int = Field(default=0, description="how many more were dropped")
    source: str = Field(description="bar source that served this")


class Security(BaseModel):
    """One listed security."""

    symbol: Symbol
    name: str = Field(description="short Chinese name")
    industry: str = Field(description="industry in Chinese words; empty when unknown")
    is_st: bool = Field(description="under special treatment now, whatever date is asked about")
    listed_date: str | None = Field(description="first trading day, YYYY-MM-DD; null if unknown")
    board: str = Field(description="main, star, chinext, bse or index")
    kind: str = Field(description="stock, index or fund")


class Meta(Asked):
    """Answer of get_security_meta."""

    securities: list[Security]


class Filters(BaseModel):
    """What narrows a universe; without any, all of the market that the source knows."""

    model_config = ConfigDict(extra="forbid")

    symbols: list[str] | None = Field(default=None, min_length=1, max_length=20_000)
    boards: list[str] | None = Field(
        default=None, min_length=1, max_length=20, description="main, star, chinext, bse"
    )
    industries: list[str] | None = Field(default=None, min_length=1, max_length=500)


class Universe(Asked):
    """Answer of get_universe."""

    date: str = Field(description="the date asked about, YYYY-MM-DD")
    symbols: list[str] = Field(description="symbols that can be picked on that date")
    note: str = Field(description="what the reader should know about the list, in Chinese")


class Bar(BaseModel):
    """One bar of one symbol."""

    symbol: Symbol
    date: str = Field(
        description="session of a daily bar, YYYY-MM-DD; else the bar's end, exchange-local ISO"
    )
    open: Price
    high: Price
    low: Price
    close: Price
    close_adj: float = Field(description="close adjusted as asked, CNY per share")
    low_adj: float = Field(description="low adjusted as asked, CNY per share")
    volume: float = Field(description="shares traded, never adjusted")
    volume_unit: Literal["shares"] = Field(description="unit of volume, always shares")


class Column(BaseModel):
    """One column of a Parquet file."""

    name: str
    type: str = Field(description="Arrow type")
    about: str = Field(description="meaning and unit")


class BulkFile(BaseModel):
    """A Parquet file that holds the bars of a large answer."""

    uri: str = Field(description="the resource link's URI; resources/read serves it too")
    path: str = Field(description="the same file, for a client on this machine")
    sha256: str
    bytes: int
    columns: list[Column]


class Bars(Asked):
    """Answer of get_bars: rows in `bars`, or in `file` when there are more than 5,000."""

    interval: str
    adjust: str
    rows: int = Field(description="bars in the answer")
    synthetic: bool = Field(description="true when any of the bars is generated, not observed")
    restated: list[str] = Field(
        description="symbols whose source prices are adjusted already, so that open to close are "
        "not what traded; the first 200"
    )
    bars: list[Bar] = Field(description="by symbol as asked, then by date; empty with a file")
    file: BulkFile | None = Field(default=None, description="where the rows of a large answer are")
