"""Narrow networks that together have the parameters of a wide one."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.data.dataset import Task
from slimbayes.training.config import Net
from slimbayes.training.networks import NETWORKS, WIDTHS, build_network

IMAGES = Task("categorical", 100, (3, 32, 32))


def count(net):
    return sb.count_parameters(net, running_statistics=True)


def test_four_wide_resnets_of_the_paper():
    """The rank-1 paper's tables say 36.68M for CIFAR-10 and 100; it is the number of CIFAR-100."""
    assert sb.nets.matched(lambda width: sb.nets.WideResNet(28, width, classes=100), 10, 4) == 5
    with torch.device("meta"):
        net = build_network(Net(name="wide_resnet", depth=28, width=10, share=4), IMAGES)
        assert net.head.in_features == 64 * 5
        assert 4 * count(net) == 36_682_064
        assert count(sb.deep_ensemble([net] * 4)) == 36_682_064
        assert count(build_network(Net(name="wide_resnet"), IMAGES)) == 36_554_836
        ten = build_network(Net(name="wide_resnet", share=4), Task("categorical", 10, (3, 32, 32)))
        assert 4 * count(ten) == 36_566_504


@pytest.mark.parametrize("members", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_it_is_the_nearest_of_all_widths(width, members):
    def build(width):
        return nn.Sequential(nn.Linear(9, width), nn.BatchNorm1d(width), nn.Linear(width, width), nn.Linear(width, 3))

    wanted = count(build(width))
    totals = {narrow: members * count(build(narrow)) for narrow in range(1, width + 1)}
    if totals[1] > wanted:
        with pytest.raises(ValueError, match=f"share {wanted:,} parameters, but got {members}: of width 1 they have"):
            sb.nets.matched(build, width, members)
        return
    best = min(abs(total - wanted) for total in totals.values())
    assert abs(totals[sb.nets.matched(build, width, members)] - wanted) == best


TASKS = {
    "mlp": (IMAGES, {"hidden": [300, 100]}),
    "lenet": (IMAGES, {}),
    "wide_resnet": (IMAGES, {"depth": 10, "width": 8}),
    "cifar_resnet": (IMAGES, {}),
    "resnet4": (IMAGES, {}),
    "resnet50": (IMAGES, {}),
    "lstm": (Task("bernoulli", 1, (80,), vocabulary=500), {}),
    "series": (Task("bernoulli", 1, (48, 5)), {"layers": 2}),
    "records": (Task("bernoulli", 1, (9,), vocabulary=60, context=3), {"hidden": 100}),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_network_of_the_configurations_can_share(name):
    task, options = TASKS[name]
    with torch.device("meta"):
        wide = count(build_network(Net(name=name, **options), task))
        narrow = count(build_network(Net(name=name, **options, share=4), task))
        assert count(build_network(Net(name=name, **options, share=1), task)) == wide
    # Whole widths of a residual network of width 8 are coarse: one more is a quarter more channels.
    assert 4 * narrow == pytest.approx(wide, rel=0.25 if name == "wide_resnet" else 0.05)


def test_every_network_is_listed():
    assert set(WIDTHS) == set(NETWORKS) == set(TASKS)


def test_proportions_stay_and_no_random_numbers_are_taken():
    torch.manual_seed(3)
    shared = build_network(Net(name="mlp", hidden=[300, 100], share=4), IMAGES)
    first, second = shared[1].out_features, shared[3].out_features
    assert first / second == pytest.approx(3, rel=0.02)
    torch.manual_seed(3)
    plain = build_network(Net(name="mlp", hidden=[first, second]), IMAGES)
    assert torch.equal(shared[1].weight, plain[1].weight)


@pytest.mark.parametrize(("share", "told"), [(0, "`net.share`"), (100_000, "Give fewer members")])
def test_what_cannot_be_shared(share, told):
    with pytest.raises(ValueError, match=told):
        build_network(Net(name="mlp", share=share), IMAGES)
