"""Modules of a network, in torch's own order."""

import torch
from torch import nn

import slimbayes as sb
from slimbayes.layers.base import every_module


class Tree(nn.Module):
    """Children that are shared, absent, nested, and one that holds its parent's sibling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.nothing = None
        self.register_module("absent", None)
        self.inner = nn.ModuleDict({"again": self.first, "list": nn.ModuleList([nn.ReLU(), self.first, nn.Tanh()])})
        self.last = nn.Sequential(self.inner["list"], nn.Sequential(), nn.Linear(2, 1))


def assert_same_modules(network):
    found, expected = every_module(network), list(network.modules())
    assert len(found) == len(expected)
    assert all(one is other for one, other in zip(found, expected, strict=True))


def test_the_order_of_nested_shared_and_absent_children():
    assert_same_modules(Tree())


def test_modules_that_hold_each_other():
    outer, inner = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())
    outer.append(inner)
    inner.append(outer)
    assert_same_modules(outer)


def test_one_module_alone():
    assert_same_modules(nn.ReLU())


def test_a_converted_network_and_one_that_has_changed():
    model = sb.rank1(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3)), members=2)
    assert_same_modules(model)
    model.net.append(nn.TransformerEncoderLayer(4, 2))
    assert_same_modules(model)
    del model.net[1]
    assert_same_modules(torch.nn.Sequential(model, model.net))
