"""Shared fixtures: every test works in its own workspace, HOME and clock."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.clock import FixedClock
from kit.state import Store
from kit.workspace import Workspace, copy_workspace, init_workspace

REPOSITORY = Path(__file__).resolve().parent.parent
PROVIDER_KEYS = ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KIT_MODE", "offline")
    for name in (*PROVIDER_KEYS, "KIT_WORKSPACE", "KIT_CRASH_AT", "KIT_NO_SPACE_AT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repository() -> Path:
    """The checkout that is being tested."""
    return REPOSITORY


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A new, empty workspace."""
    return init_workspace(tmp_path / "workspace")


DESCRIBED = Path(__file__).parent / "envlock" / "described.py"


@pytest.fixture(scope="session")
def described_server() -> Callable[..., dict[str, Any]]:
    """`described_server(folder, name, tools=[...])`: an entry of config/mcp.json.

    The server is a script that starts in 20 ms and says what it is told to say.
    """

    def entry(folder: Path, name: str, **about: Any) -> dict[str, Any]:
        path = folder / f"{name}.server.json"
        path.write_text(json.dumps({"tools": [], "answers": {}, **about}), encoding="utf-8")
        # -S -E: whatever is installed.
        return {"command": sys.executable, "args": ["-S", "-E", str(DESCRIBED), str(path)]}

    return entry


@pytest.fixture(scope="session")
def stand_in(described_server: Callable[..., dict[str, Any]]) -> Callable[..., Workspace]:
    """`stand_in(workspace)`: both shipped servers, with their real schemas, start at once.

    The real ones take seconds to start; tests that are not about them do not wait for them. This
    news server has no news, unless it is told what it has: `stand_in(workspace, news=[...])`.
    """
    tools, news_tools = (
        [json.loads(path.read_text("utf-8")) for path in sorted(shipped.glob("*.json"))]
        for shipped in (
            REPOSITORY / "kit" / "serve" / name / "schemas"
            for name in ("trading_data_cn", "historical_news_cn")
        )
    )
    nothing = {
        "news": [], "matched": 0, "older_left_out": 0, "undated": 0, "categories": [],
        "source": "sample", "synthetic": False,
    }  # fmt: skip

    def put(
        workspace: Workspace,
        name: str = "trading-data-cn",
        news: list[dict[str, Any]] | None = None,
        **about: Any,
    ) -> Workspace:
        path = workspace.config_dir / "mcp.json"
        value = json.loads(path.read_text(encoding="utf-8"))
        beside = workspace.root.with_name(f"{workspace.root.name}-servers")
        beside.mkdir(exist_ok=True)
        value["servers"][name] = {
            **described_server(beside, name, **{"tools": tools, **about}),
            **({"channel": about["channel"]} if "channel" in about else {}),
        }
        answer = {**nothing, "news": news or [], "matched": len(news or [])}
        told = {"tools": news_tools, "answers": {"query_news": answer}}
        value["servers"]["historical-news-cn"] = described_server(
            beside, "historical-news-cn", **told
        )
        path.write_text(json.dumps(value), encoding="utf-8")
        return workspace

    return put


@pytest.fixture
def clock() -> FixedClock:
    """Half past four in Shanghai plus ten minutes, on a day the sample has bars for."""
    return FixedClock("2024-09-19T08:40:00+00:00")


@pytest.fixture
def store(workspace: Workspace) -> Iterator[Store]:
    """The state store of `workspace`."""
    return Store(workspace.state_path)


# The repository itself: tests work in copies of it, and it is the same afterwards.


def contents(root: Path) -> dict[str, str]:
    """Every file and link of `strategies/`, and `INDEX.json`, with mode and digest."""
    found = {}
    for path in sorted([*(root / "strategies").rglob("*"), root / "INDEX.json"]):
        if path.is_dir() and not path.is_symlink():
            continue
        what = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        mode = oct(path.lstat().st_mode)
        found[path.relative_to(root).as_posix()] = f"{mode} {hashlib.sha256(what).hexdigest()}"
    return found


@pytest.fixture(scope="session", autouse=True)
def _the_repository_stays_as_it_is() -> Iterator[None]:
    """Promise 3 for the suite itself: no test changes a frozen version or the registry."""
    before = contents(REPOSITORY)
    yield
    assert contents(REPOSITORY) == before


@pytest.fixture
def contents_of() -> Callable[[Path], dict[str, str]]:
    """What the check above compares, for the test of the check."""
    return contents


@pytest.fixture(scope="session")
def copy_repository() -> Callable[[Path], Workspace]:
    """`copy_repository(folder)`: a copy of this repository's workspace, without its runs."""

    def copy(folder: Path) -> Workspace:
        return copy_workspace(Workspace.at(REPOSITORY), folder)

    return copy


@dataclass(frozen=True)
class Command:
    """The real `kit` command, in processes of their own with a HOME of their own."""

    home: Path

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        return {**kept, "HOME": str(self.home), "KIT_MODE": "offline", **extra}

    def line(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("kit")), *arguments]

    def __call__(
        self, folder: Path, *arguments: str, timeout: float = 180, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it in a folder; `extra` is added to the environment."""
        return subprocess.run(
            self.line(*arguments),
            cwd=folder,
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        """Start it as the leader of a process group, as a terminal does."""
        return subprocess.Popen(
            self.line(*arguments),
            cwd=folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def kit_command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """`kit_command(folder, "list", "--json")` runs the installed command in that folder."""
    return Command(home=tmp_path_factory.mktemp("own-home"))


# Notebooks of screens in this process: what takes a kernel three seconds takes it a third.

SCREEN_STAGES = (
    "load_bundle", "check_lock", "load_data", "news", "sector_filter", "screen", "rank",
    "explain", "result", "card", "finish",
)  # fmt: skip


@dataclass
class StagesHere:
    """An executor that calls the stages of `daily_screen.ipynb` in this process.

    Attributes:
        workspace: Where the bundles are.
        before: Called with the stage's name and the folder before each stage; may raise.
        around: More for `ScreenRun.open`, such as another `lock` or `feed`.
    """

    workspace: Workspace
    before: Callable[[str, Path], None] = lambda _stage, _folder: None
    around: dict[str, Any] = field(default_factory=dict)

    def check(self, notebook: Path, parameters: Any) -> None:
        """Let it pass."""

    def execute(self, execution: Any) -> Any:
        from kit.errors import KitError
        from kit.jobs.screen_stages import ScreenRun
        from kit.runner import NotebookOutcome, RunFailure, read_contract
        from kit.runner.results import check_results

        given = {**execution.parameters, **execution.reserved}
        given["run_folder"] = str(execution.folder)
        stage = "open"
        try:
            run = ScreenRun.open(workspace=self.workspace, **given, **self.around)
            for stage in SCREEN_STAGES:
                self.before(stage, execution.folder)
                getattr(run, stage)()
        except Exception as error:
            if isinstance(error, KitError) and error.code == "file.no_space":
                raise
            failure = RunFailure(
                kind="cell_error", message=f"cell {stage} raised {error}", cell=stage,
                ename=type(error).__name__, evalue=str(error),
            )  # fmt: skip
            return NotebookOutcome(failure=failure, seconds=0.0)
        results = read_contract(execution.notebook).results
        return NotebookOutcome(failure=check_results(execution.folder, results), seconds=0.0)


@pytest.fixture
def stages_here() -> type[StagesHere]:
    """`stages_here(workspace)`: an executor of daily screens without a kernel."""
    return StagesHere


# One real job for many tests: two attempts of one screen, and a slot.

# Values that no file of a run may hold, under the names people give them.
SECRETS = {
    "OPENAI_API_KEY": "sk-test-0123456789abcdefghijkl",
    "DEEPSEEK_API_KEY": "deepseek-plain-value-4711",
    "TELEGRAM_BOT_TOKEN": "123456789:AAtest-telegram-token-value",
    "WECOM_WEBHOOK": "https://example.invalid/send?key=0a1b2c3d-4e5f-6789",
    "DATABASE_PASSWORD": "correct horse battery staple",
}


@pytest.fixture(scope="session")
def seeded_secrets() -> dict[str, str]:
    """The secrets that stand in the environment of the shared job."""
    return dict(SECRETS)


@dataclass(frozen=True)
class MainJob:
    """What the shared job left; tests look at it and change nothing.

    Attributes:
        workspace: A copy of the repository.
        first: `kit screen --json`.
        again: The same screen once more, with `--again`; the card is on stdout.
        slot: `kit slot run --json`.
    """

    workspace: Workspace
    first: subprocess.CompletedProcess[str]
    again: subprocess.CompletedProcess[str]
    slot: subprocess.CompletedProcess[str]

    def screen_folder(self, attempt: int = 1) -> Path:
        return self.workspace.runs / "2020-02-27" / "screen-ma250-pullback@0.3.1" / str(attempt)

    @property
    def slot_folder(self) -> Path:
        return self.workspace.runs / "2024-09-18" / "slot-cn-1000" / "1"

    def read(self, name: str, folder: Path | None = None) -> Any:
        path = (folder or self.screen_folder()) / name
        return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def main_job(
    tmp_path_factory: pytest.TempPathFactory,
    copy_repository: Callable[[Path], Workspace],
    kit_command: Command,
) -> MainJob:
    """Run it once a session, with secrets in the environment and a terminal that claims ASCII."""
    workspace = copy_repository(tmp_path_factory.mktemp("main-job") / "desk")
    screen = ("screen", "ma250-pullback", "--date", "2020-02-27")
    slot = ("slot", "run", "--market", "cn", "--now", "2024-09-18T10:03+08:00")
    around = {**SECRETS, "PYTHONIOENCODING": "ascii"}
    return MainJob(
        workspace=workspace,
        first=kit_command(workspace.root, *screen, "--json", **around),
        again=kit_command(workspace.root, *screen, "--again", **around),
        slot=kit_command(workspace.root, *slot, "--json", **around),
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run everything that looks at the shared job: it then runs once, not twice."""
    for item in items:
        if "main_job" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("main-job"))
