"""ResNet-20 and its like: against their equations, their published size, and public weights."""

import pytest
import torch
import torch.nn.functional as F

import slimbayes as sb
from slimbayes.data import load_data
from slimbayes.data.folders import data_folder
from slimbayes.training.config import Net
from slimbayes.training.networks import build_network


def norm(state, name, x):
    names = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{name}.{one}"] for one in names))


def plain(state, x, blocks):
    """He et al. (2016), section 4.2, with zeros for new channels in the shortcut."""
    x = F.relu(norm(state, "bn1", F.conv2d(x, state["conv1.weight"], padding=1)))
    for stage in (1, 2, 3):
        for block in range(blocks):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = F.relu(norm(state, f"{name}.bn1", F.conv2d(x, state[f"{name}.conv1.weight"], None, stride, 1)))
            y = norm(state, f"{name}.bn2", F.conv2d(y, state[f"{name}.conv2.weight"], None, 1, 1))
            if stride == 2:
                half, zeros = F.max_pool2d(x, 1, 2), torch.zeros(len(y), y.shape[1] // 4, *y.shape[2:]).to(x)
                x = torch.cat([zeros, half, zeros], 1)
            x = F.relu(x + y)
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), state["linear.weight"], state["linear.bias"])


@pytest.mark.parametrize("depth", [8, 14])
def test_the_network_is_the_papers(depth):
    torch.manual_seed(0)
    net = sb.nets.CifarResNet(classes=3, depth=depth, width=4).double().eval()
    for name, buffer in net.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.uniform_(0.5, 1.5)
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert torch.allclose(net(x), plain(net.state_dict(), x, (depth - 2) // 6))


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_numbers_of_parameters_are_those_of_the_papers_table_6(depth, millions):
    with torch.device("meta"):
        net = sb.nets.CifarResNet(depth=depth)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.03)


@pytest.mark.parametrize("depth", [2, 21])
def test_other_depths_are_an_error(depth):
    with pytest.raises(ValueError, match=r"6n \+ 2"):
        sb.nets.CifarResNet(depth=depth)


@pytest.mark.slow
@pytest.mark.skipif(
    not all((data_folder() / name).exists() for name in ("pretrained", "cifar-10-batches-bin")), reason="needs data"
)
@pytest.mark.parametrize(("depth", "accuracy", "nll"), [(20, 0.9173, 0.3727), (56, 0.9339, 0.3458)])
def test_public_weights_reach_their_scores(depth, accuracy, nll):
    data = load_data("cifar10", validation=0, normalise="imagenet")
    config = Net(name="cifar_resnet", depth=depth, weights=f"pretrained:cifar10_resnet{depth}")
    net = build_network(config, data.task).eval()
    outputs, targets = [], []
    with torch.no_grad():
        for rows in torch.arange(10_000).split(500):
            inputs, some = data.test.fetch(rows)
            outputs.append(net(*data.preparation(*inputs)))
            targets.append(some)
    logits, truth = torch.cat(outputs), torch.cat(targets)
    assert (logits.argmax(1) == truth).float().mean().item() == pytest.approx(accuracy, abs=1e-4)
    assert F.cross_entropy(logits, truth).item() == pytest.approx(nll, abs=1e-4)
