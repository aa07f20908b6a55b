"""`kit export` and `kit import`: carry a frozen version from one workspace to another."""

from __future__ import annotations

from pathlib import Path

import click

from kit.cli import output
from kit.clock import SystemClock


@click.command("export", epilog="Example: kit export ma250-pullback@0.3.1 -o ma250.tar.gz")
@click.argument("ref", metavar="ID[@VERSION]")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive [default: ID-VERSION.tar.gz here]; its record is put beside it.",
)
@output.json_option
@click.pass_obj
def export(session: output.Session, ref: str, target: Path | None, as_json: bool) -> None:
    """Write a frozen version as one archive.

    The same version gives the same bytes, wherever and whenever it is exported.
    """
    from kit.bundle.archive import export_version

    written = export_version(session.workspace(), ref, target)
    if as_json:
        output.emit_json(
            {
                "ref": written.ref,
                "archive": str(written.path),
                "sha256": written.sha256,
                "record_path": str(written.record_path),
                "artifact": written.record,
            }
        )
        return
    output.say(f"exported: {written.ref} to {written.path}")
    output.say(f"sha256 of the archive: {written.sha256}")
    output.message(f"artifact record: {written.record_path}")


@click.command("import", epilog="Example: kit import ma250-pullback-0.3.1.tar.gz")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--why", default="", help="Reason, for the activation log.")
@click.option("--dry-run", is_flag=True, help="Check the archive, and take nothing in.")
@output.json_option
@click.pass_obj
def import_(session: output.Session, archive: Path, why: str, dry_run: bool, as_json: bool) -> None:
    """Take in a version from an archive, checked."""
    from kit.bundle.archive import import_archive

    workspace = session.workspace()
    taken = import_archive(
        workspace, archive, who=output.login_name(), why=why, clock=SystemClock(), dry_run=dry_run
    )
    place = workspace.relative(taken.root)
    if as_json:
        output.emit_json(
            {
                "ref": taken.ref,
                "root": place,
                "digest": taken.digest,
                "landed": taken.landed,
                "notes": list(taken.notes),
            }
        )
        return
    for note in taken.notes:
        output.message(f"note: {note}")
    word = "imported" if taken.landed else "sound, not taken in" if dry_run else "nothing to do"
    output.say(f"{word}: {taken.ref} at {place}")
    output.say(f"sha256 of its checksums.txt: {taken.digest}")
    if taken.landed:
        output.message(f"to run it from cron: kit registry activate {taken.ref} --why '...'")
