"""What a notebook promises to the runner, checked before any kernel starts.

The promise stands in the notebook's own metadata:

```
"kit": {
  "kind": "screen",
  "parameters": {<JSON Schema of an object>},
  "results": {"picks.json": "picks", "card.json": "card", "signals.parquet": null}
}
```

`results` maps each file the notebook leaves in its run folder to the name of a schema, or to null
when only its presence is asked for. One code cell is tagged `parameters` and assigns exactly the
declared parameters, with the defaults of a run by hand. The last code cell is tagged `kit-end`; it
has nothing to do but to run: a notebook cut short, or edited past its end, cannot look finished.
"""

from __future__ import annotations

import ast
import keyword
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files, schemas
from kit.errors import ConfigError, DataError, UsageError
from kit.runner.cells import tags_of

__all__ = ["RESERVED", "NotebookContract", "check_parameters", "read_contract"]

# Supplied by the runner where the notebook declares them.
RESERVED = ("run_folder", "run_id", "card_id")

_METADATA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["kind", "parameters", "results"],
    "properties": {
        "kind": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
        "parameters": {
            "type": "object",
            "required": ["type", "properties"],
            "properties": {
                "type": {"const": "object"},
                "properties": {"type": "object", "additionalProperties": {"type": "object"}},
                "required": {"type": "array", "items": {"type": "string"}},
            },
        },
        "results": {
            "type": "object",
            "propertyNames": {"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_-]+)*$"},
            "additionalProperties": {"type": ["string", "null"]},
        },
    },
}


@dataclass(frozen=True, kw_only=True)
class NotebookContract:
    """A notebook that may be run.

    Attributes:
        path: Where it was read from.
        kind: What it does; the run key's kind as a rule.
        parameters: JSON Schema of its parameters, closed against unknown names.
        results: Result file -> schema name, or `None` for mere presence.
        notebook: The parsed notebook (an `nbformat` node), for one execution.
        digest: SHA-256 of the file.
    """

    path: Path
    kind: str
    parameters: dict[str, Any]
    results: dict[str, str | None]
    notebook: Any
    digest: str


def read_contract(path: Path) -> NotebookContract:
    """Read a notebook and check everything that can be checked without parameters.

    Raises:
        ConfigError: `notebook.missing`, `notebook.invalid`, `notebook.no_contract`,
            `notebook.parameters_cell` or `notebook.no_end`.
    """
    notebook, digest = _read(path)
    declared = notebook.metadata.get("kit")
    if declared is None:
        raise _bad(
            "notebook.no_contract",
            "the notebook's metadata has no `kit` section",
            path,
            "add kind, parameters and results under metadata.kit",
        )
    problems = schemas.validate_with(_METADATA_SCHEMA, declared)
    unknown = sorted(set(filter(None, declared.get("results", {}).values())) - set(schemas.names()))
    if problems or unknown:
        shown = [str(problem) for problem in problems]
        shown += [
            f"results: there is no schema {name!r} {schemas.suggestion(name, schemas.names())}"
            for name in unknown
        ]
        raise _bad(
            "notebook.no_contract",
            "metadata.kit: " + "; ".join(shown),
            path,
            "mend the `kit` section of the notebook's metadata",
        )
    _check_cells(notebook, declared["parameters"], path)
    return NotebookContract(
        path=path,
        kind=declared["kind"],
        parameters={**_plain(declared["parameters"]), "additionalProperties": False},
        results=dict(declared["results"]),
        notebook=notebook,
        digest=digest,
    )


def check_parameters(
    contract: NotebookContract, parameters: Mapping[str, Any], reserved: Mapping[str, str]
) -> dict[str, Any]:
    """Check parameters against the notebook's schema and add the reserved ones it declares.

    Values must be plain JSON values, so that what is injected is what is recorded: dates go as ISO
    strings, codes such as `"000001"` stay strings.

    Raises:
        UsageError: `run.bad_parameter`, naming every problem.
    """
    declared = contract.parameters["properties"]
    given = dict(parameters)
    for name, value in reserved.items():
        if name in declared:
            given.setdefault(name, value)
    problems = [problem for name, value in given.items() for problem in _impure(name, value)]
    if not problems:
        found = schemas.validate_with(contract.parameters, given)
        problems = [str(problem) for problem in found]
    if problems:
        raise UsageError(
            "run.bad_parameter",
            f"parameters: {'; '.join(problems)}",
            where=contract.path.name,
            remedy=f"the notebook takes: {', '.join(declared) or 'no parameters'}",
            details={"problems": problems},
        )
    return given


def _read(path: Path) -> tuple[Any, str]:
    # Blocked because it costs 2 s to import and nobody here checks IRIs.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import nbformat

    try:
        text = files.read_text(path)
        parsed = files.parse_json(text, where=str(path))
    except DataError as error:
        code = "notebook.missing" if error.code == "file.missing" else "notebook.invalid"
        raise _bad(code, error.message, path, "name an existing notebook (.ipynb)") from error
    if not isinstance(parsed, dict) or parsed.get("nbformat") != 4:
        raise _bad(
            "notebook.invalid", "not a notebook of format 4", path, "save it again in JupyterLab"
        )
    try:
        reads: Any = nbformat.reads
        notebook = reads(text, as_version=4)
        nbformat.validate(notebook)
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
        # nbformat walks the document before it validates it, and trips over a wrong type.
        reason = str(error).splitlines()[0]
        raise _bad(
            "notebook.invalid",
            f"not a notebook: {reason}",
            path,
            "open it in JupyterLab and save it again",
        ) from error
    return notebook, files.sha256_bytes(text.encode("utf-8"))


def _check_cells(notebook: Any, parameters: Mapping[str, Any], path: Path) -> None:
    tagged = [cell for cell in notebook.cells if "parameters" in tags_of(cell)]
    if len(tagged) != 1 or tagged[0].cell_type != "code":
        raise _bad(
            "notebook.parameters_cell",
            f"{len(tagged)} cells are tagged `parameters`; exactly one code cell must be",
            path,
            "tag the cell that assigns the defaults; without it the defaults would win silently",
        )
    assigned, declared = _assigned(tagged[0].source), set(parameters["properties"])
    for names, text in (
        (declared - assigned, "declared in metadata.kit.parameters but not assigned in the cell"),
        (assigned - declared, "assigned in the parameters cell but not declared"),
        ({n for n in declared if not n.isidentifier() or keyword.iskeyword(n)}, "not a name"),
    ):
        if names:
            raise _bad(
                "notebook.parameters_cell",
                f"{', '.join(sorted(names))}: {text}",
                path,
                "keep the tagged cell and metadata.kit.parameters in step",
            )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ends = [cell for cell in code if "kit-end" in tags_of(cell)]
    if ends != code[-1:] or not ends[0].source.strip():
        raise _bad(
            "notebook.no_end",
            "the last code cell, and only that one, must be tagged `kit-end` and not be blank",
            path,
            "add a last code cell such as `finished = True` with the tag kit-end",
        )


def _assigned(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    names: set[str] = set()
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def _impure(path: str, value: Any) -> list[str]:
    """Name what in a value is not plain JSON; subclasses count as such (`numpy.float64`)."""
    if value is None or type(value) in (str, bool, int):
        return []
    if type(value) is float:
        return [] if math.isfinite(value) else [f"{path}: {value} is not a number JSON knows"]
    if type(value) is list:
        return [p for i, item in enumerate(value) for p in _impure(f"{path}[{i}]", item)]
    if type(value) is dict:
        wrong = [f"{path}: key {key!r} is not a string" for key in value if type(key) is not str]
        return wrong + [p for k, item in value.items() for p in _impure(f"{path}.{k}", item)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return [f"{path}: a {kind} cannot be passed; use a plain JSON value (dates as YYYY-MM-DD)"]


def _plain(value: Any) -> Any:
    """Copy nbformat's nodes into plain dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _bad(code: str, message: str, path: Path, remedy: str) -> ConfigError:
    return ConfigError(code, message, where=path.name, remedy=remedy)
