"""The one tree of exceptions, and what each error code means.

```
KitError
├── UsageError      exit 2    the request itself is wrong (a bad date, an unknown option value)
├── ConfigError     exit 3    a file under config/, or the workspace, is missing or wrong
├── BundleError     exit 3    a strategy bundle is malformed or has been tampered with
├── RegistryError   exit 3    INDEX.json, an id or a version
├── DataError       exit 3    market data or another input file
├── GuardError      exit 4    a guard refused (lookahead, evidence, bump)
├── LockError       exit 4    the environment lock refused
├── McpError        exit 5    an MCP server could not be used
├── RunError        exit 5    a run failed
├── StorageError    exit 5    the disk or the state store refused
├── DeliveryError   exit 6    no channel took the card
├── AlreadyDone     exit 7    done, or held by another process
└── Interrupted     exit 130  a person stopped it
```

Every error says what happened (`message`), where (`where`: a file, a line, a dotted key), and how
to mend it (`remedy`). `code` is stable: machines rely on it, and `CODES` says what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "CODES",
    "AlreadyDone",
    "BundleError",
    "ConfigError",
    "DataError",
    "DeliveryError",
    "GuardError",
    "Interrupted",
    "KitError",
    "LockError",
    "McpError",
    "RegistryError",
    "RunError",
    "StorageError",
    "UsageError",
]


class KitError(Exception):
    """Base of everything `kit` raises on purpose.

    Args:
        code: A key of `CODES`, stable across releases.
        message: What happened, in one sentence.
        remedy: What the reader should do next; a command where there is one.
        where: The file, `file:line`, or dotted key concerned.
        details: Extra machine-readable facts (JSON values only).
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str = "",
        where: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.where = where
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"remedy": self.remedy, "where": self.where, "details": self.details}
        return (type(self), (self.code, self.message), state)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape that `--json` prints: code, message, remedy, where, details."""
        return {
            "code": self.code,
            "message": self.message,
            "remedy": self.remedy,
            "where": self.where,
            "details": self.details,
        }


class UsageError(KitError):
    """The request itself is wrong."""

    exit_code = 2


class ConfigError(KitError):
    """A configuration file or the workspace is missing or wrong."""

    exit_code = 3


class BundleError(KitError):
    """A strategy bundle is malformed or has been tampered with."""

    exit_code = 3


class RegistryError(KitError):
    """INDEX.json, a strategy id or a version."""

    exit_code = 3


class DataError(KitError):
    """Market data, or another input file, cannot be used."""

    exit_code = 3


class GuardError(KitError):
    """A guard refused."""

    exit_code = 4


class LockError(KitError):
    """The environment lock refused."""

    exit_code = 4


class McpError(KitError):
    """An MCP server could not be started, reached, or understood."""

    exit_code = 5


class RunError(KitError):
    """A run failed."""

    exit_code = 5


class StorageError(KitError):
    """The disk or the state store refused."""

    exit_code = 5


class DeliveryError(KitError):
    """No channel took the card."""

    exit_code = 6


class AlreadyDone(KitError):  # noqa: N818 - it is not a failure
    """The work is done, or another process holds it."""

    exit_code = 7


class Interrupted(KitError):  # noqa: N818 - it is not a failure
    """A person stopped it."""

    exit_code = 130


CODES: dict[str, str] = {
    # floor 0
    "config.invalid": "A file under config/ does not match its schema.",
    "config.missing": "A file that config/ must hold is not there.",
    "data.schema": "A value does not match the JSON Schema of its kind.",
    "file.bad_json": "A file cannot be read: JSON syntax, a duplicate key, NaN, or not UTF-8.",
    "file.exists": "Something already stands where a finished folder should go.",
    "file.io": "The operating system refused a file operation.",
    "file.locked": "Another process holds the lock of this file.",
    "file.missing": "A file that should be there is not.",
    "file.no_space": "The disk, the quota or the inodes are used up.",
    "file.not_writable": "This process may not write there.",
    "state.corrupt": "The state store is not a readable database.",
    "state.newer": "The state store was written by a newer kit.",
    "state.unavailable": "The state store cannot be opened or is locked by another process.",
    "time.bad_date": "A date is not written YYYY-MM-DD.",
    "time.bad_instant": "An instant is not ISO 8601 with an offset.",
    "time.bad_window": "A window of dates or instants ends before it begins.",
    "workspace.exists": "The directory already holds a workspace.",
    "workspace.not_empty": "The directory is not empty, so no workspace is made there.",
    "workspace.not_found": "No workspace was found here or above.",
    # market
    "calendar.unknown": "The trading calendar does not reach that date.",
    "data.bad_bars": "Bars are missing, duplicated, out of order or contradict themselves.",
    "data.all_missing": "A source answered with rows that hold no price.",
    "data.bad_columns": "A bars file lacks a column or has one of the wrong type.",
    "data.bad_symbol": "A code is no symbol of its market.",
    "data.changed": "Bars changed on disk while they were being read.",
    "data.foreign_file": "A symbol stands in a file of the store that was put there by hand.",
    "data.missing_symbols": "Some symbols asked for have no bars in the window.",
    "data.no_bars": "There are no bars for what was asked.",
    "data.no_symbols": "A sync was asked for without symbols.",
    "data.off_session": "A bar of another market stands on a day on which that market was closed.",
    "data.store_missing": "The market store holds no bars at that interval.",
    "data.subtracted": "Adjusted prices do not follow from the raw ones by a ratio.",
    "data.unit_mismatch": "Volume or turnover is in another unit than declared.",
    "data.unit_undeclared": "The unit of a volume was not declared, and is not guessed.",
    "data.unknown_adjustment": "A price adjustment is not none, forward or backward.",
    "data.unknown_field": "Bars have no such field.",
    "data.unknown_interval": "The source has no bars of that spacing.",
    "data.unknown_source": "There is no data source of that name.",
    "data.unknown_symbol": "A symbol is not in the panel.",
    "internal": "A fault in our own code; its traceback is worth a report.",
    "news.unknown_category": "A news source has no items of that category.",
    "data.unreadable": "Stored bars cannot be read: gone, truncated, or not Parquet.",
    "market.bad_selector": "A universe selector is not understood.",
    "market.unknown": "There is no market of that name in config/markets.json.",
    "rules.bad_fill": "Fees were asked for something that is not a fill.",
    "rules.before_table": "A trading rule is not on file for a date that early.",
    "rules.no_board": "The trading rules have no row for a board or a kind of security.",
    "rules.no_lot": "The board lot of a security is not on file.",
    "rules.no_table": "A market has no trading rules on file.",
    "source.deadline": "A sync ran out of its total time.",
    "source.failed": "A source of bars failed, in its own words.",
    "source.no_token": "A source of bars needs a token that is not set.",
    "source.not_installed": "The library of a source of bars is not installed.",
    "source.rate_limited": "A source of bars refused because it was asked too often.",
    "source.shrunk": "A source lacks bars that it served before; the stored ones stay.",
    "source.stale": "A source's newest bar is older than it should be.",
    "source.stopped": "A source failed several times in a row and was left alone.",
    "source.timeout": "A source of bars did not answer in time.",
    # bundles and the registry
    "archive.conflict": "An imported version is here already, with other content.",
    "archive.member": "An archive holds something else than plain files with plain names.",
    "archive.root": "An archive does not hold one version under <id>/<X.Y.Z>/.",
    "archive.too_large": "An archive is larger, packed or unpacked, than a version can be.",
    "archive.unreadable": "A file is no gzipped tar, or is cut off.",
    "bundle.bad_checksums": "checksums.txt of a version is malformed.",
    "bundle.bad_id": "A strategy id is not 3 to 41 lower-case letters, digits and hyphens.",
    "bundle.bad_json": "A JSON file of a bundle does not parse, or a key stands twice.",
    "bundle.bad_name": "A file of a bundle is no plain file, or its name cannot be checksummed.",
    "bundle.bad_version": "A version is not written MAJOR.MINOR.PATCH.",
    "bundle.config": "config.json of a bundle has a wrong, missing or unknown key.",
    "bundle.front_matter": "The YAML front matter of a file is missing or does not parse.",
    "bundle.id_mismatch": "strategy_id in a manifest differs from the strategy's directory.",
    "bundle.import_failed": "Code of a bundle failed while it was imported.",
    "bundle.is_draft": "A draft was named where a frozen version is needed.",
    "bundle.manifest": "manifest.json has a wrong, missing or unknown key.",
    "bundle.missing_file": "A file that a bundle must hold is not there.",
    "bundle.no_callable": "A prompt's offline equivalent is not a function of the bundle.",
    "bundle.no_engine": "The signal engine cannot be made, or lacks a method.",
    "bundle.not_found": "There is no such bundle directory.",
    "bundle.path_escape": "A bundle names a path outside itself, or through a link.",
    "bundle.prompt": "The front matter of a prompt has a wrong, missing or unknown key.",
    "bundle.skill": "The front matter of SKILL.md has a wrong, missing or unknown key.",
    "bundle.symlink": "A bundle holds, or is, a symbolic link.",
    "bundle.syntax": "Code of a bundle is not valid Python.",
    "bundle.tampered": "A frozen version differs from its checksums or its recorded digest.",
    "bundle.text": "A text file has a BOM, CR line ends, a NUL byte, or is not UTF-8.",
    "bundle.too_large": "A text file of a bundle is too large to be read.",
    "bundle.unknown_step": "A bundle has no LLM step of that name.",
    "bundle.version_mismatch": "The version in a manifest differs from the version's directory.",
    "conversation.bad_event": "A line of a conversation is not an event.",
    "conversation.bad_name": "A conversation is not named <ISO date>-<slug>.jsonl.",
    "conversation.bad_slug": "A text gives no slug.",
    "conversation.no_events": "A session log holds nothing that can be imported.",
    "conversation.prompt": "The prompt that names conversations is missing or lacks its stand-in.",
    "conversation.too_large": "A session log is too large to be imported.",
    "conversation.unknown_format": "A file looks like none of the known session logs.",
    "conversation.unreadable": "A session log cannot be read as a whole.",
    "draft.exists": "The strategy has a draft already.",
    "draft.id_taken": "The id is another strategy's, or differs from one only by case.",
    "draft.unknown_template": "There is no template of that name.",
    "draft.nothing_to_copy": "There is no frozen version to start a draft from.",
    "freeze.bad_bump": "A bump is not auto, patch, minor or major.",
    "freeze.bump_too_low": "The changes demand a larger bump than was asked for.",
    "freeze.busy": "This process is freezing that version already.",
    "freeze.checks": "A check that must pass before a freeze did not.",
    "freeze.edited": "A draft changed while it was being frozen.",
    "freeze.identical": "The draft holds nothing that a frozen version does not.",
    "freeze.lint": "Lint found errors in the draft.",
    "freeze.not_first": "A first version was asked for, and the strategy has versions.",
    "freeze.version_exists": "The version exists: another freeze was first.",
    "prompt.shorthand": "A schema in a prompt's front matter does not compile.",
    "registry.bad_activations": "activations.jsonl of a strategy does not parse.",
    "registry.bad_index": "INDEX.json does not parse or has a wrong shape.",
    "registry.digest_mismatch": "A version is not what was recorded when it was frozen.",
    "registry.missing": "There is no INDEX.json.",
    "registry.no_active": "The strategy has no active version.",
    "registry.no_record": "Neither INDEX.json nor the log holds the digest of a version.",
    "registry.no_draft": "The strategy has no draft.",
    "registry.unknown_id": "There is no strategy of that id.",
    "registry.unknown_version": "The strategy has no such version.",
    "registry.unlisted": "A version directory is not listed in INDEX.json.",
    "registry.version_lost": "A version that was active once has no directory any more.",
    "bundle.policy": "A rule of a manifest's degradation policy is not in the vocabulary.",
    "llm.bad_mode": "A mode is not one of auto, live, offline.",
    "llm.bad_month": "A month is not written as YYYY-MM.",
    "llm.bad_record": "A line of a run's llm.jsonl is not one.",
    "llm.budget_exceeded": "The month's budget for models has no room for another call.",
    "llm.bad_input": "The inputs of an LLM step do not match its input schema.",
    "llm.connection": "The provider of a model could not be reached.",
    "llm.http_error": "The provider of a model answered with an error.",
    "llm.limit_exceeded": "A hard limit on model calls forbids another call.",
    "llm.no_key": "The key of a model's provider is not set, or was refused.",
    "llm.off_schema": "A model's answer does not match the schema of its step.",
    "llm.offline_failed": "The offline equivalent of a step failed.",
    "llm.rate_limited": "The provider of a model asked to slow down.",
    "llm.refused": "The provider of a model withheld the answer.",
    "llm.replay_miss": "A run that is replayed asks what was not asked in the recorded one.",
    "llm.runtime_exceeded": "The time of a run was used up before a model answered.",
    "llm.timeout": "A model did not answer in time.",
    "llm.truncated": "A model's answer was cut at its token limit.",
    "llm.unknown_step": "A strategy has no LLM step of that name.",
    "skills.in_the_way": "A folder where a skill should go was not made, or was changed, by hand.",
    "skills.unknown_target": "Skills were to be synced to a target that is none.",
    "slot.closed": "A slot was asked for while its market is closed.",
    "slot.context_field": "A slot's context has a field without a layer, or lacks one.",
    "slot.context_id": "A slot's context is not the one that its id names.",
    "slot.future": "A slot was asked for at an instant that has not come yet.",
    "slot.no_holdings": "config/portfolio.json holds nothing of a market.",
    "slot.no_reference": "There is no reference entry of that name in a slot's context.",
    "slot.not_a_slot": "A market is open, but no slot is scheduled in that half hour.",
    "slot.order": "A stage of a slot was called before the one it builds on.",
    "slot.prompt": "The intraday prompt is missing, or declares no offline equivalent.",
    "slot.stale_context": "A slot's context was asked for under the id of another generation.",
    # MCP servers
    "mcp.bad_arguments": "A tool of a shipped MCP server does not take such arguments.",
    "mcp.bad_schema": "A tool declares a schema that is no usable JSON Schema.",
    "mcp.closed": "A pool of MCP servers was used outside its `with` block.",
    "mcp.exited": "The process of an MCP server ended, or its connection closed.",
    "mcp.missing_server": "There is no MCP server of that name in config/mcp.json.",
    "mcp.no_payload": "The answer of a tool is neither structured nor JSON.",
    "mcp.no_tool": "An MCP server has no such tool, or offers that name twice.",
    "mcp.not_startable": "The command of an MCP server cannot be started.",
    "mcp.off_schema": "The answer of a tool does not match the schema that it declares.",
    "mcp.protocol": "An MCP server answered with something that is not the protocol.",
    "mcp.timeout": "An MCP server did not answer in time.",
    "mcp.tool_error": "A tool of an MCP server answered with an error.",
    "mcp.unknown_server": "No MCP server of that name is shipped.",
    "mcp.unreachable": "An MCP server cannot be reached at its address.",
    # runner and delivery
    "delivery.failed": "No channel took the card of a run.",
    "delivery.no_channel": "No delivery channel is enabled.",
    "notebook.invalid": "A file is not a notebook that can be read.",
    "notebook.missing": "There is no notebook of that name.",
    "notebook.no_contract": "A notebook's metadata does not say what it takes and leaves.",
    "notebook.no_end": "A notebook does not end with a cell tagged kit-end.",
    "notebook.parameters_cell": "A notebook's parameters cell and its declared parameters differ.",
    "run.already_done": "This run has been done; a manual re-run makes a new attempt.",
    "run.ambiguous": "Several runs fit what was given.",
    "run.bad_key": "A run key holds something that cannot name a run.",
    "run.bad_parameter": "A parameter is unknown, missing, mistyped or not plain JSON.",
    "run.held": "Another process is working on this run.",
    "run.bad_result": "A notebook left a result file that does not hold what it must.",
    "run.cell_error": "A cell of a notebook raised an exception.",
    "run.crashed": "The runner itself failed.",
    "run.exited": "A cell called exit, so the cells below it never ran.",
    "run.interrupted": "A run was stopped by Ctrl-C or a signal.",
    "run.kernel_died": "The kernel process of a notebook ended by itself.",
    "run.missing_result": "A notebook ran to its end without leaving a result file.",
    "run.output_too_large": "The cells of a notebook printed more than the limit.",
    "run.refused": "A run was refused before its kernel started.",
    "run.storage": "The disk did not take a run folder.",
    "run.timeout": "A run reached its time limit.",
    "run.unknown": "There is no such run.",
    "screen.failed": "The rule of a bundle raised an error, or returned no list of picks.",
    "screen.frequency": "The daily screen cannot run on the bar spacing that a bundle asks for.",
    "screen.future_date": "A screen was asked for a date in the future.",
    "screen.too_early": "A screen was asked for before the data of its date is complete.",
    "screen.no_session": "The calendar knows no recent session.",
    "screen.no_limit": "A bundle does not say how many picks it wants.",
    "screen.out_of_order": "A stage of the screen was called before the one it needs.",
    "screen.no_bars": "The bar source has no bars in the window a screen needs.",
    "screen.bad_limit": "A screen was asked for fewer than one pick.",
    "screen.nothing_active": "Every active version was asked for, and there is none.",
    "screen.draft_scheduled": "A draft was asked to run unattended.",
    "screen.aborted": "A degradation ended a screen without picks.",
    "lock.failed": "What an environment lock demands is not here; `details` says all of it.",
    "lock.force_scheduled": "A scheduled job may not run against another channel than the lock's.",
    "render.needs_lab": "Interactive figures need the lab extra, which is not installed.",
    "metrics.bad_equity": "An equity curve is not a finite number per ascending moment.",
    "metrics.bad_trades": "A table of trades lacks a column.",
    "metrics.unnamed_benchmark": "A benchmark has no name to report it under.",
    "lookahead.engine_failed": "Signal code raised an error while it was being checked.",
    "lookahead.bad_dates": "No date to check lies inside the panel.",
    "warmup.too_short": "A panel is too short to measure how much history is needed.",
    # backtest
    "peer.failed": "Vibe-Trading refused a bundle, or failed on it.",
    "peer.not_installed": "Vibe-Trading is not installed in the environment that is looked at.",
    "peer.timeout": "Vibe-Trading did not finish its backtest in time.",
    "backtest.bad_config": "config.json or the manifest lacks a value that a backtest needs.",
    "backtest.bad_folds": "A range is too short to be cut into that many folds.",
    "backtest.bad_label": "A label of an evidence folder is not lower-case words with hyphens.",
    "backtest.bad_range": "No bar lies in the range asked for.",
    "backtest.bad_weights": "Signal code returned weights of a wrong type, symbol, date or size.",
    "backtest.engine_failed": "Signal code raised an error during a backtest.",
    "backtest.invariant": "A simulated fill would have overdrawn cash or position: a defect.",
    "backtest.label_taken": "Evidence of that label exists for the day already.",
    "backtest.needs_lab": "A vectorbt portfolio needs the lab extra, which is not installed.",
    "backtest.same_bar": "A same-bar fill was asked for without a waiver.",
    "backtest.too_short": "The warm-up leaves no bar to grade.",
    "backtest.unknown_symbol": "A symbol is not part of a backtest.",
    "sweep.bad_param": "A parameter of a sweep is not name=values of the kind the bundle has.",
    "sweep.needs_scale": "A sweep on Dask needs the scale extra, which is not installed.",
    "sweep.no_scheduler": "No Dask scheduler answers at the address of a sweep.",
    "sweep.too_large": "A sweep has more cells than can be believed.",
    "sweep.unknown_param": "A bundle has no parameter of that name.",
    "sweep.worker_lost": "A worker of a sweep ended before its cells were done.",
    # command line and lab
    "bundle.no_parent": "There is no frozen version to compare with.",
    "lab.bad_path": "A path does not name a file of the open draft.",
    "lab.no_draft": "A lab function needs an open draft.",
    "lab.no_runs": "There is no run to load yet.",
    "lab.usage": "A magic or lab function was called without what it needs.",
    "replay.differs": "A replay gave another result than the run.",
    "replay.unfinished": "A run that left no result of its own cannot be replayed.",
    "replay.unsupported": "A notebook takes no parameter `replay`.",
    "run.no_record": "A run left no record to run again from.",
    "conversation.empty_note": "A note for a draft's conversation has no text.",
    "draft.missing": "A strategy has no draft.",
}
