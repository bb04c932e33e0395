"""The price table: its networks, rows and targets, a run of it, and how it is shown."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from benchmarks import price, price_table, timing
from benchmarks.hot_spots import hot_spots
from benchmarks.interleaved import measure
from benchmarks.lstm import LSTM, LSTM_ROWS, LastOutput, plain_loop
from benchmarks.machine import accelerator, clock_of
from benchmarks.networks import NETWORKS, PLAIN_NETWORKS, BenchNetwork, conv_net, dense_net
from benchmarks.price import run_price
from benchmarks.price_rows import ROWS
from benchmarks.steps import NUM_DATA, train_step
from benchmarks.timing import Timed, time_cases

CPU = torch.device("cpu")
DENSE = BenchNetwork("dense", "MLP 8", partial(dense_net, 8), (8,), 16)
CONV = BenchNetwork("conv", "conv 2", partial(conv_net, 2), (3, 8, 8), 8, True)


@pytest.fixture(autouse=True)
def _short_timings(monkeypatch):
    monkeypatch.setattr(timing, "calibrate", lambda step, clock: 1)


@pytest.mark.parametrize(
    ("name", "rows", "shape", "parameters"),
    [
        # Convolutions 9 (3 W + W W + 2 W W + 4 W W + 8 W W + 16 W W), norms 2 (2 W + 4 W + 8 W), a head of 40 W + 10.
        ("conv_16", 128, (3, 32, 32), 9 * (3 * 16 + 31 * 16**2) + 28 * 16 + 40 * 16 + 10),
        ("conv_64", 64, (3, 32, 32), 9 * (3 * 64 + 31 * 64**2) + 28 * 64 + 40 * 64 + 10),
        ("mlp_512", 256, (512,), 2 * (512**2 + 512) + 5130),
        ("mlp_1024", 512, (1024,), 2 * (1024**2 + 1024) + 10250),
    ],
)
def test_the_networks_are_the_issues(name, rows, shape, parameters):
    network = NETWORKS[name]
    assert (network.rows, network.row_shape) == (rows, shape)
    assert sum(p.numel() for p in network.build().parameters()) == parameters


def test_convolutions_halve_the_image_between_stages_and_are_channels_last():
    network = NETWORKS["conv_16"]
    model = network.place(network.build())
    convolutions = [layer for layer in model if isinstance(layer, nn.Conv2d)]
    assert [layer.stride[0] for layer in convolutions] == [1, 1, 2, 1, 2, 1]
    assert all(layer.bias is None for layer in convolutions)
    assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in convolutions)
    assert network.inputs(2).is_contiguous(memory_format=torch.channels_last)
    assert model[:-3](network.inputs(2)).shape == (2, 64, 8, 8)
    assert NETWORKS["wrn_16_4"].build().head.in_features == 256
    assert NETWORKS["wrn_16_4"].rows == 32


def test_the_expected_ratios_are_the_issues():
    def row(name):
        return [ROWS[name].targets.get(network) for network in PLAIN_NETWORKS]

    assert row("batch_ensemble") == [1.14, 1.05, 1.21, 1.10, 1.06]
    assert row("rank1 per example") == [1.20, 1.06, 1.48, 1.30, 1.07]
    assert row("rank1 prediction") == [1.18, 1.05, 1.31, 1.09, 1.06]
    assert row("rank1 memory") == [1.25, 1.25, 1.7, 1.7, 1.25]
    assert ROWS["rank1 split"].targets == {"resnet_20_bf16": 1.2}


def test_a_network_decides_its_precision_and_threads(monkeypatch):
    seen, threads = [], torch.get_num_threads()
    two = BenchNetwork("two", "MLP 8", partial(dense_net, 8), (8,), 16, bfloat16=True, threads=threads + 1)

    def noted(model, *args, **kwargs):
        seen.append((torch.get_num_threads(), torch.is_autocast_enabled("cpu")))
        return forward(model, *args, **kwargs)

    forward = sb.BayesianModel.forward
    monkeypatch.setattr(sb.BayesianModel, "forward", noted)
    run_price([two], rounds=1, cases=["rank1 split", "rank1 prediction"], profile="none")
    assert set(seen) == {(threads + 1, True)}
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", ROWS)
def test_every_model_runs_on_as_many_rows_as_the_plain_network(name):
    row, seen = ROWS[name], []
    model, step = row.build(DENSE, CPU)
    layers = model.net if isinstance(model, sb.BayesianModel) else model
    layers[2].register_forward_hook(lambda module, args, output: seen.append(args[0].shape[0]))
    step()
    assert seen[-1] == DENSE.rows


def test_rows_have_what_their_names_say():
    options = {name: getattr(ROWS[name].build(DENSE, CPU)[0], "options", None) for name in ROWS}
    assert [name for name in ROWS if options[name] is None] == ["plain", "plain prediction", "plain memory"]
    assert options["batch_ensemble"]["members"] == 4
    rank1 = {name: (one["noise"], one["train_on"]) for name, one in options.items() if name.startswith("rank1")}
    assert {one["members"] for name, one in options.items() if name.startswith("rank1")} == {4}
    assert rank1 == {
        "rank1 shared": ("shared", "tile"),
        "rank1 per example": ("example", "tile"),
        "rank1 split": ("example", "split"),
        "rank1 prediction": ("example", "tile"),
        "rank1 shared prediction": ("shared", "tile"),
        "rank1 memory": ("example", "tile"),
    }
    tied = options["k_tied local"]
    assert (tied["k"], tied["prior_std"], tied["estimator"]) == (2, 0.3, "local")
    assert not ROWS["k_tied local"].applies(CONV)


def test_a_step_is_adam_on_the_cross_entropy_of_the_next_batch():
    net = nn.Linear(4, 3)
    batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])) for _ in range(2)]
    step = train_step(net, batches)
    for x, y in (*batches, batches[0]):
        bias, before = net.bias.detach().clone(), net(x).detach()
        step()
        gradient = (before.softmax(1) - nn.functional.one_hot(y, 3)).mean(0)
        torch.testing.assert_close(net.bias.grad, gradient)
        assert not torch.equal(net.bias, bias)


def test_a_bayesian_step_has_the_kl():
    model = sb.rank1(nn.Linear(4, 3), members=2, prior_std=0.3)
    factor = next(iter(model.layers())).input_factor
    location = factor.loc.detach().clone()
    train_step(model, [(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long))])()  # no input, so the KL's alone
    torch.testing.assert_close(factor.loc.grad, (location - 1) / 0.3**2 / NUM_DATA)


def test_our_loop_is_torchs_lstm():
    torch.manual_seed(0)
    net = LastOutput(6)
    x = torch.randn(3, 7, 6)
    expected = net(x)
    gradient = torch.autograd.grad(expected.sum(), net.lstm.weight_hh_l0)[0]
    output = plain_loop(net)(x)
    assert type(net.lstm).forward is not nn.LSTM.forward
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(torch.autograd.grad(output.sum(), net.lstm.weight_hh_l0)[0], gradient)
    assert (LSTM.row_shape, LSTM.rows, LSTM.build().lstm.hidden_size) == ((80, 128), 32, 128)


def test_rounds_end_when_the_time_is_up():
    now = [0.0]

    def step():
        now[0] += 1.0

    def clock():
        return now[0]

    def rounds(**options):
        return len(measure({"a": step}, warmup=0, clock=clock, **options)["a"])

    assert rounds(rounds=20, seconds=7.5) == 8
    assert rounds(rounds=20, seconds=1.0) == 5
    assert rounds(rounds=3, seconds=1.0) == 3
    assert rounds(rounds=9) == 9


@pytest.mark.parametrize(("cost", "warmup"), [(0.5, 0), (0.05, 1)])
def test_long_steps_need_no_warm_up(cost, warmup):
    now, shares = [0.0], []

    def step():
        now[0] += cost

    builders = {"plain": lambda: step, "other": lambda: step}
    timed = time_cases(builders, "plain", 10.0, None, 0, shares.append, lambda: now[0])
    assert timed.warmup == warmup
    assert timed.rounds == math.ceil(10.0 / (2 * cost * (1 + warmup)))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


@pytest.fixture
def _given_times(monkeypatch):
    """Timings that are given: the baseline 10 ms, every other case 12 ms, 13 ms or 14 ms."""

    def times(builders, baseline, *_):
        steps = {name: build() for name, build in builders.items()}
        each = {name: np.full(3, 0.01) if name == baseline else np.array([0.012, 0.013, 0.014]) for name in steps}
        return Timed(steps, each, 3, 1, 0)

    monkeypatch.setattr(price, "time_cases", times)


@pytest.mark.usefixtures("_given_times")
def test_a_run_has_ratios_targets_and_profiles_of_what_misses(monkeypatch):
    monkeypatch.setitem(ROWS["rank1 shared"].targets, "dense", 1.2)
    monkeypatch.setitem(ROWS["rank1 split"].targets, "dense", 1.4)
    saved, percents = [], []
    results = run_price(
        [DENSE, CONV],
        threads=1,
        extra_cases=lambda network: {"peer": lambda: lambda: None},
        save=lambda so_far: saved.append(list(so_far["results"])),
        progress=lambda done, total: percents.append((done, total)),
    )
    assert json.loads(json.dumps(results)) == results
    assert saved == [["dense"], ["dense", "conv"]]
    assert percents == sorted(percents)
    assert percents[-1] == (100, 100)
    dense = results["results"]["dense"]
    train = ["plain", "batch_ensemble", "rank1 shared", "rank1 per example", "rank1 split", "k_tied local", "peer"]
    rest = ["plain prediction", "rank1 prediction", "rank1 shared prediction", "plain memory", "rank1 memory"]
    assert list(dense) == train + rest
    assert list(results["results"]["conv"]) == [name for name in train + rest if name != "k_tied local"]
    assert dense["rank1 shared"]["ratio"] == pytest.approx(1.3)
    assert dense["rank1 shared"]["quartiles"] == pytest.approx([1.25, 1.35])
    judged = {name: (dense[name].get("target"), dense[name].get("met")) for name in ("rank1 shared", "rank1 split")}
    assert judged == {"rank1 shared": (1.2, False), "rank1 split": (1.4, True)}
    assert list(results["profiles"]["dense"]) == ["plain", "rank1 shared"]
    assert not results["profiles"]["conv"]
    assert results["runs"]["dense"]["train"] == {"rounds": 3, "repetitions": 1, "warmup": 0}
    assert results["versions"]["torch"] == torch.__version__
    assert results["settings"]["networks"]["conv"]["channels_last"] is True


def test_cases_and_networks_can_be_chosen():
    results = run_price([DENSE], rounds=2, cases=["rank1 split"], profile="all")
    assert list(results["results"]["dense"]) == ["plain", "rank1 split"]
    assert list(results["profiles"]["dense"]) == ["plain", "rank1 split"]
    assert results["runs"]["dense"]["train"]["rounds"] == 2


def test_the_lstm_is_measured_against_both_loops(monkeypatch):
    tiny = BenchNetwork("lstm_128", "LSTM 4 x 3 steps", partial(LastOutput, 4), (3, 4), 8)
    monkeypatch.setattr(price, "LSTM", tiny)
    results = run_price(["lstm_128"], rounds=1, extra_cases=lambda network: pytest.fail("asked for peers"))
    lstm = results["results"]["lstm_128"]
    assert list(lstm) == [*LSTM_ROWS, "rank1 loop against nn.LSTM"]
    seconds = {name: one["seconds"] for name, one in lstm.items()}
    assert lstm["rank1 loop"]["ratio"] == pytest.approx(seconds["rank1 loop"] / seconds["plain loop"])
    assert lstm["rank1 loop against nn.LSTM"]["ratio"] == pytest.approx(seconds["rank1 loop"] / seconds["nn.LSTM"])
    assert f"{lstm['rank1 loop']['ratio']:.2f} times our plain loop" in price_table.price_table(results)


def test_threads_and_generator_are_put_back():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    results = run_price([DENSE], rounds=1, threads=threads + 1, cases=["rank1 memory"], profile="none")
    assert results["hardware"]["threads"] == threads + 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    memory = results["results"]["dense"]
    assert memory["rank1 memory"]["ratio"] == memory["rank1 memory"]["bytes"] / memory["plain memory"]["bytes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ["conv_17"]}, ["`networks`", "'conv_17'", "Did you mean 'conv_16'"]),
        ({"cases": ["rank2 split"]}, ["`cases`", "'rank2 split'", "Did you mean 'rank1 split'"]),
        ({"rounds": 0}, ["`rounds`", "0"]),
        ({"threads": 0}, ["`threads`", "0"]),
        ({"profile": "some"}, ["`profile`", "'some'", "'misses'"]),
    ],
)
def test_run_price_says_what_is_wrong_before_measuring(options, words, monkeypatch):
    monkeypatch.setattr(price, "NetworkRun", lambda *_: pytest.fail("measured"))
    with pytest.raises(ValueError, match="Expected argument") as error:
        run_price(**options)
    assert all(word in str(error.value) for word in words)


def test_the_clock_waits_for_the_device(monkeypatch):
    waited = []
    module = type("Module", (), {"synchronize": staticmethod(lambda: waited.append(1))})
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert clock_of(CPU)() <= clock_of(torch.device("cuda"))()
    assert waited == [1]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_a_missing_accelerator_is_said():
    with pytest.raises(ValueError, match="Expected a GPU.*sees none.*CPU"):
        accelerator()


def test_hot_spots_are_sorted_and_share_out_the_time():
    x = torch.randn(30, 30)

    def step():
        (x @ x).sum().exp()

    spots = hot_spots(step, seconds=1e-3, top=100)
    assert {"aten::mm", "aten::sum", "aten::exp"} <= {one["operator"] for one in spots}
    assert sum(one["share"] for one in spots) == pytest.approx(1.0)
    assert [one["milliseconds"] for one in spots] == sorted((one["milliseconds"] for one in spots), reverse=True)
    assert {one["operator"]: one["calls"] for one in spots}["aten::exp"] == 1.0


def timed(ratio, target=None, met=None):
    return {
        "seconds": 0.01 * ratio,
        "ratio": ratio,
        "quartiles": [ratio, ratio],
        "interval": [ratio - 0.1, ratio + 0.1],
        "target": target,
        "met": met,
    }


RESULTS = {
    "settings": {
        "networks": {"conv_16": {"title": "conv 16", "rows": 128}, "mlp_512": {"title": "MLP 512", "rows": 256}},
        "threads": 2,
        "members": 4,
    },
    "results": {
        "conv_16": {"plain": timed(1.0), "rank1 shared": timed(1.2, 1.15, False), "peer": timed(3.0)},
        "mlp_512": {
            "plain": timed(1.0),
            "k_tied local": timed(1.4, 1.5, True),
            "plain memory": {"bytes": 2**21, "ratio": 1.0},
            "rank1 memory": {"bytes": 2**22, "ratio": 2.0, "target": 1.25, "met": False},
        },
    },
}
PEERS = {
    "time": "2026-01-02T03:04:05+00:00",
    "hardware": {"processor": "a processor"},
    "results": {"conv_16": {"plain": timed(1.0), "their layer": timed(3.6), "rank1 shared": timed(1.1)}},
}


def test_the_table_marks_and_lists_misses():
    lines = price_table.price_table(RESULTS).splitlines()
    assert lines[0].split() == ["conv", "16", "MLP", "512"]
    assert "10.0 ms" in lines[1]
    assert lines[2].split("  ")[0] == "rank1, shared draw, train step"
    assert lines[2].endswith("1.20 (1.15) *")
    assert lines[3].endswith("1.40 (1.50)")
    assert lines[4].endswith("2.0 MiB")
    assert lines[6].split() == ["peer", "3.00"]
    assert "4 members, 2 threads; rows: conv 16 128, MLP 512 256." in lines
    assert lines[-2:] == [
        "- rank1, shared draw, train step on conv 16: 1.20 (95% interval 1.10 to 1.30), expected 1.15",
        "- rank1, noise per example, activation memory on MLP 512: 2.00, expected 1.25",
    ]
    assert "Peers" not in price_table.price_table(RESULTS)


def test_markdown():
    lines = price_table.price_table(RESULTS, markdown=True).splitlines()
    assert lines[:3] == [
        "|  | conv 16 | MLP 512 |",
        "|---|---|---|",
        "| plain network, train step | 10.0 ms | 10.0 ms |",
    ]


def test_peers_follow_with_their_machine_and_date():
    text = price_table.price_table(RESULTS, stored_peers=PEERS)
    *_, line, heading, theirs, ours = text.splitlines()
    assert "measured 2026-01-02 on a processor" in line
    assert heading.split() == ["conv", "16", "MLP", "512"]
    assert theirs.split() == ["their", "layer", "3.60"]
    assert ours.split() == ["slimbayes", "rank1", "shared", "1.10"]


def test_stored_peers_are_found_beside_the_code(monkeypatch, tmp_path):
    monkeypatch.setattr(price_table, "files", lambda package: Path(tmp_path))
    assert price_table.peers() is None
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "peers.json").write_text(json.dumps(PEERS))
    assert price_table.peers() == PEERS
