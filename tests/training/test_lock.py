"""One training at a time in a folder."""

import json
import os
import subprocess
import sys
import threading

import pytest
from training_runs import small

from slimbayes._files import HOST
from slimbayes.training import Run, fit
from slimbayes.training.lock import LOCK, FolderInUse, alone_in

HOLD = """
import sys
from pathlib import Path
from slimbayes.training.lock import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Return a process that holds the lock of tmp_path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_second_training_is_refused_by_host_and_process(holder, tmp_path):
    message = rf"{tmp_path} is in use: .*process {holder.pid} on {HOST}, since 20.* UTC.*give another folder"
    for resume in (False, True):
        with pytest.raises(FolderInUse, match=message):
            fit(small(), tmp_path, resume=resume, quiet=True)
    assert not Run(tmp_path).exists()


def test_the_lock_of_a_process_that_was_killed_is_taken_over(holder, tmp_path):
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert fit(small(epochs=1), tmp_path, quiet=True).result["epochs"] == 1  # a zombie: nobody has waited for it
    assert not (tmp_path / LOCK).exists()


def test_a_lock_that_is_let_go_can_be_waited_for(holder, tmp_path):
    ended = threading.Timer(0.2, holder.stdin.close)
    ended.start()
    with alone_in(tmp_path, wait=True):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    assert holder.wait() == 0


def test_of_another_machine_nothing_is_known(tmp_path):
    lock = {"host": "far-away", "process": 1, "since": "2026-01-01 00:00:00 UTC", "task": "grid 7"}
    (tmp_path / LOCK).write_text(json.dumps(lock))
    for wait in (False, True):
        with (
            pytest.raises(FolderInUse, match=rf"process 1 on far-away.*rm {tmp_path / LOCK}"),
            alone_in(tmp_path, wait),
        ):
            pass
    with alone_in(
        tmp_path, task="grid 7"
    ):  # a later attempt of the same task: whoever starts them knows that one is no more
        pass


@pytest.mark.parametrize(
    "content",
    ["12", json.dumps({"host": HOST, "process": os.getpid(), "born": "another boot 5"}), "{}"],
    ids=["a number", "another boot", "nothing"],  # a process's own number would differ between workers
)
def test_locks_without_a_living_holder(tmp_path, content):
    """Of versions before; of a process whose number another one has now."""
    content = content.replace("{}", json.dumps({"host": HOST, "process": 2**22 + 1, "born": None}))
    (tmp_path / LOCK).write_text("999999999" if content == "12" else content)
    with alone_in(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()


def test_of_another_container_of_this_machine_nothing_is_known(tmp_path):
    """Which may have its host's name, and a process of every number."""
    lock = {"host": HOST, "process": 2**22 + 1, "born": None, "container": "pid:[1]"}
    (tmp_path / LOCK).write_text(json.dumps(lock))
    with pytest.raises(FolderInUse, match=rf"crash of that container: rm {tmp_path / LOCK}"), alone_in(tmp_path, True):
        pass


def test_what_a_link_points_to_is_not_written_to(tmp_path):
    """As in a folder that somebody else has made."""
    (tmp_path / "precious").write_text("mine")
    os.utime(tmp_path / "precious", (0, 0))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=f"Cannot write to {tmp_path / 'run'}"), alone_in(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_two_threads_of_one_process(tmp_path):
    with alone_in(tmp_path / "a"), alone_in(tmp_path / "b"), pytest.raises(FolderInUse), alone_in(tmp_path / "a"):
        pass
    assert not (tmp_path / "a").exists()  # it held nothing else


def test_a_finished_run_can_be_opened_while_it_is_locked(holder, tmp_path):
    fit(small(epochs=1), tmp_path / "run", quiet=True)
    (tmp_path / "run" / LOCK).write_text((tmp_path / LOCK).read_text())
    assert fit(small(epochs=1), tmp_path / "run", resume=True, quiet=True).result["epochs"] == 1
