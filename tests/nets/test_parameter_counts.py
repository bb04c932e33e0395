"""Exact parameter counts of the papers' networks (reference-semantics.md, section 6.3)."""

import json
from pathlib import Path

import pytest
import torch

import slimbayes as sb
from reproductions import count_parameters as counts


def count(module):
    return sb.count_parameters(module, running_statistics=True)


@pytest.mark.parametrize(
    ("classes", "family", "expected"),
    [(10, "delta", 36_575_500), (10, "normal", 36_653_824), (100, "normal", 36_712_504)],
)
def test_wide_resnet_28_10(classes, family, expected):
    with torch.device("meta"):
        net = sb.nets.wide_resnet("28-10", classes)
        model = sb.rank1(net, members=4, family=family)
    if classes == 10:
        assert sb.count_parameters(net) == 36_479_194
        assert count(net) == 36_497_146
    assert count(model) == expected
    assert len(model.summary().converted) == 29


@pytest.mark.parametrize(
    ("members", "family", "expected"),
    [
        (4, "delta", 25_821_708),
        (4, "normal", 26_030_264),
        # The abstract's "0.4% for K = 10" is what one member adds; ten add ten times that.
        (10, "normal", 25_610_152 + 2 * 10 * 52_139 + 9 * 1000),
    ],
)
def test_resnet_50(members, family, expected):
    with torch.device("meta"):
        net = sb.nets.resnet50()
        model = sb.rank1(net, members=members, family=family)
    assert sb.count_parameters(net) == 25_557_032
    assert count(net) == 25_610_152
    assert count(model) == expected
    assert len(model.summary().converted) == 54


K_TIED = {  # mean-field, 1, 2 and 3-tied: reference-semantics.md, section 11
    "MLP, MNIST": (956_820, 481_614, 484_008, 486_402),
    "LeNet, CIFAR-100": (4_405_320, 2_262_188, 2_267_408, 2_272_628),
    "LSTM, IMDB": (2_822_785, 2_692_993, 2_694_273, 2_695_553),
    "ResNet-18, CIFAR-10": (9_814_026, 4_929_711, 4_946_964, 4_964_217),
}


def test_networks_of_the_k_tied_paper():
    rows = counts.count_k_tied()
    for name, expected in K_TIED.items():
        assert tuple(row["parameters"] for row in rows if row["network"] == name) == expected
    assert len(rows) == 16


def test_the_documents_say_what_was_counted():
    root = Path(__file__).parent.parent.parent
    stored = json.loads((root / "reproductions" / "results" / "parameter-counts.json").read_text())
    rows = stored["rows"]
    assert rows == counts.count()
    assert stored["k_tied"] == counts.count_k_tied()
    added = {
        row["members"]: row["added_percent"] for row in rows if row["network"][0] == "R" and row["family"] == "normal"
    }
    assert f"four members add {added[4]:.1f}% parameters" in " ".join((root / "README.md").read_text().split())
    reference = " ".join((root / "docs" / "reference.md").read_text().split())
    assert f"what one member adds ({added[1]}%); ten add {added[10]:.1f}%" in reference


def test_ten_members_on_resnet_50_add_four_percent():
    with torch.device("meta"):
        net = sb.nets.resnet50()
        ten, one = (count(sb.rank1(net, members=members)) / count(net) - 1 for members in (10, 1))
    assert round(100 * ten, 1) == 4.1
    assert round(100 * one, 2) == 0.41
