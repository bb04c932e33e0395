"""Growth: what is measured, and what is told of it."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import growth
from benchmarks.growth import AXES, Axis, Point, growth_points_table, growth_table, run_growth
from benchmarks.networks import BenchNetwork, dense_net

TINY = Point(members=2, width=8, depth=2, rows=8)
TINY_NETWORK = BenchNetwork("tiny", "tiny MLP", lambda: dense_net(4), (4,), 64)


def test_members_go_from_1_to_64_by_powers_of_two():
    for name in ("members", "split"):
        assert AXES[name].values == (1, 2, 4, 8, 16, 32, 64)
    assert {axis.vary for axis in AXES.values()} == {"members", "samples", "width", "depth", "rows", "steps"}
    assert all(np.diff(np.log2(axis.values)).tolist() == [1] * (len(axis.values) - 1) for axis in AXES.values())


def test_tiled_members_have_their_own_rows_and_split_ones_share_them():
    assert {point.examples for point in AXES["members"].points()} == {64}
    assert {(point.examples, point.rows) for point in AXES["split"].points()} == {(256, 256)}


@pytest.mark.parametrize(
    ("changes", "draws", "rows"),
    [({}, 2, 8), ({"samples": 3}, 6, 24), ({"split": True}, 1, 8), ({"steps": 5}, 2, 8), ({"members": 4}, 4, 8)],
)
def test_a_point_runs_as_many_rows_as_it_says(changes, draws, rows):
    point = Point(**{"members": 2, "width": 8, "depth": 2, "rows": 8} | changes)
    model, step = point.build()
    seen = []
    layer = model.net.head if point.steps else model.net[-1]
    layer.register_forward_hook(lambda module, args, output: seen.append(output.shape[0]))
    model.register_forward_hook(lambda module, args, output: seen.append(output.shape[0]))
    step()
    assert seen == [rows, draws]


def test_depth_and_width_are_those_of_the_network():
    model, _ = Point(width=8, depth=5, rows=8).build()
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == [(8, 8)] * 4 + [(10, 8)]


@pytest.fixture
def results(monkeypatch):
    """A run whose timings are given: proportional to the square of the width."""

    def measure(steps, rounds, *args, **kwargs):
        if "members=1" in steps:
            return {"members=1": np.full(rounds, 0.01), "members=32": np.linspace(0.011, 0.013, rounds)}
        return {name: np.full(rounds, 4 * 1e-3 * float(name) ** 2) for name in steps}

    monkeypatch.setattr(growth, "measure", measure)
    monkeypatch.setattr(growth, "calibrate", lambda step: 4)
    axis = Axis("width", "width", "width", (8, 16, 32), TINY)
    return run_growth([axis], rounds=3, splitting=[TINY_NETWORK])


def test_fits_are_those_of_the_timings(results):
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    width = results["axes"]["width"]
    assert [point["seconds"] for point in width["points"]] == pytest.approx([0.064, 0.256, 1.024])
    assert [point["repetitions"] for point in width["points"]] == [4, 4, 4]
    fit = width["fits"]["seconds"]["power_law"]
    assert (fit["slope"], fit["factor"]) == pytest.approx((2, 1e-3))
    assert fit["error"] == pytest.approx(0, abs=1e-9)
    assert all(point["activation_bytes"] > 0 for point in width["points"])


def test_splitting_is_held_against_its_target(results):
    one = results["splitting"]["tiny"]
    assert (one["ratio"], one["target"], one["met"], one["rows_per_member"]) == (pytest.approx(1.2), 1.2, True, 2)
    assert one["interval"] == pytest.approx([1.1, 1.3])


def test_tables(results):
    lines = growth_table(results, markdown=True).splitlines()
    assert lines[2].startswith("| width | 8, 32 | 2.00 ± 0.00 |")
    assert lines[-1] == "| tiny MLP | 2 | 10.00 | 1.200 | 1.150 to 1.250 | 1.100 to 1.300 | 1.2 | yes |"
    assert "3 interleaved rounds" in growth_table(results).splitlines()[-1]
    assert growth_points_table(results, markdown=True).splitlines()[2].startswith("| width | 8 | 64.00 | ")


def test_activation_memory_of_twice_the_rows_is_about_twice_as_much():
    # So many that rows share draws everywhere: where they begin to, memory grows less.
    axis = Axis("rows", "rows", "rows", (4096, 8192, 16384), TINY)
    results = run_growth([axis], rounds=1, splitting=[])
    # Beside the rows' activations there are a few arrays of the parameters' size.
    slope = results["axes"]["rows"]["fits"]["activation_bytes"]["power_law"]["slope"]
    assert 0.9 < slope < 1.1


def test_threads_and_generator_are_put_back_and_results_saved_on_the_way(monkeypatch):
    monkeypatch.setattr(growth, "calibrate", lambda step: 1)
    threads, state, saved, told = torch.get_num_threads(), torch.get_rng_state(), [], []
    axes = [Axis(name, name, "width", (4, 8, 16, 32), TINY) for name in "ab"]
    run_growth(
        axes,
        points=3,
        rounds=1,
        splitting=[TINY_NETWORK],
        threads=threads + 1,
        progress=lambda done, total: told.append((done, total)),
        save=lambda results: saved.append((len(results["axes"]), len(results["splitting"]))),
    )
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert saved == [(1, 0), (2, 0), (2, 1)]
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"axes": ["widht"]}, "`axes`.*'width'"), ({"points": 2}, "`points`.*3"), ({"splitting": ["mlp"]}, "`splitting`")],
)
def test_run_growth_says_what_is_wrong(options, words):
    with pytest.raises(ValueError, match=words):
        run_growth(**options)
