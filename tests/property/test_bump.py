"""The computed bump against an independent table: what each kind of edit demands, edited at random.

The table is the specification's: MAJOR when the lock, the interface or the data contract changed;
MINOR when rules (more of the syntax tree than literals), a prompt, the steps, limits, the policy or
How to Invoke changed; PATCH for wording, templates, comments and numbers.
"""

from __future__ import annotations

import ast
import io
import json
import re
import runpy
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.bundle.diff import diff
from kit.workspace import Workspace, init_workspace

BUILDER = Path(__file__).parents[1] / "bundle" / "builder.py"
ENGINE = "code/signal_engine.py"
HELPER = "code/helpers/offline_sectors.py"
ORDER = ("none", "patch", "minor", "major")

Texts = dict[str, str]
Edit = Callable[[Texts, st.DataObject], None]


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = init_workspace(tmp_path_factory.mktemp("bump") / "desk")
    draft: Path = runpy.run_path(str(BUILDER))["make_draft"](Workspace(workspace.root))
    return draft


def texts_of(root: Path) -> Texts:
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def write(root: Path, texts: Texts) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


# JSON


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def other(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, bool) or value is None:
        return "changed"
    if isinstance(value, int | float):
        return data.draw(st.integers(0, 999).filter(lambda n: n != value))
    if isinstance(value, list | dict):
        return ["changed"]
    return f"{value} {data.draw(st.sampled_from(['changed', '改了', '2']))}"


def json_leaf(name: str, *prefix: str) -> Edit:
    def edit(texts: Texts, data: st.DataObject) -> None:
        whole = json.loads(texts[name])
        found = list(leaves(at(whole, prefix), prefix))
        path = data.draw(st.sampled_from(found))
        parent = at(whole, path[:-1])
        if len(path) > len(prefix) and data.draw(st.booleans()):
            del parent[path[-1]]
        else:
            parent[path[-1]] = other(parent[path[-1]], data)
        texts[name] = json.dumps(whole, ensure_ascii=False)

    return edit


def json_added(name: str, *path: str) -> Edit:
    def edit(texts: Texts, data: st.DataObject) -> None:
        whole = json.loads(texts[name])
        at(whole, path)[f"added_{data.draw(st.integers(0, 9))}"] = data.draw(st.integers())
        texts[name] = json.dumps(whole, ensure_ascii=False)

    return edit


def parameter(texts: Texts, data: st.DataObject) -> None:
    whole = json.loads(texts["config.json"])
    params = whole["_kit"]["params"]
    name = data.draw(st.sampled_from(sorted(params)))
    numbers = st.one_of(st.integers(-999, 999), st.floats(-9, 9, width=32))
    params[name] = data.draw(numbers.filter(lambda n: n != params[name]))
    texts["config.json"] = json.dumps(whole)


# Code


def tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def put(text: str, token: tokenize.TokenInfo, new: str) -> str:
    lines = text.splitlines(keepends=True)
    row, start, end = token.start[0] - 1, token.start[1], token.end[1]
    lines[row] = lines[row][:start] + new + lines[row][end:]
    return "".join(lines)


def number(name: str) -> Edit:
    def edit(texts: Texts, data: st.DataObject) -> None:
        found = [t for t in tokens(texts[name]) if t.type == tokenize.NUMBER]
        token = data.draw(st.sampled_from(found))
        was = ast.literal_eval(token.string)
        new = data.draw(
            st.one_of(st.integers(0, 500), st.floats(0, 5, width=32)).filter(lambda n: n != was)
        )
        texts[name] = put(texts[name], token, repr(new))

    return edit


def comparison(texts: Texts, data: st.DataObject) -> None:
    signs = ["<", "<=", ">", ">=", "==", "!="]
    token = data.draw(st.sampled_from([t for t in tokens(texts[ENGINE]) if t.string in signs]))
    new = data.draw(st.sampled_from([sign for sign in signs if sign != token.string]))
    texts[ENGINE] = put(texts[ENGINE], token, new)


def renamed_variable(texts: Texts, data: st.DataObject) -> None:
    tree = ast.parse(texts[ENGINE])
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    name = data.draw(st.sampled_from(sorted(stored)))
    new = f"{name}_{data.draw(st.integers(2, 9))}"
    texts[ENGINE] = re.sub(rf"(?<![\w\"'.]){name}(?![\w\"'=])", new, texts[ENGINE])


def dropped_statement(texts: Texts, data: st.DataObject) -> None:
    tree = ast.parse(texts[ENGINE])
    bodies = [
        node.body
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.For | ast.If) and len(node.body) > 1
    ]
    body = data.draw(st.sampled_from(bodies))
    position = data.draw(st.integers(0, len(body) - 1))
    del body[position]
    texts[ENGINE] = ast.unparse(tree)


def renamed_argument(texts: Texts, data: st.DataObject) -> None:
    signature, name = data.draw(
        st.sampled_from(
            [
                ("def generate(self, data_map)", "data_map"),
                ("def screen_today(self, data_map, today, sector_filter=None, limit=7)", "today"),
                ("def screen_today(self, data_map, today, sector_filter=None, limit=7)", "limit"),
            ]
        )
    )
    texts[ENGINE] = texts[ENGINE].replace(signature, signature.replace(name, f"{name}_2"))


def lost_method(texts: Texts, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["generate", "screen_today"]))
    texts[ENGINE] = texts[ENGINE].replace(f"def {name}(", f"def {name}_2(")


def comment(texts: Texts, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([ENGINE, HELPER, "code/helpers/offline_reason.py"]))
    lines = texts[name].split("\n")
    plain = [i for i, line in enumerate(lines) if line.strip() and '"""' not in line]
    lines[data.draw(st.sampled_from(plain))] += f"  # {data.draw(st.sampled_from(['why', '为何']))}"
    texts[name] = "\n".join(lines)


def docstring(texts: Texts, data: st.DataObject) -> None:
    found = re.findall(r'"""(\w+)', texts[ENGINE])
    word = data.draw(st.sampled_from(found))
    texts[ENGINE] = texts[ENGINE].replace(f'"""{word}', f'"""Now {word}', 1)


def reformatted(texts: Texts, data: st.DataObject) -> None:
    texts[ENGINE] = ast.unparse(ast.parse(texts[ENGINE]))


# Markdown


def word(name: str, first: str, last: str | None = None) -> Edit:
    """Change one word between two marks (to the end of the file without a second one)."""

    def edit(texts: Texts, data: st.DataObject) -> None:
        text = texts[name]
        start = text.index(first) + len(first)
        end = text.index(last, start) if last else len(text)
        found = list(re.finditer(r"[a-z]{3,}", text[start:end]))
        match = data.draw(st.sampled_from(found))
        new = data.draw(st.sampled_from(["changed", "别的"]))
        texts[name] = text[: start + match.start()] + new + text[start + match.end() :]

    return edit


def schema(texts: Texts, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in texts if n.startswith("prompts/")]))
    keys = re.findall(r"^ +(\w+): (?:string|number|date|\[string\])$", texts[name], re.MULTILINE)
    key = data.draw(st.sampled_from(keys))
    number = data.draw(st.integers(2, 9))
    texts[name] = texts[name].replace(f"{key}:", f"{key}_{number}:", 1)


def added(name: str, text: str) -> Edit:
    def edit(texts: Texts, data: st.DataObject) -> None:
        texts[name] = text

    return edit


def template(texts: Texts, data: st.DataObject) -> None:
    texts["reason_template.md"] += data.draw(
        st.sampled_from(["x\n", "另说\n", "{{ pick.symbol }}\n"])
    )


TABLE: dict[str, tuple[Edit, str]] = {
    "lock": (json_leaf("manifest.json", "env_lock"), "major"),
    "lock, added": (json_added("manifest.json", "env_lock"), "major"),
    "execution": (json_leaf("manifest.json", "execution"), "major"),
    "contract": (json_leaf("manifest.json", "data_contract"), "major"),
    "contract, added": (json_added("manifest.json", "data_contract"), "major"),
    "interface, argument": (renamed_argument, "major"),
    "interface, method": (lost_method, "major"),
    "rule, comparison": (comparison, "minor"),
    "rule, variable": (renamed_variable, "minor"),
    "rule, statement": (dropped_statement, "minor"),
    "rule, new file": (added("code/helpers/more.py", "def more():\n    return 1\n"), "minor"),
    "prompt, text": (word("prompts/event_sector_filter.md", "## Task"), "minor"),
    "prompt, other text": (word("prompts/pick_explanation.md", "## Task"), "minor"),
    "prompt, schema": (schema, "minor"),
    "prompt, new": (added("prompts/more.md", "---\nprompt_id: more\n---\n"), "minor"),
    "steps": (json_leaf("manifest.json", "llm_steps"), "minor"),
    "limits": (json_leaf("manifest.json", "limits"), "minor"),
    "limits, added": (json_added("manifest.json", "limits", "per_step_max_llm_calls"), "minor"),
    "policy": (json_leaf("manifest.json", "degradation_policy"), "minor"),
    "flow": (word("SKILL.md", "### Daily flow", "## Inputs"), "minor"),
    "parameter": (parameter, "patch"),
    "number in the engine": (number(ENGINE), "patch"),
    "number in a helper": (number("code/helpers/numbers.py"), "patch"),
    "comment": (comment, "patch"),
    "docstring": (docstring, "patch"),
    "layout of the code": (reformatted, "patch"),
    "wording": (word("SKILL.md", "## Purpose", "## How to Invoke"), "patch"),
    "wording after": (word("SKILL.md", "## Dependencies"), "patch"),
    "description": (word("SKILL.md", "description:", "category"), "patch"),
    "template": (template, "patch"),
    "reference": (added("references/paper.md", "A paper.\n"), "patch"),
    "conversation": (added("conversations/2024-09-20-more.jsonl", "{}\n"), "none"),
    "evidence": (added("backtests/2024-09-20-iter-1/metrics.json", "{}\n"), "none"),
    "changelog": (added("CHANGELOG.md", "# Changelog\n"), "none"),
}


@pytest.fixture(scope="session")
def base(old: Path) -> Texts:
    """The small bundle, with a helper that holds numbers of its own."""
    helper = old / "code" / "helpers" / "numbers.py"
    helper.write_text("LIMITS = (1, 2.5)\n\n\ndef half(x):\n    return x / 2\n", "utf-8")
    return texts_of(old)


@pytest.mark.parametrize("kind", list(TABLE))
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_one_edit_demands_what_its_kind_demands(
    tmp_path_factory: pytest.TempPathFactory, old: Path, base: Texts, kind: str, data: st.DataObject
) -> None:
    edit, level = TABLE[kind]
    texts = dict(base)
    edit(texts, data)
    new = write(tmp_path_factory.mktemp("one") / "draft", texts)
    found = diff(old, new)
    assert found.bump == level, found
    # And nothing but the largest of its changes decides.
    assert found.bump == max((c.level for c in found.changes), key=ORDER.index, default="none")
    assert diff(new, old).bump == level
    assert diff(new, new).bump == "none"


@settings(max_examples=30, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(TABLE)), min_size=2, max_size=6, unique=True),
    data=st.data(),
)
def test_several_edits_demand_at_least_the_most_of_them(
    tmp_path_factory: pytest.TempPathFactory,
    old: Path,
    base: Texts,
    kinds: list[str],
    data: st.DataObject,
) -> None:
    texts = dict(base)
    done = ["none"]
    for kind in kinds:
        edit, level = TABLE[kind]
        before = dict(texts)
        try:
            edit(texts, data)
        except (ValueError, IndexError):
            texts = before  # an earlier edit took away what this one changes
            continue
        if texts != before:
            done.append(level)
    new = write(tmp_path_factory.mktemp("many") / "draft", texts)
    found = diff(old, new).bump
    assert ORDER.index(found) >= max(map(ORDER.index, done)), (kinds, diff(old, new))
