"""Networks for tables against their formulas."""

import numpy as np
import pytest
import torch

import slimbayes as sb
from slimbayes.nets import Periodic, PiecewiseLinear, ResidualBlock, TableMLP


def test_piecewise_linear_equals_the_formula():
    edges = torch.tensor([[0.0, 1.0, 3.0, 3.5], [-2.0, -1.0, 0.0, 4.0]])
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)) * 3
    found = PiecewiseLinear(edges)(x)
    for column in range(2):
        b = edges[column].tolist()
        for row in range(50):
            value = x[row, column].item()
            for t in range(1, 4):
                if value < b[t - 1] and t > 1:
                    expected = 0.0
                elif value >= b[t] and t < 3:
                    expected = 1.0
                else:
                    expected = (value - b[t - 1]) / (b[t] - b[t - 1])
                assert found[row, column, t - 1].item() == pytest.approx(expected, abs=1e-5)


def test_equal_edges_make_steps_and_one_bin_is_the_number():
    steps = PiecewiseLinear(torch.tensor([[0.0, 1.0, 1.0, 2.0]]))(torch.tensor([[0.9], [1.0], [1.5]]))
    assert steps[:, 0, 1].tolist() == [0.0, 1.0, 1.0]
    assert PiecewiseLinear(torch.tensor([[0.0, 2.0]]))(torch.tensor([[-1.0], [5.0]])).flatten().tolist() == [-0.5, 2.5]


def test_quantile_edges_hold_equally_many():
    x = torch.randn(1000, 2)
    edges = PiecewiseLinear.quantile_edges(x, 5)
    counts = np.histogram(x[:, 0], edges[0])[0]
    assert counts.min() >= 199
    with pytest.raises(ValueError, match="rise"):
        PiecewiseLinear(torch.tensor([[1.0, 0.0]]))


def test_periodic_equals_the_formula():
    torch.manual_seed(0)
    net, x = Periodic(3, features=4, frequencies=5, scale=0.5), torch.randn(7, 3)
    angles = 2 * np.pi * x[:, 1:2] * net.frequencies[1]
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    torch.testing.assert_close(net(x)[:, 1], (waves @ net.weight[1] + net.bias[1]).relu())


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("embedding", [None, Periodic(3, 4), PiecewiseLinear(torch.linspace(0, 1, 5).expand(3, 5))])
def test_members_equal_the_model(residual, embedding):
    net = TableMLP(3, 2, 2, width=8, depth=3, residual=residual, embedding=embedding, apart=True)
    model = sb.batch_ensemble(net, members=5, include=["stem", "head*"], factors="input", init="sign").eval()
    x = torch.randn(6, 5)
    expected = torch.stack([model.member(k)(x) for k in range(5)])
    torch.testing.assert_close(model(x), expected)
    assert model.summary().converted == ["stem", "head.0", "head.1"]


def test_a_residual_block_without_weights_is_the_identity():
    block, x = ResidualBlock(4), torch.randn(3, 4)
    torch.nn.init.zeros_(block.second.weight)
    torch.nn.init.zeros_(block.second.bias)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"numbers": 0, "others": 0}, "one in all"), ({"width": 0}, "`width`"), ({"dropout": 1.0}, "`dropout`")],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        TableMLP(**{"numbers": 2, "others": 1, "outputs": 1, **options})
