"""Models on disk."""

import hashlib
import json
import os
import pickle
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import slimbayes as sb
from slimbayes import _saving
from slimbayes.families import StudentT
from slimbayes.likelihoods import Likelihood
from slimbayes.methods.registry import method_names


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4, padding_idx=0)
        self.lstm = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


class Tied(nn.Module):
    """The decoder's weight is the embedding's, two layers are one, and one buffer is part of another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.again = self.middle
        self.decoder = nn.Linear(4, 9)
        self.decoder.weight = self.embed.weight
        table = torch.randn(6, 4)
        self.register_buffer("table", table)
        self.register_buffer("row", table[2])

    def forward(self, tokens):
        x = self.embed(tokens) + self.row + self.table.mean(0)
        return self.decoder(self.again(self.middle(x)))


def images() -> torch.Tensor:
    return torch.randn(5, 2, 6, 6)


def tokens() -> torch.Tensor:
    return torch.randint(9, (5, 7))


#: Network, its input, options of the conversion, likelihood.
CASES = {
    "mlp": (mlp, lambda: torch.randn(5, 3), {}, "categorical"),
    "conv": (ConvNet, images, {}, None),
    "conv, norms for members": (ConvNet, images, {"member_norm": True}, sb.Categorical(ignore_index=-1)),
    "conv, frozen": (ConvNet, images, {"freeze_base": True}, "categorical"),
    "lstm": (Tagger, tokens, {"factors": "input", "rank": 2}, "categorical"),
    "mean-field embedding": (Tagger, tokens, {"embedding": "mean_field", "embedding_prior_std": 0.3}, None),
    "mean-field embedding, frozen": (Tagger, tokens, {"embedding": "mean_field", "freeze_base": True}, None),
    "tied": (Tied, tokens, {}, "categorical"),
    "student-t": (mlp, lambda: torch.randn(5, 3), {"family": StudentT(df=5.5), "prior_family": "cauchy"}, None),
    "trainable prior": (mlp, lambda: torch.randn(5, 3), {"prior_scale": "trainable", "freeze_base": True}, None),
    "chosen layers": (mlp, lambda: torch.randn(5, 3), {"include": ["2"], "clip": 3.0}, sb.Gaussian()),
    "sequence first": (lambda: nn.GRU(3, 2), lambda: torch.randn(4, 5, 3), {"batch_dim": 1, "noise": "shared"}, None),
    "root": (lambda: nn.Linear(3, 1), lambda: torch.randn(5, 3), {"train_on": "split"}, sb.Gaussian("predicted")),
    "batch ensemble": (mlp, lambda: torch.randn(5, 3), {"family": "delta", "init": "sign"}, sb.Gaussian(0.3)),
}


def trained(name: str, dtype: torch.dtype = torch.float32) -> tuple[sb.BayesianModel, nn.Module]:
    """Return a model whose every free number has moved, and the base it was made from."""
    build, _, options, likelihood = CASES[name]
    net = build().to(dtype)
    model = sb.rank1(net, members=3, **options)
    if likelihood is not None:
        sb.ELBO(model, 10, likelihood)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        if not options.get("freeze_base"):
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.mul_(1.5)
    return model, net


def outputs(model: sb.BayesianModel, x: torch.Tensor) -> list[torch.Tensor]:
    return list(sb.batching.tensors(model.predict(x, samples=2, seed=4).draws))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loaded_model_predicts_the_same_numbers(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, net = trained(name, dtype)
    build, inputs, options, _ = CASES[name]
    x = inputs()
    x = x.to(dtype) if x.is_floating_point() else x
    model.save_pretrained(tmp_path / "some" / "folder")
    other = net if options.get("freeze_base") else build().to(dtype)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    loaded = sb.load(tmp_path / "some" / "folder", other)
    for found, expected in zip(outputs(loaded, x), outputs(model, x), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(loaded.kl(), model.kl())
    assert loaded.options == model.options
    assert (loaded.likelihood and loaded.likelihood.spec()) == (model.likelihood and model.likelihood.spec())
    assert {k: v.tolist() for k, v in loaded.state_dict().items()} == {
        k: v.tolist() for k, v in model.state_dict().items()
    }
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())


@pytest.mark.parametrize("name", CASES)
def test_files_hold_numbers_and_names_only(name: str, tmp_path: Path) -> None:
    model, _ = trained(name)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    weights = tmp_path / "model.safetensors"
    assert not zipfile.is_zipfile(weights)
    assert weights.read_bytes()[8:9] == b"{"  # safetensors: the header's length, then JSON
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["method"] == "rank1"
    assert config["options"]["members"] == 3

    def plain(value) -> bool:
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(item) for key, item in value.items())
        return (
            all(map(plain, value))
            if isinstance(value, list)
            else value is None or type(value) in (str, int, float, bool)
        )

    assert plain(config)


def test_loading_never_unpickles(tmp_path: Path, monkeypatch) -> None:
    model, _ = trained("mlp")
    model.save_pretrained(tmp_path)

    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    for module, function in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, function, refuse)
    assert torch.equal(sb.load(tmp_path, mlp()).net[0].weight, model.net[0].weight)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_tied_tensors_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model, _ = trained("tied")
    model.save_pretrained(tmp_path)
    kept = stored(tmp_path)
    assert sum(t.numel() for t in kept.values()) == sb.count_parameters(model) + model.net.table.numel() + 4
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["tied"]) | set(kept) == set(model.state_dict())
    assert not set(config["tied"]) & set(kept)
    loaded = sb.load(tmp_path, Tied())
    assert loaded.net.decoder.weight is loaded.net.embed.weight
    assert loaded.net.again is loaded.net.middle


def test_a_frozen_bases_file_holds_the_factors_alone(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    model = sb.rank1(net, members=4, freeze_base=True)
    sb.ELBO(model, 10, "gaussian")
    model.save_pretrained(tmp_path)
    kept = stored(tmp_path)
    # Two layers, an input and an output factor each, with a location and a rho; and the noise.
    factors = {
        f"net.{i}.{side}_factor.{what}" for i in (0, 2) for side in ("input", "output") for what in ("loc", "rho")
    }
    assert set(kept) == factors | {"likelihood.rho"}
    assert sum(t.numel() for t in kept.values()) == 4 * 2 * 2 * (256 + 512) + 1
    base_bytes = 4 * sb.count_parameters(net)
    assert (tmp_path / "model.safetensors").stat().st_size < base_bytes / 10


def test_a_frozen_base_must_be_the_same(tmp_path: Path) -> None:
    model, net = trained("conv, frozen")
    model.save_pretrained(tmp_path)
    for change in (lambda n: n.head.weight, lambda n: n.head.bias, lambda n: n.body[1].running_var):
        other = ConvNet()
        other.load_state_dict(net.state_dict())
        with torch.no_grad():
            change(other)[0] += 1e-3
        with pytest.raises(ValueError, match=r"`net`.*weights differ.*check_base=False"):
            sb.load(tmp_path, other)
        loaded = sb.load(tmp_path, other, check_base=False)
        assert torch.equal(loaded.net.head.input_factor.loc, model.net.head.input_factor.loc)
        assert torch.equal(loaded.net.head.weight, other.head.weight)


def test_learned_noise_is_stored_trained(tmp_path: Path) -> None:
    model = sb.rank1(nn.Linear(3, 1))
    sb.ELBO(model, 10, sb.Gaussian(initial=0.2))
    with torch.no_grad():
        model.likelihood.rho.fill_(0.7)
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, nn.Linear(3, 1))
    assert loaded.likelihood.rho.item() == pytest.approx(0.7)
    assert sb.ELBO(loaded, 10, "gaussian").likelihood.rho.item() == pytest.approx(0.7)


def test_plain_state_dict_with_map_location(tmp_path: Path) -> None:
    model, _ = trained("lstm")
    torch.save(model.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True, map_location="cpu")
    assert {
        t.device.type for t in torch.load(tmp_path / "state.pt", weights_only=True, map_location="meta").values()
    } == {"meta"}
    other = sb.rank1(Tagger(), members=3, factors="input", rank=2)
    sb.ELBO(other, 10)
    other.load_state_dict(state)
    x = tokens()
    assert torch.equal(outputs(other, x)[0], outputs(model, x)[0])


def test_load_to_a_device(tmp_path: Path) -> None:
    model = sb.rank1(nn.Linear(3, 1))
    sb.ELBO(model, 10, "gaussian")
    model.save_pretrained(tmp_path)
    assert {t.device.type for t in sb.load(tmp_path, nn.Linear(3, 1), device="cpu").state_dict().values()} == {"cpu"}


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("broken", ["weights", "config", "replace"])
def test_a_failed_write_leaves_the_old_model(broken: str, tmp_path: Path, monkeypatch) -> None:
    old, _ = trained("mlp")
    old.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    new, _ = trained("mlp")

    def fail(*args, **kwargs):
        if broken == "weights":
            Path(args[1]).write_bytes(b"half a file")
        raise OSError("disk full")

    place = {"weights": (_saving, "save_file"), "config": (Path, "write_text"), "replace": (os, "replace")}[broken]
    with monkeypatch.context() as patch:
        patch.setattr(*place, fail)
        with pytest.raises(OSError, match="disk full"):
            new.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert torch.equal(sb.load(tmp_path, mlp()).net[0].weight, old.net[0].weight)


def test_saving_again_replaces_the_old_model(tmp_path: Path) -> None:
    trained("conv")[0].save_pretrained(tmp_path)
    model, _ = trained("mlp")
    model.save_pretrained(tmp_path)
    assert torch.equal(sb.load(tmp_path, mlp()).net[0].weight, model.net[0].weight)


class Poisson(Likelihood):
    name = "poisson"

    def log_prob(self, outputs, targets):
        return torch.distributions.Poisson(outputs.exp()).log_prob(targets)

    def log_prob_of_mean(self, outputs, targets):
        return torch.distributions.Poisson(outputs.exp().mean(0)).log_prob(targets)


def test_a_likelihood_that_cannot_be_rebuilt_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = sb.rank1(nn.Linear(3, 1))
    sb.ELBO(model, 10, Poisson())
    with pytest.raises(ValueError, match=r"Poisson.*model\.likelihood = None"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    model.likelihood = None
    model.save_pretrained(tmp_path / "new")


def edit(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": None, **changes}))


def deeper() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))


LOADS = {
    "missing config": (lambda folder: (folder / "config.json").unlink(), mlp, ["config.json", "save_pretrained"]),
    "missing weights": (lambda folder: (folder / "model.safetensors").unlink(), mlp, ["model.safetensors"]),
    "newer format": (lambda folder: edit(folder, format=2), mlp, ["format 2", "reads format 1", "Update slimbayes"]),
    "unknown method": (
        lambda folder: edit(folder, method="rank9"),
        mlp,
        ["'rank9'", str(sorted(method_names())), "Update"],
    ),
    "unknown likelihood": (
        lambda folder: edit(folder, likelihood={"name": "beta"}),
        mlp,
        ["`likelihood`", "'beta'", "categorical"],
    ),
    "lacks a layer": (lambda folder: None, lambda: nn.Sequential(nn.Linear(3, 8)), ["`net`", "lacks 2", "as it was"]),
    "another width": (
        lambda folder: None,
        lambda: nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 2)),
        ["`net`", "net.0.bias", "(3, 8)", "(3, 9)"],
    ),
    "another depth": (lambda folder: None, deeper, ["`net`", "net.2.bias", "(3, 8)", "(3, 2)"]),
    "another class": (
        lambda folder: None,
        lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Bilinear(8, 8, 2)),
        ["2 (Bilinear)", "no converter"],
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_what_cannot_be_loaded_is_named(name: str, tmp_path: Path) -> None:
    spoil, net, words = LOADS[name]
    trained("mlp")[0].save_pretrained(tmp_path)
    spoil(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        sb.load(tmp_path, net())
    for word in words:
        assert word in str(error.value)


def test_missing_factors_of_a_frozen_base_are_noticed(tmp_path: Path) -> None:
    model, net = trained("conv, frozen")
    model.save_pretrained(tmp_path)
    edit(tmp_path, options={**model.options, "factors": "both"}, converted=["head", "body.0"], sha256=None)
    kept = stored(tmp_path)
    del kept["net.head.input_factor.loc"]
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"net\.head\.input_factor\.loc.*the file has none"):
        sb.load(tmp_path, net)


def test_folder_and_net_are_checked(tmp_path: Path) -> None:
    model, _ = trained("mlp")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"`folder`.*is a file"):
        model.save_pretrained(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match=r"config\.json.*nowhere"):
        sb.load(tmp_path / "nowhere", mlp())
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(TypeError, match=r"`net`.*Module.*str"):
        sb.load(tmp_path / "model", "resnet")


def test_both_files_have_the_same_permissions(tmp_path) -> None:
    sb.rank1(nn.Linear(3, 2)).save_pretrained(tmp_path)
    modes = {(tmp_path / name).stat().st_mode for name in ("config.json", "model.safetensors")}
    assert len(modes) == 1


def test_files_of_earlier_versions_still_load() -> None:
    """The stored files were written by version 0.1.0.dev0; never write them anew."""
    folder = Path(__file__).parent / "golden" / "format-1"
    net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2))
    model = sb.load(folder, net).eval()
    expected = torch.tensor(json.loads((folder / "expected.json").read_text())["outputs"])
    torch.testing.assert_close(model(torch.linspace(-1, 1, 16).view(2, 2, 4), samples=0), expected)
    assert model.net[0].input_factor.family == sb.families.StudentT(df=4.0)
    assert isinstance(model.likelihood, sb.Categorical)


def test_extra_state_is_refused_by_name(tmp_path):
    class Remembers(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ValueError, match=r"_extra_state.*buffer"):
        sb.deterministic(nn.Sequential(Remembers(2, 2))).save_pretrained(tmp_path / "model")


def test_a_flipped_bit_is_found_and_files_without_a_checksum_load(tmp_path: Path) -> None:
    model, net = trained("mlp")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    assert json.loads((tmp_path / "config.json").read_text())["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors' is damaged.*SHA-256"):
        sb.load(tmp_path, net)
    edit(tmp_path, sha256=None)
    sb.load(tmp_path, net)


def test_a_changed_option_is_found(tmp_path: Path) -> None:
    sb.rank1(nn.Linear(4, 3)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    assert '"prior_std": 0.1' in path.read_text()
    path.write_text(path.read_text().replace('"prior_std": 0.1', '"prior_std": 0.9'))
    with pytest.raises(ValueError, match=r"config\.json is damaged, or was changed by hand.*save the model again"):
        sb.load(tmp_path, nn.Linear(4, 3))


def test_numbers_of_another_kind_are_refused(tmp_path: Path) -> None:
    model = sb.rank1(nn.Linear(4, 3))
    model.save_pretrained(tmp_path)
    save_file({name: x.int() for name, x in stored(tmp_path).items()}, tmp_path / "model.safetensors")
    edit(tmp_path, sha256=None)
    with pytest.raises(ValueError, match="to be torch.float32.*the file has torch.int32.*Save the model again"):
        sb.load(tmp_path, nn.Linear(4, 3))


def log_laplace(outputs, targets):
    return torch.distributions.Laplace(outputs.squeeze(-1), 1.0).log_prob(targets)


def test_a_function_is_stored_by_its_name_and_asked_for_after_loading(tmp_path: Path) -> None:
    model, x, y = sb.rank1(nn.Linear(3, 1)), torch.randn(4, 3), torch.randn(4)
    sb.ELBO(model, 10, log_laplace)
    with pytest.warns(UserWarning, match="function, 'log_laplace', which no file can hold"):
        model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, nn.Linear(3, 1))
    p = loaded.predict(x, samples=0)
    with pytest.raises(ValueError, match=r"function, 'log_laplace'.*no class probabilities"):
        p.probs  # noqa: B018
    with pytest.raises(ValueError, match=r"no file holds.*likelihood=log_laplace"):
        p.log_likelihood(y)
    sb.ELBO(loaded, 10, log_laplace)
    found, expected = (each.predict(x, samples=0).log_likelihood(y) for each in (loaded, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("saved", "given"), [("float64", "float32"), ("float32", "float64"), ("float32", "bfloat16")])
def test_another_dtype_than_the_networks_is_said(saved: str, given: str, tmp_path: Path) -> None:
    model = sb.rank1(mlp().to(getattr(torch, saved)), members=2)
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=rf"stored in {saved}.* `net` is {given}.*net\.to\(torch\.{saved}\)"):
        loaded = sb.load(tmp_path, mlp().to(getattr(torch, given)))
    assert loaded.dtype == getattr(torch, given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sb.load(tmp_path, mlp().to(getattr(torch, saved))).dtype == getattr(torch, saved)
