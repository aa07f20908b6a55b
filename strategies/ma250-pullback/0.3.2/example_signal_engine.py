"""Entry point for agents that look for an engine at the top of a skill: re-exports the real one."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).resolve().parent / "code" / "signal_engine.py"
_spec = importlib.util.spec_from_file_location("ma250_pullback_signal_engine", _PATH)
_module = importlib.util.module_from_spec(_spec)
# NamedTuple and friends look their own module up by name.
sys.modules[_spec.name] = _module
# A frozen bundle must stay as it is: no bytecode is written into it.
_writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
try:
    _spec.loader.exec_module(_module)
finally:
    sys.dont_write_bytecode = _writes_bytecode

Pick = _module.Pick
SignalEngine = _module.SignalEngine
