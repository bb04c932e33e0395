"""Compiled train steps are the eager ones, compiled."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from benchmarks.steps import train_step
from benchmarks.suites import SUITES, compiled


def test_each_method_is_there_eager_and_compiled():
    names = [case.name for case in SUITES["compiled_mlp_512"].cases]
    assert names[0] == "plain"
    assert [f"{name} compiled" for name in names[:4]] == names[4:]


def test_what_is_wrapped_is_the_forward_pass_and_the_loss():
    net, x, y = nn.Linear(8, 3), torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])
    seen = []

    def wrap(loss):
        def run(x, y):
            seen.append(loss(x, y))
            return seen[-1]

        return run

    expected = nn.functional.cross_entropy(net(x), y)
    train_step(net, [(x, y)], wrap)()
    torch.testing.assert_close(seen, [expected])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_loss_is_the_eager_one():
    model = sb.batch_ensemble(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), members=2)
    elbo = sb.ELBO(model, num_data=100)
    x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])
    eager = elbo(model(x), y)
    expected = torch.autograd.grad(eager, list(model.parameters()), allow_unused=True)
    loss = compiled(lambda x, y: elbo(model(x), y))(x, y)
    torch.testing.assert_close(loss, eager)
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
