"""`kit export` and `kit import`: from one desk to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.workspace import Workspace, init_workspace

Kit = Callable[..., Any]
REF = "ma250-pullback@0.3.1"


def test_a_version_goes_from_one_desk_to_another(kit: Kit, tmp_path: Path) -> None:
    target = tmp_path / "x.tar.gz"
    shown = json.loads(kit("export", REF, "-o", str(target), "--json").out)
    assert (shown["ref"], shown["archive"]) == (REF, str(target))
    assert shown["artifact"] == json.loads((tmp_path / "x.artifact.json").read_text("utf-8"))
    other = init_workspace(tmp_path / "other").root
    checked = kit("import", str(target), "--dry-run", at=other)
    assert checked.out.startswith(f"sound, not taken in: {REF}")
    assert "0.3.1" not in kit("list", at=other).out
    said = kit("import", str(target), at=other)
    assert said.out.startswith(f"imported: {REF} at strategies/ma250-pullback/0.3.1\n")
    assert f"kit registry activate {REF}" in said.err
    assert kit("verify", at=other).out == "1 versions re-hashed: intact\n"
    again = json.loads(kit("import", str(target), "--json", at=other).out)
    assert (again["landed"], again["ref"]) == (False, REF)
    assert kit("registry", "activate", REF, "--why", "came by post", at=other).code == 0


def test_what_cannot_be_carried_is_named(kit: Kit, desk: Workspace, tmp_path: Path) -> None:
    for line, code, name in (
        (["export", "ma250-pullback@draft"], 2, "bundle.is_draft"),
        (["export", "ma250-pullback@9.9.9"], 3, "registry.unknown_version"),
        (["import", str(tmp_path / "nowhere.tar.gz")], 3, "file.missing"),
        (["import", str(desk.index_path)], 3, "archive.unreadable"),
        (["import", str(tmp_path)], 3, "file.missing"),
    ):
        said = kit(*line, "--json")
        assert (said.code, json.loads(said.out)["error"]["code"]) == (code, name)
