"""The shipped strategy, and the sample's mainland stocks."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kit.bundle.code import load_module
from kit.market import MarketPanel, SampleSource, load_panel

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bundle_root() -> Path:
    return REPOSITORY / "strategies" / "ma250-pullback" / "0.3.1"


@pytest.fixture(scope="session")
def module(bundle_root: Path) -> Any:
    return load_module(bundle_root, "code/signal_engine.py")


@pytest.fixture(scope="session")
def panel() -> MarketPanel:
    source = SampleSource()
    symbols = [s.symbol for s in source.securities("cn") if s.kind == "stock"]
    return load_panel(source, symbols, date(2018, 6, 1), date(2024, 9, 19), market="cn")


@pytest.fixture(scope="session")
def frames(panel: MarketPanel) -> dict[str, pd.DataFrame]:
    """The panel as the plain dictionary that any engine of this kind takes."""
    return {symbol: panel[symbol] for symbol in panel}


@pytest.fixture(scope="session")
def bare(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same frames from somebody who knows no industries."""
    stripped = {symbol: frame.copy() for symbol, frame in frames.items()}
    for frame in stripped.values():
        frame.attrs.clear()
    return stripped
