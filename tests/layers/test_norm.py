"""Member norms equal separate norms, one for each member."""

import copy

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.layers import MemberNorm

MEMBERS, ROWS = 3, 12

NORMS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (4,)),
    "BatchNorm1d_sequence": (lambda: nn.BatchNorm1d(4), (4, 5)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=0.3), (4, 5, 6)),
    "BatchNorm2d_cumulative": (lambda: nn.BatchNorm2d(4, momentum=None, affine=False), (4, 5, 6)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4, track_running_stats=False), (4, 2, 3, 2)),
    "LayerNorm": (lambda: nn.LayerNorm(6), (5, 6)),
    "LayerNorm_2d": (lambda: nn.LayerNorm(6), (6,)),
    "LayerNorm_two_axes": (lambda: nn.LayerNorm((5, 6)), (4, 5, 6)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (4, 5, 6)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True), (4, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (4, 5, 6)),
    "RMSNorm": (lambda: nn.RMSNorm(6), (5, 6)),
}
CASES = pytest.mark.parametrize(("make", "shape"), NORMS.values(), ids=NORMS)


def scattered(norm):
    """Give a norm affine parameters worth telling apart."""
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


@CASES
def test_member_norm_equals_separate_norms(make, shape):
    given = scattered(make())
    separate = [copy.deepcopy(given) for _ in range(MEMBERS)]
    layer = MemberNorm(given, MEMBERS)
    for mine, other in zip(layer.norms, separate, strict=True):
        scattered(other)
        mine.load_state_dict(other.state_dict())
    offsets = torch.arange(MEMBERS).repeat_interleave(ROWS // MEMBERS).view(-1, *[1] * len(shape))
    for step in range(3):
        for mode in (True, False) if step else (True,):
            layer.train(mode)
            x = torch.randn(ROWS, *shape) * (1 + offsets) + 10 * offsets
            parts = zip(separate, x.chunk(MEMBERS), strict=True)
            assert torch.equal(layer(x), torch.cat([norm.train(mode)(part) for norm, part in parts]))
    for mine, other in zip(layer.norms, separate, strict=True):
        assert mine.state_dict().keys() == other.state_dict().keys()
        for name, value in other.state_dict().items():
            assert torch.equal(mine.state_dict()[name], value), name


@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(6), lambda: nn.RMSNorm(6)])
@pytest.mark.parametrize("time", [5, ROWS])
def test_rows_on_the_second_axis(make, time):
    layer = MemberNorm(make(), MEMBERS)
    for norm in layer.norms:
        scattered(norm)
    layer.sampling.batch_dim = 1
    x = torch.randn(time, ROWS, 6)
    expected = torch.cat([norm(part) for norm, part in zip(layer.norms, x.chunk(MEMBERS, 1), strict=True)], 1)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(4),
        nn.SyncBatchNorm(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.LayerNorm((4, 5, 5)),
        nn.RMSNorm((4, 5, 5)),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_conversion_knows_every_norm(norm):
    model = sb.rank1(nn.Sequential(nn.Conv2d(3, 4, 3), norm), members=MEMBERS, member_norm=True)
    assert [type(part).__name__ for part in model.net] == ["Rank1Conv2d", "MemberNorm"]
    assert [type(part) for part in model.net[1].norms] == [type(norm)] * MEMBERS
    assert type(model.member(1)[1]) is type(norm)


def test_rows_that_cannot_be_dealt_raise():
    layer = MemberNorm(nn.BatchNorm1d(4), MEMBERS)
    with pytest.raises(ValueError, match=r"MemberNorm got 7 rows on axis 0.*\(7, 4\).*3 members"):
        layer(torch.randn(7, 4))
