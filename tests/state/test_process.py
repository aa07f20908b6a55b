from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from kit.state.process import Holder, is_alive, this_process


def test_this_process_lives() -> None:
    assert is_alive(this_process()) is True
    assert this_process().pid == os.getpid()


def test_a_reused_process_id_is_not_taken_for_the_old_process() -> None:
    assert is_alive(replace(this_process(), started="1")) is False


def test_another_boot_is_dead() -> None:
    assert is_alive(replace(this_process(), boot="11111111-0000-0000-0000-000000000000")) is False


def test_another_host_cannot_be_judged() -> None:
    assert is_alive(replace(this_process(), host="elsewhere.invalid")) is None


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()  # ended, not yet waited for
    me = this_process()
    for _ in range(100):
        if is_alive(Holder(pid=process.pid, started="", boot=me.boot, host=me.host)) is False:
            break
    else:
        raise AssertionError("still alive")
    process.wait()
    process.stdout.close()


def test_a_holder_survives_its_text_form() -> None:
    me = this_process()
    assert Holder.from_text(me.to_text()) == me
    assert Holder.from_text("") is None
    assert Holder.from_text("[]") is None
