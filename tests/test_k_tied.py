"""sb.k_tied: exact parameter counts of the paper, what is tied and what is not, storage, and its training step."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributions import Normal, kl_divergence

import slimbayes as sb
from cases import NestedResNet, Tied
from slimbayes.layers import FullScale, TiedScale

F64 = torch.float64
ESTIMATORS = ("reparameterization", "local", "flipout")

# ---------------------------------------------------------------------- counts of Figure 6 and Table 5

#: The network, the options of both methods, those of k-tied alone, and the counts of mean-field and 1-, 2- and 3-tied.
PAPER = {
    "MLP": (lambda: sb.nets.MLP(784, [400, 400], 10), {}, {}, (956_820, 481_614, 484_008, 486_402)),
    "LeNet": (sb.nets.LeNet, {}, {"untied": nn.Conv2d}, (4_405_320, 2_262_188, 2_267_408, 2_272_628)),
    "LSTM": (
        sb.nets.SequenceClassifier,
        {"include": "lstm", "bayesian_bias": False},
        {},
        (2_822_785, 2_692_993, 2_694_273, 2_695_553),
    ),
    "ResNet-18": (sb.nets.ResNet4, {"bayesian_bias": False}, {}, (9_814_026, 4_929_711, 4_946_964, 4_964_217)),
}


@pytest.mark.parametrize(("build", "options", "tied", "expected"), PAPER.values(), ids=PAPER)
def test_parameter_counts_of_the_paper(build, options, tied, expected):
    with torch.device("meta"):
        models = [sb.mean_field(build(), **options), *(sb.k_tied(build(), k, **options, **tied) for k in (1, 2, 3))]
    assert tuple(sb.count_parameters(model, running_statistics=True) for model in models) == expected


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    ("layer", "rows", "columns"),
    [
        (nn.Linear(20, 30, bias=False), 20, 30),
        (nn.Conv1d(4, 6, 5, bias=False), 4 * 5, 6),
        (nn.Conv2d(4, 6, (3, 2), bias=False), 4 * 3 * 2, 6),
        (nn.Conv2d(4, 6, 3, groups=2, bias=False), 2 * 3 * 3, 6),
        (nn.Conv3d(2, 3, 2, bias=False), 2 * 8, 3),
        (nn.ConvTranspose2d(4, 6, 3, bias=False), 4 * 9, 6),
        (nn.Embedding(50, 8), 8, 50),
        (nn.RNN(5, 7, bias=False), 5 + 7, 7 + 7),
        (nn.LSTM(5, 7, bias=False, proj_size=3), 5 + 3 + 7, 28 + 28 + 3),
        (nn.GRU(5, 7, bias=False), 5 + 7, 21 + 21),
    ],
)
def test_a_weight_has_k_times_rows_and_columns(layer, rows, columns, k):
    """Appendix D.3: all dimensions but that of the outputs are flattened."""
    model = sb.k_tied(layer, k)
    assert sum(p.numel() for p in model.added_parameters()) == k * (rows + columns)
    assert sb.count_parameters(model) == sb.count_parameters(layer) + k * (rows + columns)
    assert not list(model.buffers())
    state = model.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)


# ---------------------------------------------------------------------- what is tied


def kinds(model):
    return {part.name: type(part.spread) for part in model.stochastic()}


def test_biases_and_untied_layers_have_a_deviation_for_each_weight():
    model = sb.k_tied(NestedResNet(), 2, untied=[nn.Linear, "stem"])
    for name, kind in kinds(model).items():
        full = "bias" in name or name.startswith(("stem", "heads"))
        assert kind is (FullScale if full else TiedScale), name
    assert sorted(model.options["untied"]) == ["heads.classes", "stem"]
    assert all(part.spread.k == 2 for part in model.stochastic() if isinstance(part.spread, TiedScale))


@pytest.mark.parametrize(
    "untied", [nn.Conv2d, "stem", lambda name, module: isinstance(module, nn.Conv2d), ["stages", "stem"]]
)
def test_untied_takes_what_include_takes(untied):
    model = sb.k_tied(NestedResNet(), 1, untied=untied)
    assert kinds(model)["stem.weight_posterior"] is FullScale
    assert kinds(model)["heads.classes.weight_posterior"] is TiedScale


def test_untied_layers_are_mean_field_ones():
    """With every layer untied nothing of k is left."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    torch.manual_seed(2)
    tied = sb.k_tied(net, 3, untied=lambda name, module: True)
    torch.manual_seed(2)
    full = sb.mean_field(net)
    assert list(tied.state_dict()) == list(full.state_dict())
    assert torch.equal(tied.kl(), full.kl())
    x = torch.randn(5, 4)
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    assert torch.equal(tied(x, generator=seeds[0]), full(x, generator=seeds[1]))


@pytest.mark.parametrize("untied", [None, "decoder", "embed"])
def test_tied_weights_share_one_posterior(untied):
    """Whichever comes first decides: here the embedding."""
    model = sb.k_tied(Tied(), 2, untied=untied)
    assert isinstance(model.net.decoder.weight_posterior.spread, FullScale if untied == "embed" else TiedScale)
    assert model.net.embed.weight_posterior is model.net.decoder.weight_posterior
    assert len(list(model.stochastic())) == 3
    folded = model.member(0, sample=0)
    assert folded.embed.weight is folded.decoder.weight


@pytest.mark.parametrize("k", [1, 2, 4])
def test_sigma_has_rank_k(k):
    model = sb.k_tied(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 10)).double(), k, init_jitter=0.5)
    for part in model.stochastic():
        if "weight" in part.name:
            matrix = part.scale.flatten(1)
            assert torch.linalg.matrix_rank(matrix) == k
            assert matrix.median().item() == pytest.approx(0.01, rel=0.5)


# ---------------------------------------------------------------------- KL


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 3])
def test_kl_is_summed_over_weights_and_layers(k, count):
    net = nn.Sequential(*(nn.Linear(100, 100) for _ in range(count)))
    model = sb.k_tied(net, k, prior_std=0.2)
    expected = 0.0
    for part in model.stochastic():
        spread = part.spread
        if isinstance(spread, FullScale):
            sigma = spread.log_scale.double().exp()
        else:
            sigma = spread.log_v.double().exp() @ spread.log_u.double().exp().T
        expected += kl_divergence(Normal(part.mean.double(), sigma), Normal(0.0, 0.2)).sum().item()
    assert model.kl().item() == pytest.approx(expected, rel=1e-5)
    model(torch.randn(3, 100), samples=2)
    assert model.kl().item() == pytest.approx(expected, rel=1e-5)


def test_more_terms_come_nearer_to_the_best_mean_field_posterior():
    """Under a curvature 1 / t^2 of each weight the bound is sum 1/2 (sigma / t)^2 - log sigma, least at sigma = t."""
    target = torch.exp(0.7 * torch.randn(4, 6, dtype=F64))
    least = (0.5 - target.log()).sum().item()
    reached = {}
    for k in (1, 2, 4):
        scale = sb.k_tied(nn.Linear(6, 4, dtype=F64), k, init_std=1.0).net.weight_posterior.spread
        optimiser = torch.optim.LBFGS(
            scale.parameters(), max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=0
        )

        def closure(scale=scale, optimiser=optimiser):
            optimiser.zero_grad()
            sigma = scale.values()
            loss = (0.5 * (sigma / target).square() - sigma.log()).sum()
            loss.backward()
            return loss

        optimiser.step(closure)
        reached[k] = closure().item()
    assert reached[4] == pytest.approx(least, abs=1e-4)
    assert reached[1] > reached[2] > least
    assert reached[1] > least + 0.1


# ---------------------------------------------------------------------- storage


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(30, 30) for name in ("a*", "ab", "a[b]", "spread", "b c")})

    def forward(self, x):
        for part in self.parts.values():
            x = part(x).tanh()
        return x


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("freeze_base", [False, True])
def test_untied_layers_with_odd_names_are_saved_and_loaded(estimator, freeze_base, tmp_path):
    net = Odd()
    model = sb.k_tied(
        net,
        np.int64(2),
        estimator=estimator,
        untied=lambda name, module: name == "parts.a*",
        exclude=lambda name, module: name == "parts.ab",
        max_std=0.2,
        freeze_base=freeze_base,
    )
    model.save_pretrained(tmp_path)
    options = json.loads((tmp_path / "config.json").read_text())["options"]
    assert (options["k"], options["untied"]) == (2, ["parts.a*"])
    loaded = sb.load(tmp_path, net if freeze_base else Odd())
    assert (loaded.method, loaded.options) == ("k_tied", model.options)
    assert kinds(loaded) == kinds(model)
    x = torch.randn(4, 30)
    outputs = [m(x, samples=2, generator=torch.Generator().manual_seed(1)) for m in (model, loaded)]
    assert torch.equal(*outputs)
    assert torch.equal(loaded.kl(), model.kl())
    stored = sum(value.numel() for value in load_file(tmp_path / "model.safetensors").values())
    # Three tied layers, one with a deviation for each weight, and the biases of all four.
    added = 3 * 2 * 60 + 900 + 4 * 30
    assert stored == added + (0 if freeze_base else sb.count_parameters(net))
    assert (tmp_path / "model.safetensors").stat().st_size < 4 * stored + 4000


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_loss_of_a_training_step_is_that_of_the_materialised_model(k, estimator):
    """The mean-field model with sigma = U V^T written out has the same draws, KL and gradients of the means."""
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    tied, full = sb.k_tied(net, k, estimator=estimator, init_std=0.2), sb.mean_field(net, estimator=estimator)
    with torch.no_grad():
        for ours, theirs in zip(tied.stochastic(), full.stochastic(), strict=True):
            spread = ours.spread
            tiedness = isinstance(spread, TiedScale)
            log = (spread.log_v.exp() @ spread.log_u.exp().T).log() if tiedness else spread.log_scale
            theirs.spread.log_scale.copy_(log)
    x, y = torch.randn(10, 6, dtype=F64), torch.randint(3, (10,))
    losses, gradients = [], []
    for model in (tied, full):
        elbo = sb.ELBO(model, num_data=100)
        loss = elbo(model(x, samples=3, generator=torch.Generator().manual_seed(1)), y)
        loss.backward()
        losses.append(loss.item())
        gradients.append([p.grad for part in model.stochastic() for p in part.own_means()])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_param_groups_give_the_log_factors_their_own_rate():
    model = sb.k_tied(nn.Linear(4, 3), 2)
    means, deviations = model.param_groups(lr=0.1, weight_decay=1.0, factor_lr=0.3)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in means["params"]] == ["net.weight", "net.bias"]
    log_factors = ["weight_posterior.spread.log_u", "weight_posterior.spread.log_v", "bias_posterior.spread.log_scale"]
    assert [names[id(p)] for p in deviations["params"]] == [f"net.{name}" for name in log_factors]
    assert (means["lr"], deviations["lr"]) == (0.1, 0.3)
    assert means["weight_decay"] == deviations["weight_decay"] == 0.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("k", [1, 3])
def test_an_upper_bound_holds_throughout_training(estimator, k):
    model = sb.k_tied(nn.Linear(4, 3), k, estimator=estimator, max_std=0.05, prior_std=1.0)
    elbo = sb.ELBO(model, num_data=10)
    optimiser = torch.optim.Adam(model.param_groups(lr=0.1))
    for _ in range(60):
        optimiser.zero_grad()
        elbo(model(torch.randn(10, 4)), torch.randint(3, (10,))).backward()
        optimiser.step()
    scale = model.net.weight_posterior.scale
    assert scale.max().item() <= 0.05 * (1 + 1e-6)
    # The prior draws u and v to their own bounds, where sigma is at its.
    assert scale.min().item() == pytest.approx(0.05, rel=1e-4)
    assert model.net.weight_posterior.spread.u.max().item() == pytest.approx(math.sqrt(0.05 / k), rel=1e-6)


@pytest.mark.parametrize("k", [9, 10**9])
def test_more_terms_than_any_weight_has_rank_are_refused(k: int) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with pytest.raises(ValueError, match=r"`k` to be at most 8, but got .*16 x 8.*Use a smaller k"):
        sb.k_tied(net, k=k)
    assert sb.k_tied(net, k=8).members == 1
    assert sb.k_tied(nn.Linear(1, 1)).members == 1  # the default is for every network
