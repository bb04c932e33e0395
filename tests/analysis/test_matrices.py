"""Posteriors as matrices, against plain NumPy on the layers' own tensors."""

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.analysis import posterior_matrices
from slimbayes.analysis.matrices import chosen_layer


def array(x):
    return x.detach().double().numpy()


def test_a_dense_layer_has_a_row_for_each_input():
    model = sb.mean_field(nn.Linear(5, 3))
    ((name, (mean, scale)),) = posterior_matrices(model).items()
    assert name == "weight"
    np.testing.assert_array_equal(mean, array(model.net.weight).T)
    log_scale = array(model.net.weight_posterior.spread.log_scale)
    np.testing.assert_allclose(scale, np.exp(log_scale).T, rtol=1e-6)


@pytest.mark.parametrize(
    "conv", [nn.Conv1d(6, 7, 3), nn.Conv2d(6, 7, (2, 3)), nn.Conv2d(6, 8, 3, groups=2), nn.Conv3d(2, 5, (3, 1, 2))]
)
@pytest.mark.parametrize("which", ["mean", "scale"])
def test_convolutions_are_flattened_as_in_appendix_d3(conv, which):
    model = sb.mean_field(conv)
    posterior = model.net.weight_posterior
    # TensorFlow's kernel is [*kernel, in, out], reshaped to [kernel * in, out].
    kernel = np.moveaxis(array(getattr(posterior, which)), (0, 1), (-1, -2))
    flat = kernel.reshape(-1, kernel.shape[-1])
    ours = getattr(posterior_matrices(model)["weight"], which)
    assert ours.shape == flat.shape
    np.testing.assert_array_equal(np.sort(ours, axis=0), np.sort(flat, axis=0))  # rows in another order
    np.testing.assert_allclose(
        np.linalg.svd(ours, compute_uv=False), np.linalg.svd(flat, compute_uv=False), rtol=1e-12, atol=1e-14
    )


def test_transposed_convolutions_have_their_outputs_on_the_second_axis():
    model = sb.mean_field(nn.ConvTranspose2d(3, 4, 2))
    mean = posterior_matrices(model)["weight"].mean
    weight = array(model.net.weight)
    np.testing.assert_array_equal(mean, np.stack([weight[:, output].ravel() for output in range(4)], axis=1))


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(2, 4, 3), nn.ConvTranspose1d(3, 4, 2)])
def test_k_tied_matrices_are_u_times_v(layer):
    model = sb.k_tied(layer, k=2)
    spread = model.net.weight_posterior.spread
    expected = np.exp(array(spread.log_u)) @ np.exp(array(spread.log_v)).T
    np.testing.assert_allclose(posterior_matrices(model)["weight"].scale, expected, rtol=1e-5)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4, padding_idx=2)
        self.lstm = nn.LSTM(4, 5, num_layers=2, proj_size=3)
        self.decoder = nn.Linear(3, 4)
        self.output = nn.Linear(4, 9, bias=False)
        self.output.weight = self.embed.weight


def test_names_of_recurrences_embeddings_and_tied_weights():
    model = sb.mean_field(Tagger())
    matrices = posterior_matrices(model)
    layers = ["ih_l0", "hh_l0", "hr_l0", "ih_l1", "hh_l1", "hr_l1"]
    assert list(matrices) == ["embed", *[f"lstm.weight_{layer}" for layer in layers], "decoder"]
    for layer in layers:
        expected = array(getattr(model.net.lstm, f"weight_{layer}")).T
        np.testing.assert_array_equal(matrices[f"lstm.weight_{layer}"].mean, expected)
    scale = matrices["embed"].scale
    assert scale.shape == (4, 9)
    assert (scale[:, 2] == 0).all()  # the padding token is not random
    assert (np.delete(scale, 2, axis=1) > 0).all()


def test_names_of_a_recurrence_alone():
    assert list(posterior_matrices(sb.mean_field(nn.GRU(2, 3)))) == ["weight_ih_l0", "weight_hh_l0"]


@pytest.mark.parametrize("rank", [1, 2])
def test_factors_have_a_row_for_each_member_and_rank(rank):
    model = sb.rank1(nn.Linear(5, 3), members=4, rank=rank)
    matrices = posterior_matrices(model)
    assert list(matrices) == ["input_factor", "output_factor"]
    factor = model.net.input_factor
    np.testing.assert_array_equal(matrices["input_factor"].mean, array(factor.loc).reshape(4 * rank, 5))
    scale = np.log1p(np.exp(array(factor.rho))) + 1e-7
    np.testing.assert_allclose(matrices["input_factor"].scale, scale.reshape(4 * rank, 5), rtol=1e-5)


def test_half_precision():
    model = sb.mean_field(nn.Linear(5, 3)).to(torch.bfloat16)
    mean, scale = posterior_matrices(model)["weight"]
    assert mean.dtype == scale.dtype == np.float64
    np.testing.assert_array_equal(mean, array(model.net.weight).T)


def test_a_model_without_weights_or_factors():
    model = sb.rank1(nn.BatchNorm1d(3), member_norm=True)
    with pytest.raises(ValueError, match=r"`model`.*rank1 model has none.*sb.mean_field"):
        posterior_matrices(model)


def test_the_layer_to_look_at():
    assert chosen_layer(["only"], None) == "only"
    assert chosen_layer(["first", "second"], "second") == "second"
    with pytest.raises(ValueError, match=r"`layer`.*'first', 'second'.*None"):
        chosen_layer(["first", "second"], None)
    with pytest.raises(ValueError, match=r"`layer`.*'frist'.*Did you mean 'first'"):
        chosen_layer(["first", "second"], "frist")
