"""What is shown on a terminal and elsewhere, and what is stored."""

import io
import json

from slimbayes.training._progress import Progress
from slimbayes.training.meter import Means

MEANS = Means(nll=1.25, kl=345.0, beta=0.5, loss=1.5, accuracy=0.75, examples=100)
TRAIN = {**MEANS._asdict(), "lr": 0.1, "examples_per_second": 2000.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def report(path, stream, quiet=False):
    progress = Progress(path, steps=10, done=4, quiet=quiet, title="rank1 on digits", stream=stream)
    progress.step(50)
    progress.during(1, 5, MEANS, 0.1, 1999.6)
    progress.bar.refresh()
    progress.store(1, 5, TRAIN, {"nll": 1.125})
    progress.show(1, 2, TRAIN, {"nll": 1.125}, draws=4)
    progress.close()


def test_a_bar_on_a_terminal(tmp_path):
    stream = Terminal()
    report(tmp_path / "metrics.jsonl", stream)
    last = [line for line in stream.getvalue().split("\r") if "NLL" in line][-1]
    assert "rank1 on digits" in last
    assert "5/10" in last
    assert "NLL 1.2500 KL 345 beta 0.5 acc 0.750 2000/s" in last
    assert "<" in last.partition("[")[2]  # time gone < time left
    assert "epoch 1/2  validation: nll 1.1250 (4 draws)" in stream.getvalue()


def test_a_line_for_each_epoch_elsewhere(tmp_path):
    stream = io.StringIO()
    report(tmp_path / "metrics.jsonl", stream)
    expected = "epoch 1/2  NLL 1.2500 KL 345 beta 0.5 acc 0.750  2000/s  validation: nll 1.1250 (4 draws)\n"
    assert stream.getvalue() == expected


def test_what_is_stored_does_not_depend_on_what_is_shown(tmp_path):
    for name, stream, quiet in (("a", io.StringIO(), False), ("b", Terminal(), False), ("c", io.StringIO(), True)):
        report(tmp_path / name, stream, quiet)
        assert quiet == (stream.getvalue() == "")
    step, epoch = (json.loads(line) for line in (tmp_path / "a").read_text().splitlines())
    assert step == {"epoch": 1, "step": 5, "lr": 0.1, **MEANS._asdict(), "examples_per_second": 1999.6}
    assert epoch == {"epoch": 1, "step": 5, "train": TRAIN, "validation": {"nll": 1.125}}
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == (tmp_path / "c").read_text()


def test_other_processes_are_silent():
    stream = io.StringIO()
    report(None, stream)
    assert stream.getvalue() == ""
