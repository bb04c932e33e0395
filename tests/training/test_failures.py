"""What goes wrong is said clearly, in time, and ruins nothing that was there."""

import errno
import math
import os
import shutil
from collections import namedtuple

import pytest
import torch
from torch import nn
from training_runs import small, weights

from slimbayes.training import Run, fit
from slimbayes.training.loop import Loop
from slimbayes.training.meter import Meter, NonFiniteLoss


class Poisoned(nn.Module):
    """Returns NaN, or has a gradient of NaN, in its given pass in training mode."""

    def __init__(self, at, gradient=False):
        super().__init__()
        self.flatten, self.linear = nn.Flatten(), nn.Linear(64, 10)
        self.at, self.gradient, self.passes = at, gradient, 0

    def forward(self, x):
        out = self.linear(self.flatten(x))
        self.passes += self.training
        if not self.training or self.passes != self.at:
            return out
        return out + (out * 0).sqrt() if self.gradient else out * math.nan


def poisoned(at, gradient=False):
    return Poisoned(at, gradient)


def own_net(**options):
    return {"name": "test_failures:poisoned", **options}


def test_a_loss_that_is_not_finite_stops_with_step_terms_and_last_checkpoint(tmp_path):
    config = small(net=own_net(at=7), method="deterministic")
    with pytest.raises(NonFiniteLoss) as caught:
        fit(config, tmp_path, quiet=True)
    message = str(caught.value)
    assert "not finite at step 7: loss nan, NLL nan, KL 0.0, beta " in message
    assert f"The last good checkpoint is {tmp_path / 'checkpoints' / 'epoch-00001'} (epoch 1)" in message
    assert "lower learning rate" in message
    run = Run(tmp_path, trust="test_failures:poisoned")
    assert run.checkpoints.index().epoch == 1
    assert all(p.isfinite().all() for p in run.model("last").parameters())
    fit(small(net=own_net(at=7), method="deterministic", epochs=1), tmp_path / "short", quiet=True)
    assert weights(tmp_path, 1) == weights(tmp_path / "short", 1)


def test_before_the_first_checkpoint(tmp_path):
    with pytest.raises(NonFiniteLoss, match="at step 2:.*No checkpoint has been written yet"):
        fit(small(net=own_net(at=2), method="deterministic"), tmp_path, quiet=True)


def test_weights_that_are_not_finite_never_become_a_checkpoint(tmp_path):
    """The last step of epoch 2 has a finite loss and a gradient that is not."""
    with pytest.raises(NonFiniteLoss, match=r"parameter .*linear.* is not finite after step 8\..*epoch-00001"):
        fit(small(net=own_net(at=8, gradient=True), method="deterministic"), tmp_path, quiet=True)
    assert Run(tmp_path).checkpoints.index().epoch == 1


def test_a_validation_that_is_not_finite_stops_too(tmp_path, monkeypatch):
    scores = iter([1.0, math.inf])
    monkeypatch.setattr("slimbayes.training.trainer.evaluate", lambda *args: {"nll": next(scores)})
    with pytest.raises(NonFiniteLoss, match=r"validation NLL is not finite after step 8.*inf.*epoch-00001"):
        fit(small(), tmp_path, quiet=True)
    assert Run(tmp_path).checkpoints.index().epoch == 1


def test_numbers_that_are_looked_at_later_still_name_their_step(tmp_path, monkeypatch):
    """As on a GPU, where looking at every step would cost time."""
    monkeypatch.setattr("slimbayes.training.trainer.Meter", lambda patience: Meter(50))
    with pytest.raises(NonFiniteLoss, match="at step 6:.*epoch-00001"):
        fit(small(net=own_net(at=6), method="deterministic", log_every=50), tmp_path, quiet=True)


def test_a_rate_that_is_far_too_high(tmp_path):
    config = small(optimiser={"name": "sgd", "lr": 1e18})
    with pytest.raises(NonFiniteLoss, match="not finite"):
        fit(config, tmp_path, quiet=True)


@pytest.fixture
def never_trained(monkeypatch):
    def fail(self, *args):
        raise AssertionError("training has started")

    monkeypatch.setattr(Loop, "step", fail)


@pytest.mark.usefixtures("never_trained")
class TestBeforeTraining:
    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        for folder in (tmp_path / "file", tmp_path / "file" / "run"):
            with pytest.raises(OSError, match=f"Cannot write to {folder}: .*Give another folder"):
                fit(small(), folder, quiet=True)

    def test_a_folder_that_is_read_only(self, tmp_path, monkeypatch):
        def refuse(path, content):
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
        with pytest.raises(OSError, match=f"Cannot write to {tmp_path}: Read-only file system"):
            fit(small(), tmp_path, quiet=True)

    def test_a_disk_that_is_full(self, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")(10**9, 10**9 - 1000, 1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(OSError, match="has 0 MiB left, but three checkpoints.*Make room"):
            fit(small(), tmp_path, quiet=True)
        assert not Run(tmp_path).exists()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"data": "digit"}, "Did you mean 'digits'"),
            ({"data": {"name": "digits", "validations": 3}}, "Did you mean 'validation'"),
            ({"net": "mpl"}, "Did you mean 'mlp'"),
            ({"method": {"name": "rank1", "member": 2}}, "Did you mean 'members'"),
            ({"batch_size": 2, "accumulate": 3}, "batch_size"),
        ],
    )
    def test_what_does_not_exist_leaves_no_second_error_and_no_folder(self, tmp_path, changes, message):
        with pytest.raises(ValueError, match=message) as caught:
            fit(small(**changes), tmp_path / "run", quiet=True)
        assert caught.value.__context__ is None
        assert not (tmp_path / "run").exists()


def test_after_a_failure_the_next_run_chooses_its_precision_anew(tmp_path):
    with pytest.raises(ValueError, match="mpl"):
        fit(small(net="mpl", precision="bf16"), tmp_path / "a", quiet=True)
    with pytest.raises(NonFiniteLoss):
        fit(small(net=own_net(at=1), method="deterministic", precision="bf16"), tmp_path / "b", quiet=True)
    fit(small(epochs=1), tmp_path / "c", quiet=True)
    fit(small(epochs=1), tmp_path / "d", quiet=True)
    assert weights(tmp_path / "c", 1) == weights(tmp_path / "d", 1)


@pytest.mark.parametrize(
    "function", ["torch.save", "slimbayes._saving.save_file", "os.fsync", "os.rename", "os.replace"]
)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("writer failed")])
def test_a_checkpoint_that_cannot_be_written_keeps_the_one_before(tmp_path, monkeypatch, function, error):
    whole = fit(small(), tmp_path / "whole", quiet=True)
    step = Loop.step

    def then_fail(self, *args):
        if self.elbo.steps == 5:
            patch.setattr(function, raising)
        return step(self, *args)

    def raising(*args, **kwargs):
        raise error

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "step", then_fail)
        with pytest.raises(OSError, match=f"Cannot write .*epoch-00002: .*{error.args[-1]}.*epoch-00001"):
            fit(small(), folder, quiet=True)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["epoch-00001", "index.json"]
    fit(small(), folder, resume=True, quiet=True)
    assert weights(folder, 3) == weights(whole.folder, 3)


def test_metrics_on_a_full_disk(tmp_path):
    """What the disk refuses is one error, not two."""
    from slimbayes.training._progress import Progress

    progress = Progress(tmp_path / "metrics.jsonl", 4, quiet=True)
    progress.file.close()
    progress.file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(OSError, match="No space left"):
        progress.store(1, 4, {"loss": torch.pi}, None)
    progress.close()


@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json", "checkpoints"])
def test_files_of_others_are_not_written_over(tmp_path, name):
    (tmp_path / name).mkdir() if name == "checkpoints" else (tmp_path / name).write_text("mine")
    for resume in (False, True):
        with pytest.raises(FileExistsError, match=f"holds {name}, but no config.yaml.*Give another folder"):
            fit(small(epochs=1), tmp_path, resume=resume, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_others_keep_among_the_checkpoints_stays(tmp_path):
    with pytest.raises(ValueError, match="targets"):
        fit(small(likelihood="bernoulli", epochs=1), tmp_path / "run", quiet=True)  # ends before its first checkpoint
    kept = tmp_path / "elsewhere"
    (kept / "epoch-00001").mkdir(parents=True)
    folder = tmp_path / "run" / "checkpoints"
    (folder / "epoch-00008").mkdir(parents=True)
    (folder / "epoch-00009").symlink_to(kept)
    (folder / "resnet50").mkdir()
    (folder / "w.pt").write_text("mine")
    run = fit(small(epochs=1), tmp_path / "run", resume=True, quiet=True)
    assert run.result["epochs"] == 1
    assert sorted(os.listdir(folder)) == ["epoch-00001", "epoch-00009", "index.json", "resnet50", "w.pt"]
    assert os.listdir(kept) == ["epoch-00001"]
