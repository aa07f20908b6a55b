"""What a kernel process runs first (`python -m kit.runner.boot -f CONNECTION_FILE`).

It differs from the stock launcher in two ways: an import that costs 2 s in environments with
JupyterLab is blocked, and one `print` of a giant string is cut before it is copied three times on
its way to the runner, which counts outputs only when they arrive.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["main"]

# Above any output limit in use, so that the runner still sees the limit passed.
_LARGEST_WRITE = 32_000_000


def main() -> None:
    """Start the kernel; returns when it shuts down."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from ipykernel.iostream import OutStream
    from ipykernel.kernelapp import launch_new_instance

    stream: Any = OutStream
    write = stream.write
    # A slice of what is no string would hide the TypeError the caller is owed.
    stream.write = lambda self, text: write(
        self, text[:_LARGEST_WRITE] if isinstance(text, str) else text
    )
    launch: Any = launch_new_instance
    launch()


if __name__ == "__main__":
    main()
