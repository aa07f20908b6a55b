"""One way to write a symbol, whatever spelling a file, a source or a person uses."""

from __future__ import annotations

import re

from kit.errors import DataError

__all__ = ["normal_symbol"]


def normal_symbol(text: str, market: str) -> str:
    """Write a code the house's way: `600000.SH`, `0700.HK`, `AAPL`.

    Understands `sh.600000`, `SH600000`, `600000.XSHG`, `600000`, `00700`.

    Raises:
        DataError: `data.bad_symbol`.
    """
    code = text.strip().upper()
    if market == "us" and re.fullmatch(r"[A-Z][A-Z0-9]{0,6}([.-][A-Z0-9]{1,3})?", code):
        return code
    if market == "hk" and (match := re.fullmatch(r"(?:HK[.]?)?0*(\d{1,5})(?:[.]HK)?", code)):
        return f"{match[1].zfill(4)}.HK"
    if market == "hk" and re.fullmatch(r"[A-Z0-9]{1,8}[.]HK", code):
        return code
    if market == "cn":
        match = re.fullmatch(r"(SH|SZ|BJ)?[.]?(\d{6})(?:[.](SH|SZ|BJ|SS|XSHG|XSHE))?", code)
        if match:
            named = match[1] or match[3]
            exchange = {"SS": "SH", "XSHG": "SH", "XSHE": "SZ"}.get(str(named), named)
            return f"{match[2]}.{exchange or _exchange(match[2])}"
    raise DataError(
        "data.bad_symbol",
        f"{text!r} is no symbol of market {market!r}",
        remedy="write 600000.SH, 0700.HK or AAPL, or name another --market",
    )


def _exchange(code: str) -> str:
    """Return the exchange a bare stock code belongs to; indexes need theirs written out."""
    if code.startswith(("4", "8", "92")):
        return "BJ"
    return "SH" if code.startswith(("5", "6", "9")) else "SZ"
