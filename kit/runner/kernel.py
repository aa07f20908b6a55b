"""One kernel process: started from this very interpreter, killed with everything it started.

The kernel leads a session of its own, so that Ctrl-C in a terminal reaches only the runner, and so
that one signal reaches its whole process group. A grandchild that made itself a new session is
found by a mark in its environment. On platforms with Unix sockets the kernel is talked to over
them, which is quicker than TCP and takes no port.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty
from typing import Any

from kit import files
from kit.redact import is_secret_name
from kit.state.process import Holder, environment, is_alive, this_process

__all__ = ["MARK", "Kernel", "KernelStartError", "kernel_environment", "kill_marked", "mark_of"]

MARK = "KIT_KERNEL_MARK"
_HOME_PREFIX = "kit-kernel-"
# Names the runner: a folder name long enough to do so could take no Unix socket.
_HOLDER_FILE = "holder"
_PROC = Path("/proc")
# Fault injection is aimed at the runner; a kernel counts operations of its own.
_NEVER_PASSED = {"KIT_CRASH_AT", "KIT_NO_SPACE_AT", "JPY_SESSION_NAME", "PYTHONSTARTUP"}
# sun_path holds 107 bytes; "/k-5" follows the folder.
_MAX_SOCKET_FOLDER = 90
_STDERR_KEPT = 4000
_WAIT_SEC = 10.0
_OPTIONS = (
    "--HistoryManager.enabled=False",
    # `!command` that fails is a failure, as it is in a shell script with `set -e`.
    "--InteractiveShell.system_raise_on_error=True",
    "--InteractiveShell.colors=NoColor",
)


class KernelStartError(Exception):
    """The kernel process ended, or said nothing, before it was ready."""


def mark_of(folder: Path) -> str:
    """Return the mark that every process of one attempt carries in its environment."""
    return files.sha256_bytes(str(folder.absolute()).encode("utf-8"))[:32]


def kernel_environment(
    extra: Mapping[str, str], *, secrets: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the environment a kernel gets: the process's own without secrets, plus `extra`.

    Args:
        extra: Variables to add.
        secrets: Names of secret variables this kernel may see after all.
    """
    kept = {
        name: value
        for name, value in environment().items()
        if name not in _NEVER_PASSED and (name in secrets or not is_secret_name(name))
    }
    return {**kept, **extra}


def kill_marked(mark: str) -> int:
    """Kill every process that carries `mark`; return how many there were.

    Only processes are found whose environment can be read: on Linux, one's own.
    """
    wanted = f"{MARK}={mark}".encode()
    killed = 0
    for _ in range(5):  # a process may fork between the look and the kill
        found = _pids_with(wanted)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


class Kernel:
    """A kernel process and a client connected to it.

    Args:
        cwd: Working directory of the kernel.
        env: Its environment, complete.
        mark: Value of `KIT_KERNEL_MARK`, added to the environment.
        stderr: File that takes what the process itself writes to stderr (a crash report); `None`
            for one that goes with the kernel.
    """

    def __init__(
        self, *, cwd: Path, env: Mapping[str, str], mark: str, stderr: Path | None = None
    ) -> None:
        self._mark = mark
        _clear_homes()
        self._home = Path(tempfile.mkdtemp(prefix=_HOME_PREFIX))
        (self._home / _HOLDER_FILE).write_text(this_process().to_text(), encoding="utf-8")
        self._stderr = stderr or self._home / "stderr"
        # A person's own IPython profile would run its start-up files in every unattended kernel.
        self._env = {**env, MARK: mark, "IPYTHONDIR": str(self._home / "ipython")}
        self._cwd = cwd
        self._process: Any = None
        self.manager: Any = None

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        from jupyter_client.launcher import launch_kernel

        self.manager = _manager(self._home)
        self.manager.write_connection_file()
        boot = [sys.executable, "-P", "-m", "kit.runner.boot"]
        with self._stderr.open("ab") as stderr, Path(os.devnull).open("wb") as nowhere:
            self._process = launch_kernel(
                [*boot, "-f", self.manager.connection_file, *_OPTIONS],
                cwd=str(self._cwd),
                env=self._env,
                stdout=nowhere.fileno(),
                stderr=stderr.fileno(),
            )

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        if self._process is None or self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):
            return self._process.poll() is None
        # Looked at without reaping: until `close`, the dead leader keeps the number of its group
        # from being given to strangers.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, flags) is None
        return False

    async def connect(self, timeout: float) -> Any:
        """Return a connected client once the kernel answers.

        Raises:
            KernelStartError: It died, or did not answer within `timeout` seconds.
        """
        client = self.manager.client()
        client.start_channels(hb=False, stdin=False)
        deadline = time.monotonic() + timeout
        answered = False
        while True:
            client.kernel_info()
            with contextlib.suppress(Empty):
                if not answered:
                    await client.shell_channel.get_msg(timeout=1)
                    answered = True
                # Anything on iopub proves that outputs will arrive from now on.
                await client.iopub_channel.get_msg(timeout=0.2)
                return client
            if not self.is_alive:
                raise KernelStartError(f"the kernel died at start. {self.last_words()}".strip())
            if time.monotonic() > deadline:
                raise KernelStartError(f"the kernel did not answer within {timeout:g} s")

    def kill(self) -> None:
        """Kill the process group at once, and whatever left it; safe from any thread."""
        if self._process is None or self._process.returncode is not None:
            return
        if hasattr(os, "killpg"):
            # The group outlives its leader as long as one member lives.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        kill_marked(self._mark)

    def close(self) -> None:
        """Kill, wait, and remove the connection files."""
        self.kill()
        if self._process is not None:
            # A process stuck in the system cannot be waited for; killed it is all the same.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAIT_SEC)
            if self._process.stdin is not None:
                self._process.stdin.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def last_words(self) -> str:
        """Return the end of what the process wrote to its own stderr."""
        try:
            data = self._stderr.read_bytes()[-_STDERR_KEPT:]
        except OSError:
            return ""
        return data.decode("utf-8", errors="replace").strip()


def _clear_homes() -> None:
    """Remove the folders of kernels whose runner was killed before it could.

    A folder that names nobody is left alone: it may be about to.
    """
    for home in Path(tempfile.gettempdir()).glob(f"{_HOME_PREFIX}*"):
        if home.is_symlink():
            continue
        try:
            holder = Holder.from_text((home / _HOLDER_FILE).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if holder is not None and is_alive(holder) is False:
            shutil.rmtree(home, ignore_errors=True)


def _manager(home: Path) -> Any:
    from jupyter_client.manager import AsyncKernelManager

    connection = str(home / "kernel.json")
    if sys.platform != "win32" and len(str(home)) <= _MAX_SOCKET_FOLDER:
        return AsyncKernelManager(transport="ipc", ip=str(home / "k"), connection_file=connection)
    return AsyncKernelManager(connection_file=connection)


def _pids_with(wanted: bytes) -> list[int]:
    found = []
    try:
        entries = [entry for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    me = str(os.getpid())
    for entry in entries:
        if entry.name == me:
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
