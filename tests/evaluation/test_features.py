"""Features of every method and network, against its members as plain networks, one by one."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from cases import BATCH, METHODS, build
from slimbayes.evaluation._features import features_of

#: The last layer of each network of the table.
LAST = {
    "mlp_3d": lambda net: net[-1],
    "resnet": lambda net: net.heads["classes"],
    "lstm": lambda net: net.head,
    "transformer": lambda net: net.head,
    "tied": lambda net: net.decoder,
}


def of_plain(net: nn.Module, last: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the input of a layer, by replacing it with one that remembers."""
    seen = []
    hook = last.register_forward_pre_hook(lambda layer, args: seen.append(args[0]))
    with torch.no_grad():
        net.eval()(x)
    hook.remove()
    return seen[-1].flatten(1, -2).mean(1) if seen[-1].dim() > 2 else seen[-1]


#: Every method on one network, and every network with one method of each kind.
KINDS = ("rank1", "deep_ensemble", "mean_field", "mc_dropout")
CASES = [(method, network) for method in METHODS for network in LAST if network == "resnet" or method in KINDS]


@pytest.mark.parametrize(("method", "network"), CASES)
def test_members_one_by_one_have_the_same_features(method, network):
    model, x = build(method, network)
    found = features_of(model, x)
    members = [model.member(k) for k in range(model.members)]
    expected = torch.cat([of_plain(member, LAST[network](member), x) for member in members], 1)
    assert found.shape == expected.shape == (BATCH, expected.shape[1])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_modes_and_hooks_are_left_as_they_were():
    model = sb.mc_dropout(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))).train()
    features_of(model, torch.randn(3, 4))
    assert model.training
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.net.modules())


def test_convolutions_that_decide_are_averaged_over_the_plane():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model, x = sb.batch_ensemble(net, members=2), torch.randn(3, 1, 6, 6)
    expected = torch.cat([model.member(k)[:2](x).mean((2, 3)) for k in range(2)], 1)
    torch.testing.assert_close(features_of(model, x), expected.detach())


class Alone(nn.Module):
    """Looks at each example by itself, and so at no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return torch.stack([self.layer(one) for one in x])


@pytest.mark.parametrize("net", [nn.LayerNorm(4), Alone()], ids=["no such layer", "no rows"])
def test_otherwise_the_inputs_are_the_features(net):
    x = torch.randn(3, 4)
    torch.testing.assert_close(features_of(sb.deterministic(net), x), x)
