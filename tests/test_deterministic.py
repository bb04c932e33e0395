"""A network as it is, under the protocol of all methods."""

import pytest
import torch
from torch import nn

import slimbayes as sb


def test_it_computes_what_the_network_computes(tmp_path):
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    model = sb.deterministic(net).eval()
    x = torch.randn(4, 3)
    net.eval()
    torch.testing.assert_close(model(x), net(x).unsqueeze(0), rtol=0, atol=0)
    assert model.kl() == 0
    assert model(x, samples=3).shape == (3, 4, 2)
    assert model.net is not net
    torch.testing.assert_close(model.member(0)(x), net(x), rtol=0, atol=0)
    assert sb.count_parameters(model) == sb.count_parameters(net)
    assert "point estimate" in str(model.summary())
    model.save_pretrained(tmp_path)
    other = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    torch.testing.assert_close(sb.load(tmp_path, other).eval()(x), model(x), rtol=0, atol=0)


def test_it_trains_like_the_network():
    torch.manual_seed(1)
    net = nn.Linear(3, 2)
    model = sb.deterministic(net)
    x, y = torch.randn(8, 3), torch.randint(2, (8,))
    elbo = sb.ELBO(model, num_data=8)
    elbo(model(x), y).backward()
    nn.functional.cross_entropy(net(x), y).backward()
    torch.testing.assert_close(model.net.weight.grad, net.weight.grad)


def test_weight_decay_is_on_everything():
    (group,) = sb.deterministic(nn.Linear(3, 2)).param_groups(lr=0.1, weight_decay=0.2)
    assert (len(group["params"]), group["lr"], group["weight_decay"]) == (2, 0.1, 0.2)


def test_only_networks():
    with pytest.raises(TypeError, match=r"`net`.*str"):
        sb.deterministic("net")


def test_prediction_with_shared_draws():
    model = sb.deterministic(nn.Linear(3, 2)).eval()
    x = torch.randn(4, 3)
    p = model.predict(x, samples=2, noise="shared", likelihood="categorical")
    torch.testing.assert_close(p.draws, model.net(x).expand(2, 4, 2), rtol=0, atol=0)
