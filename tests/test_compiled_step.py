"""torch.compile over the whole objective: one graph, few compilations, the numbers of eager mode."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.divergence import COMPILED_FORMS

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

MEMBERS, CLASSES = 2, 3
#: At fewer than 16 rows torch's convolution takes another kernel, and so another graph.
SIZES = (18, 21, 21, 24, 17)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def convolutional() -> nn.Module:
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES)]
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), *pooled)


def rank1(net: nn.Module, **options) -> sb.BayesianModel:
    return sb.rank1(net, members=MEMBERS, **options)


def batch_of(size: int, net: str = "dense") -> tuple[torch.Tensor, torch.Tensor]:
    shape = (8,) if net == "dense" else (2, 6, 6)
    return torch.randn(size, *shape), torch.randint(CLASSES, (size,))


class Counting:
    """A backend that runs what it is given as it is, and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, example_inputs):
        self.graphs += 1
        return graph.forward


METHODS = {
    "rank1": rank1,
    "rank1_split": lambda net: rank1(net, train_on="split"),
    "rank1_shared": lambda net: rank1(net, noise="shared"),
    "rank1_log_normal": lambda net: rank1(net, family="log_normal"),
    "rank1_cauchy": lambda net: rank1(net, family="cauchy"),
    "rank1_student_t": lambda net: rank1(net, family="student_t", prior_family="normal"),
    "rank1_normal_under_student_t": lambda net: rank1(net, prior_family="student_t"),
    "rank1_trainable": lambda net: rank1(net, prior_scale="trainable", scale_prior="half_cauchy"),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=MEMBERS),
    "batch_ensemble_split": lambda net: sb.batch_ensemble(net, members=MEMBERS, train_on="split"),
    "mean_field": sb.mean_field,
    "mean_field_flipout": lambda net: sb.mean_field(net, estimator="flipout"),
    "k_tied_local": lambda net: sb.k_tied(net, estimator="local"),
    "mc_dropout": sb.mc_dropout,
}
QUICK = {"rank1", "rank1_split", "batch_ensemble"}


def cases(quick: set[str]) -> list:
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in METHODS]


@pytest.mark.parametrize("method", cases(QUICK))
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.slow)])
def test_one_graph_for_all_steps_sizes_and_weights(method, dynamic):
    """The second size makes a graph for any size; the weight of the KL changes at each step."""
    model, backend = METHODS[method](dense()), Counting()
    model(batch_of(6)[0])  # the first pass checks that every layer is called, which is not traced
    elbo = sb.ELBO(model, num_data=100, beta=sb.linear_annealing(len(SIZES)))
    step = torch.compile(lambda x, y: elbo(model(x), y), backend=backend, fullgraph=True, dynamic=dynamic)
    counts = []
    for size in SIZES:
        step(*batch_of(size)).backward()
        elbo.step()
        counts.append(backend.graphs)
    assert counts == ([1, 1, 1, 1, 1] if dynamic else [1, 2, 2, 2, 2])
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rank1", "rank1_split", "batch_ensemble", "k_tied_local"])
def test_one_graph_for_convolutions(method):
    model, backend = METHODS[method](convolutional()), Counting()
    model(batch_of(6, "convolutional")[0])
    elbo = sb.ELBO(model, num_data=100, beta=sb.linear_annealing(len(SIZES)))
    step = torch.compile(lambda x, y: elbo(model(x), y), backend=backend, fullgraph=True)
    for size in SIZES:
        step(*batch_of(size, "convolutional")).backward()
        elbo.step()
    assert backend.graphs == 2


@pytest.mark.parametrize("method", cases({"rank1"}))
def test_equals_eager_with_held_draws(method):
    model = METHODS[method](dense()).double().eval()  # in evaluation mode, nothing but the draw is random
    x, y = batch_of(6)
    x = x.double()
    draw = {name: value.detach() for name, value in model.draw(2).items()}
    model(x)
    elbo = sb.ELBO(model, num_data=10, beta=sb.linear_annealing(4))
    elbo.step()
    compiled = torch.compile(lambda: elbo.terms(model(x, draw=draw), y), backend="aot_eager", fullgraph=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for terms in (compiled(), elbo.terms(model(x, draw=draw), y)):
        gradients = torch.autograd.grad(terms.loss, parameters, allow_unused=True, materialize_grads=True)
        found.append([terms.nll, terms.kl, terms.loss, *gradients])
        assert float(terms.beta) == 0.5
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours.detach(), eager.detach().to(ours.dtype), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_equals_eager_in_single_precision():
    model = rank1(dense())
    x, y = batch_of(6)
    draw = {name: value.detach() for name, value in model.draw().items()}
    model(x)
    elbo = sb.ELBO(model, num_data=10)

    def loss() -> torch.Tensor:
        return elbo(model(x, draw=draw), y)

    found = []
    for each in (torch.compile(loss, backend="aot_eager", fullgraph=True), loss):
        value = each()
        found.append([value.detach(), *torch.autograd.grad(value, list(model.parameters()))])
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4 * eager.abs().max().item())


def test_a_schedule_may_end_with_the_last_step():
    """What compiled code reads is set beforehand, and must not ask for more than training needs."""
    elbo = sb.ELBO(rank1(dense()), num_data=10, beta=[0.25, 0.5].__getitem__)
    assert elbo.beta == 0.25
    elbo.step()
    assert elbo.beta == 0.5
    elbo.step()
    with pytest.raises(IndexError):
        _ = elbo.beta


def test_the_pairs_with_a_closed_form_agree_with_torch():
    def some(family):
        df = [torch.full((5,), 4.0).double()] if family is torch.distributions.StudentT else []
        return family(*df, torch.randn(5).double(), torch.rand(5).double() + 0.1)

    for pair, closed_form in COMPILED_FORMS.items():
        q, p = map(some, pair)
        expected = torch.distributions.kl_divergence(q, p)
        torch.testing.assert_close(closed_form(q, p), expected, rtol=1e-10, atol=1e-12)
