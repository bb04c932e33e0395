"""The classes: shards in any order, empty ones, and two processes give what the function gives in one pass."""

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from metric_cases import CASES, EXAMPLES
from metrics_ddp_worker import SHARES
from torchmetrics import MetricCollection

from slimbayes import metrics

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def same(found, expected):
    torch.testing.assert_close(
        tuple(found) if isinstance(expected, tuple) else found,
        tuple(expected) if isinstance(expected, tuple) else expected,
        rtol=0,
        atol=1e-9,
        equal_nan=True,
    )


def test_every_class_has_a_case():
    classes = [name for name, place in metrics._PLACES.items() if place.endswith("_metrics")]
    assert sorted(classes) == sorted(case.name for case in CASES)


def test_the_page_has_every_name():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    results = {"Detection", "Reliability", "RiskCoverage", "SeveritySpread"}
    assert [name for name in metrics._PLACES if name not in results and f"`{name}" not in page] == []


@each_case
@pytest.mark.parametrize("sizes", [(60,), (1, 0, 40, 19), (0, 7, 53)])
def test_shards_in_any_order_give_one_pass(case, sizes):
    order = torch.randperm(EXAMPLES)
    metric = case.metric()
    for index in order.split(list(sizes)):
        metric.update(*case.shard(index))
    found = metric.compute()
    assert type(found) is type(case.expected())
    same(found, case.expected())
    metric.reset()
    metric.update(*case.arguments)
    same(metric.compute(), case.expected())


@each_case
def test_forward_pickling_and_no_examples(case):
    metric = pickle.loads(pickle.dumps(case.metric()))
    same(metric(*case.arguments), case.expected())
    same(metric.compute(), case.expected())
    empty = case.metric()
    empty.update(*case.shard(torch.arange(0)))
    with pytest.raises(ValueError, match=f"{case.name} has seen no examples"):
        empty.compute()


@each_case
def test_nan_is_refused_when_it_comes(case):
    first = case.arguments[0].clone()
    first.view(-1)[3] = torch.nan
    metric = case.metric()
    with pytest.raises(ValueError, match="NaN"):
        metric.update(first, *case.arguments[1:])


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metrics")
    worker = Path(__file__).parent / "metrics_ddp_worker.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, worker, folder / "store", folder / "out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    return [torch.load(folder / f"out.{rank}", weights_only=True) for rank in range(2)]


@pytest.mark.xdist_group("metrics_ddp")
@each_case
@pytest.mark.parametrize("share", SHARES)
def test_two_processes_give_one_pass(case, share, of_two_processes):
    for results in of_two_processes:
        same(results[case.name, share], case.expected())


def test_without_torchmetrics_the_functions_work_and_the_classes_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    for name in ("mean_metrics", "_streams"):
        monkeypatch.delitem(sys.modules, f"slimbayes.metrics.{name}", raising=False)
    assert metrics.accuracy(torch.eye(2), torch.tensor([0, 1])).item() == 1
    with pytest.raises(ImportError, match=r'need torchmetrics: pip install "slimbayes\[report\]"'):
        metrics.Accuracy  # noqa: B018


def test_importing_the_metrics_imports_no_torch():
    code = "import sys; from slimbayes.metrics.spread import standard_error; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"


@pytest.mark.parametrize("number", [0, 1])
def test_metrics_that_start_alike_are_kept_apart_in_a_collection(number):
    probs, targets = CASES[0].arguments
    cases = [case for case in CASES if case.arguments[0] is probs and not isinstance(case.expected(), tuple)]
    assert len(cases) > 5
    collection = MetricCollection({case.name: case.metric() for case in cases} | {"all": metrics.TopKAccuracy(4)})
    start = (probs.argmax(1) == targets).nonzero().flatten()[:number]  # an example that every accuracy counts
    rest = torch.ones(EXAMPLES, dtype=torch.bool).index_fill(0, start, False)
    collection.update(probs[start], targets[start])
    collection.update(probs[rest], targets[rest])
    found = collection.compute()
    assert found.pop("all") == 1
    for case in cases:
        same(found[case.name], case.expected())


def test_classes_of_another_number_are_refused():
    metric = metrics.ClasswiseCalibrationError(classes=3)
    with pytest.raises(ValueError, match="3 classes.*got 2"):
        metric.update(torch.eye(2), torch.tensor([0, 1]))


def test_crps_of_bare_draws_streams():
    metric, draws, targets = metrics.Crps(), torch.randn(5, 8), torch.randn(8)
    metric.update(draws[:, :3], None, targets[:3])
    metric.update(draws[:, 3:], None, targets[3:])
    same(metric.compute(), metrics.crps(draws, None, targets))


def test_an_error_in_forward_loses_nothing():
    """Torchmetrics' own forward resets the states before it computes the batch's value."""
    probs, targets = CASES[0].arguments
    accuracy, auc = metrics.Accuracy(), metrics.AucRoc()
    accuracy(probs, targets)
    auc(probs[:, 1], targets % 2)
    expected = accuracy.compute(), auc.compute()
    for wrong in ((probs[:0], targets[:0]), (probs, targets + 9)):
        with pytest.raises(ValueError, match="no examples|classes from 0 to 3"):
            accuracy(*wrong)
    with pytest.raises(ValueError, match="both kinds"):
        auc(probs[:3, 1], torch.ones(3))
    same((accuracy.compute(), auc.compute()), expected)
    accuracy(probs, probs.argmax(1))  # and it goes on
    same(accuracy.compute(), (expected[0] + 1) / 2)


@each_case
def test_arguments_by_name_arrays_of_numpy_and_clones(case):
    names = list(inspect.signature(getattr(metrics, case.function)).parameters)
    named = {name: x.numpy() for name, x in zip(names, case.arguments, strict=False)}
    metric = case.metric().clone()
    metric.update(**named)
    same(metric.compute(), case.expected())


def test_a_collection_deals_out_arguments_by_name():
    members = next(case for case in CASES if case.name == "NormalisedDisagreement").arguments[0]
    probs, targets = members.mean(0), CASES[0].arguments[1]
    names = ("Accuracy", "NegativeLogLikelihood", "Disagreement", "ExpectedCalibrationError")
    collection = pickle.loads(pickle.dumps(MetricCollection([getattr(metrics, name)() for name in names])))
    for part in torch.arange(EXAMPLES).split(25):
        shard = {"probs": probs[part], "log_probs": probs[part].log(), "member_probs": members[:, part]}
        collection.update(**shard, targets=targets[part])
    found = collection.compute()
    same(found["Accuracy"], metrics.accuracy(probs, targets))
    same(found["NegativeLogLikelihood"], metrics.negative_log_likelihood(probs.log(), targets))
    same(found["Disagreement"], metrics.disagreement(members))
    same(found["ExpectedCalibrationError"], metrics.expected_calibration_error(probs, targets))


def test_shards_of_unequal_lengths_are_refused_even_if_one_is_empty():
    probs, targets = CASES[0].arguments
    for wrong in ((probs, targets[:0]), (probs[:0], targets)):
        with pytest.raises(ValueError, match=r"\(batch, classes\)"):
            metrics.Accuracy().update(*wrong)


def test_half_keeps_double_precision():
    metric = metrics.NegativeLogLikelihood().half()
    case = next(case for case in CASES if case.name == "NegativeLogLikelihood")
    metric.update(*case.arguments)
    same(metric.half().to("cpu").compute(), case.expected())


def test_members_of_another_number_are_refused():
    with pytest.raises(ValueError, match="3 members.*got 2"):
        metrics.PairwiseDisagreement(members=3).update(torch.rand(2, 5, 4))
