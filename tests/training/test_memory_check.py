"""What a run needs is said before it begins, and refused if there is less."""

import re

import pytest
import torch
from torch import nn
from training_runs import small

import slimbayes as sb
from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.training import Run, fit, memory
from slimbayes.training.config import TrainConfig
from slimbayes.training.memory import expected_memory, free_memory


def data(rows=64, width=1000):
    examples = Examples((torch.zeros(rows, width),), torch.zeros(rows, dtype=torch.long))
    return DataSet("toy", examples, None, None, Task("categorical", 10, (width,)))


@pytest.mark.parametrize(("optimiser", "copies"), [("adam", 4), ("sgd", 3)])
def test_weights_gradients_and_moments_are_counted(optimiser, copies):
    model = sb.deterministic(nn.Linear(1000, 500))
    config = TrainConfig(data="digits", net="mlp", optimiser=optimiser)
    assert expected_memory(config, model, data()).weights == copies * 4 * 500 * 1001


@pytest.mark.parametrize(("members", "accumulate"), [(1, 1), (4, 1), (4, 2)])
def test_activations_are_those_that_the_backward_pass_needs(members, accumulate):
    """Of relu(x W + b) W' the input and the rectified outputs: 1000 and 500 numbers a row; the rest is small."""
    nets = [nn.Sequential(nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 2)) for _ in range(members)]
    model = sb.deep_ensemble(nets)
    config = TrainConfig(data="digits", net="mlp", batch_size=64, accumulate=accumulate)
    inputs = 4 * 64 // accumulate * 1000
    hidden = 4 * 64 // accumulate * members * 500
    found = expected_memory(config, model, data()).activations
    assert hidden <= found <= 1.2 * (members * inputs + hidden)


def test_what_is_needed_for_a_while_counts(tmp_path, monkeypatch):
    """Before, a run that kept 16.9 GiB began where 17.3 GiB were free, and was killed."""
    monkeypatch.setattr(memory, "expected_memory", lambda *_: memory.Memory(2**30, 15 * 2**30))
    monkeypatch.setattr(memory, "free_memory", lambda device: int(17.6 * 2**30))
    with pytest.raises(
        ValueError, match=r"need 18\.4 GiB of memory .*1\.0 GiB.*15\.0 GiB, temporary 2\.4 GiB.*17\.6 GiB"
    ):
        fit(small(epochs=1), tmp_path, quiet=True)


def test_nothing_is_changed_by_looking():
    model = sb.rank1(nn.Sequential(nn.Linear(1000, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)), members=2).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    expected_memory(TrainConfig(data="digits", net="mlp"), model, data())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


def test_a_run_says_what_it_needs_and_refuses_what_is_not_there(tmp_path, capsys, monkeypatch):
    fit(small(epochs=1), tmp_path / "a")
    line = next(line for line in capsys.readouterr().err.splitlines() if "expected memory" in line)
    assert re.match(r"2,136 parameters; expected memory \d+ KiB \(weights .* activations .*\)", line)
    monkeypatch.setattr(memory, "free_memory", lambda device: 20_000)
    with pytest.raises(ValueError, match=r"expected to need .*Use a smaller network.*--ignore-memory") as caught:
        fit(small(epochs=1), tmp_path / "b", quiet=True)
    assert "(1, 8, 8)" in str(caught.value)
    assert not Run(tmp_path / "b").exists()
    monkeypatch.setenv("SLIMBAYES_IGNORE_MEMORY", "1")
    assert fit(small(epochs=1), tmp_path / "b", quiet=True).result["epochs"] == 1


def test_a_network_that_does_not_fit_is_not_even_built(tmp_path):
    config = small(net={"name": "mlp", "hidden": [10**10]})
    with pytest.raises(ValueError, match="parameters before any method.*but .* are free"):
        fit(config, tmp_path, quiet=True)


def test_limits_of_control_groups_count(tmp_path):
    own = tmp_path / "cgroup"
    for folder, most, used in (("", "max", 5), ("user", 1000, 700), ("user/job", 5000, 600)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "memory.max").write_text(f"{most}\n")
        (tmp_path / folder / "memory.current").write_text(f"{used}\n")
        (tmp_path / folder / "memory.stat").write_text("anon 7\ninactive_file 50\n")
    own.write_text("0::/user/job\n")
    assert memory._of_groups(tmp_path, own) == 350  # of the group above: 1000 - 700 + 50
    old = tmp_path / "memory" / "job"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("900")
    (old / "memory.usage_in_bytes").write_text("800")
    (old / "memory.stat").write_text("total_inactive_file 20\n")
    own.write_text("5:cpu:/\n4:memory:/job\n")
    assert memory._of_groups(tmp_path, own) == 120
    assert memory._of_groups(tmp_path, tmp_path / "none") is None
    assert free_memory(torch.device("cpu")) is None or free_memory(torch.device("cpu")) > 0
