"""Defects found in peers' released code (peers.md, section 2b), each as a test that it is not ours."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Cauchy, Normal, kl_divergence

import slimbayes as sb
from cases import NestedResNet


def closed_form_kl(model, prior_std):
    """Sum the textbook KL over every element of every factor."""
    total = 0.0
    for part in model.stochastic():
        sigma = torch.nn.functional.softplus(part.rho) + 1e-7
        ratio = (sigma.square() + (part.loc - 1).square()) / (2 * prior_std**2)
        total += ((prior_std / sigma).log() + ratio - 0.5).sum().item()
    return total


def test_conversion_of_a_nested_model_does_not_crash_and_reaches_every_level():
    model = sb.batch_ensemble(NestedResNet(), 4)
    kinds = {name: type(module).__name__ for name, module in model.net.named_modules()}
    assert kinds["stages.0.1.body.3"] == "Rank1Conv2d"
    assert kinds["heads.classes"] == "Rank1Linear"


def test_pretrained_weights_and_padding_mode_survive():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.ConvTranspose2d(4, 2, 2), nn.Flatten()
    )
    model = sb.batch_ensemble(net, 3, init="ones")
    assert torch.equal(model.net[0].weight, net[0].weight)
    assert torch.equal(model.net[1].weight, net[1].weight)
    x = torch.randn(5, 3, 6, 6)
    torch.testing.assert_close(model(x), net(x).expand(3, 5, -1))


@pytest.mark.parametrize("layer", [nn.Conv1d(2, 3, 1), nn.Conv3d(2, 3, 1), nn.ConvTranspose1d(2, 3, 1)])
def test_every_convolution_is_converted(layer):
    assert sb.batch_ensemble(layer, 2).summary().converted == [""]


@pytest.mark.parametrize("length", [3, 4, 12])
def test_three_dimensional_input_is_not_mixed_up_when_lengths_coincide(length):
    model = sb.rank1(nn.Linear(8, 5), members=3)
    x = torch.randn(4, length, 8)
    outputs = model(x, samples=0)
    for k in range(3):
        factor, layer = model.net.input_factor.loc[k], model.net
        weight = layer.weight * layer.output_factor.loc[k].unsqueeze(1) * factor
        torch.testing.assert_close(outputs[k], x @ weight.T + layer.bias[k])


def test_kl_is_summed_over_layers_and_elements():
    net = nn.Sequential(*(nn.Linear(100, 100) for _ in range(4)))
    model = sb.rank1(net, members=2, prior_std=0.3)
    assert model.kl().item() == pytest.approx(closed_form_kl(model, 0.3), rel=1e-5)


def test_kl_vanishes_when_posterior_and_prior_agree():
    model = sb.rank1(nn.Linear(20, 10), init="ones", prior_std=0.1)
    for part in model.stochastic():
        nn.init.constant_(part.rho, torch.tensor(0.1 - 1e-7).expm1().log().item())
    assert model.kl().item() == pytest.approx(0, abs=1e-4)


def test_prior_std_is_a_standard_deviation_and_not_a_variance():
    prior = sb.rank1(nn.Linear(2, 2), prior_std=0.25).net.input_factor.prior
    assert prior.distribution(torch.zeros(1)).variance.item() == pytest.approx(0.0625)


def test_kl_needs_no_forward_pass_and_does_not_change_with_one():
    model = sb.rank1(nn.Linear(8, 3))
    before = model.kl()
    model(torch.randn(2, 8), samples=3)
    assert torch.equal(before, model.kl())


def test_forward_in_bfloat16_and_deepcopy_after_it():
    model = sb.rank1(nn.Linear(8, 3)).bfloat16()
    outputs = model(torch.randn(2, 8, dtype=torch.bfloat16))
    assert outputs.dtype == torch.bfloat16
    assert copy.deepcopy(model).kl().isfinite()


def test_no_bias_means_no_bias():
    model = sb.rank1(nn.Linear(8, 3, bias=False))
    assert model.net.bias is None
    assert not [name for name, _ in model.named_parameters() if "bias" in name]


def test_nothing_is_stored_twice_and_there_are_no_buffers():
    model = sb.rank1(nn.Linear(50, 50), members=4)
    assert not list(model.buffers())
    assert sum(p.numel() for p in model.parameters()) == 50 * 50 + 4 * 50 + 2 * 4 * 100


def test_transformer_encoder_layer_converts_and_its_fused_path_does_not_bypass_the_factors():
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    model = sb.rank1(net, members=2).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        quiet = model(x, samples=0)
    torch.testing.assert_close(quiet, model(x, samples=0).detach())
    assert not torch.allclose(quiet[0], quiet[1], atol=1e-2)
    assert not torch.allclose(quiet[0], net(x), atol=1e-2)


@pytest.mark.parametrize("picked", ["linear1", "self_attn", "norm1"])
def test_fused_path_is_closed_also_when_one_part_alone_is_converted(picked):
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1).eval()
    model = sb.rank1(net, members=2, include=picked, member_norm=picked == "norm1").eval()
    if picked == "norm1":
        nn.init.constant_(model.net.layers[0].norm1.norms[1].weight, 2.0)
    x, mask = torch.randn(3, 5, 8), torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])
    with torch.no_grad():
        quiet = model(x, src_key_padding_mask=mask, samples=0)
    assert not torch.allclose(quiet[0, :, :3], quiet[1, :, :3], atol=1e-3)


def test_a_two_layer_lstm_keeps_its_layers_and_its_layout():
    net = nn.LSTM(4, 6, num_layers=2, batch_first=True)
    model = sb.rank1(net, members=2, init="ones", include=lambda name, module: True)
    layer = model.net
    assert (layer.num_layers, layer.batch_first) == (2, True)
    assert sorted(layer.factors) == [f"{k}_l{i}_{s}" for k in ("hh", "ih") for i in (0, 1) for s in ("input", "output")]


def test_the_root_itself_is_converted():
    model = sb.rank1(nn.Linear(8, 3))
    assert isinstance(model, sb.BayesianModel)
    assert isinstance(model.net, sb.layers.Rank1Linear)


def test_a_double_model_stays_double():
    model = sb.rank1(nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 4)).double())
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_cauchy_kl_is_the_closed_form_and_not_a_noisy_estimate():
    model = sb.rank1(nn.Linear(8, 3), family="cauchy", prior_std=0.2)
    expected = sum(
        kl_divergence(Cauchy(f.loc, f.scale), Cauchy(torch.tensor(1.0), torch.tensor(0.2))).sum()
        for f in model.stochastic()
    )
    torch.testing.assert_close(model.kl(), expected)
    assert torch.equal(model.kl(), model.kl())


def test_draws_are_not_clipped_unless_asked():
    model = sb.rank1(nn.Linear(200, 1, bias=False), family="cauchy", dropout_rate=0.5, members=1)
    wild = model.draw(50)["input_factor"]
    assert wild.abs().max() > 10
    tame = sb.rank1(nn.Linear(200, 1), family="cauchy", dropout_rate=0.5, clip=10.0).draw(50)["input_factor"]
    assert tame.abs().max() == 10


def test_kl_over_members_can_be_the_mixture_bound():
    model = sb.rank1(nn.Linear(8, 3), members=4)
    q = [Normal(f.loc, f.scale) for f in model.stochastic()]
    each = sum(kl_divergence(one, Normal(1.0, 0.1)).sum(1) for one in q)
    torch.testing.assert_close(model.kl("sum"), each.sum())
    torch.testing.assert_close(model.kl("mean"), each.mean())


def test_factors_do_not_start_hundreds_of_nats_away_by_default():
    model = sb.rank1(nn.Linear(2000, 2000, bias=False), members=1)
    signs = sb.rank1(nn.Linear(2000, 2000, bias=False), members=1, init="sign")
    assert model.kl().item() / 4000 == pytest.approx(13.2, rel=0.05)
    assert signs.kl().item() / 4000 == pytest.approx(100.7, rel=0.05)


def test_members_keep_their_rows_in_training_and_in_evaluation():
    """The classic slip: `repeat_interleave` in one place and `cat` in another."""
    model = sb.batch_ensemble(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), 3)
    x = torch.randn(5, 4)
    for mode in (True, False):
        model.train(mode)
        for k in range(3):
            torch.testing.assert_close(model(x)[k], model.member(k)(x))
