"""Tables whose rows took effect one after the other; before the first there is no answer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from kit.clock import parse_date
from kit.errors import DataError

__all__ = ["DatedTable", "Days", "as_days"]

Days = npt.NDArray[np.datetime64]


class DatedTable:
    """Rows in force from a date until the next row's.

    Args:
        rows: Rows in any order.
        what: What the table is about, for messages.
        start: The key of the date.
    """

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], what: str, start: str = "effective_from"
    ) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: str(row[start])))
        self.starts = [parse_date(row[start]) for row in self.rows]
        self.what = what

    def at(self, day: date) -> Mapping[str, Any]:
        """Return the row in force on a day.

        Raises:
            DataError: `rules.before_table`.
        """
        place = bisect_right(self.starts, day) - 1
        if place < 0:
            raise self.before(day)
        return self.rows[place]

    def places(self, days: Days) -> npt.NDArray[np.int64]:
        """Return the row in force on each day, -1 before the first."""
        starts = np.asarray(self.starts, dtype="datetime64[D]")
        return np.searchsorted(starts, days, side="right").astype(np.int64) - 1

    def places_known(self, days: Days) -> npt.NDArray[np.int64]:
        """Return the row in force on each day.

        Raises:
            DataError: `rules.before_table` for the first day that is too early.
        """
        places = self.places(days)
        if (places < 0).any():
            raise self.before(days[int(np.argmax(places < 0))].astype(datetime))
        return places

    def before(self, day: date) -> DataError:
        """Return the error for a day before the first row."""
        return DataError(
            "rules.before_table",
            f"{self.what} is on file from {self.starts[0]}, not on {day}",
            where="config/markets.json",
            remedy="add the earlier row with its source, or begin later",
        )


def as_days(dates: Sequence[date] | Days) -> Days:
    """Return dates as `datetime64[D]`; anything numpy turns into days will do."""
    return np.asarray(dates).astype("datetime64[D]")
