"""torch.compile: what compiles into one graph, and that it computes the same.

Draws come from the same generator in another order, so stochastic passes are compared by a held draw.
"""

import pytest
import torch

import slimbayes as sb
from cases import METHODS, NETWORKS, build, targets

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


# Tracing takes seconds a case: the whole table runs with the slow tests.
QUICK = {("rank1", network) for network in NETWORKS} | {("k_tied_local", "mlp_3d"), ("mean_field_flipout", "mlp_3d")}
#: Their layers are those of another row, in another state.
VARIANTS = {
    "deep_ensemble_vectorised",
    "batch_ensemble_rank2_norm",
    "swag_diagonal",
    "subspace_gaussian",
    "laplace_diag",
    "laplace_kron",
}
CASES = [
    pytest.param(m, n, id=f"{m}-{n}", marks=[] if (m, n) in QUICK else [pytest.mark.slow])
    for m in METHODS
    for n in NETWORKS
    if m not in VARIANTS or n in ("mlp_3d", "resnet")
]


@pytest.mark.parametrize(("method", "network"), CASES)
def test_compiled_equals_eager(method, network):
    model, x = build(method, network)
    model.eval()
    draw = {name: value.detach() for name, value in model.draw(2).items()}
    model(x)  # the first pass checks that every layer is called, which is not traced
    compiled = torch.compile(model, backend="aot_eager", fullgraph=NETWORKS[network].one_graph)
    torch.testing.assert_close(compiled(x, samples=0), model(x, samples=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled(x, draw=draw), model(x, draw=draw), rtol=1e-4, atol=1e-5)
    assert compiled(x, samples=2).shape == model(x, samples=2).shape


def test_a_compiled_training_step_needs_no_recompilation():
    model, _ = build("rank1", "resnet")
    elbo = sb.ELBO(model, num_data=100)
    inputs = [NETWORKS["resnet"].inputs(6) for _ in range(3)]
    model(inputs[0])
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for x in inputs:
        outputs = compiled(x)
        elbo(outputs, targets(outputs)).backward()
    assert len(graphs) == 1
    assert all(p.grad is not None for p in model.parameters())


def test_compiled_draws_differ_and_have_the_right_spread():
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(net.weight)
    model = sb.rank1(net, members=1, factors="input", init="ones", dropout_rate=0.1)
    x = torch.ones(4000, 1)
    model(x)
    with torch.no_grad():
        outputs = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    scale = model.net.input_factor.scale.item()
    assert outputs.mean().item() == pytest.approx(1, abs=5 * scale / 4000**0.5)
    assert outputs.std().item() == pytest.approx(scale, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp_3d", "resnet", "transformer"])
def test_inductor(network):
    model, x = build("rank1", network)
    elbo = sb.ELBO(model, num_data=100)
    model(x)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x, samples=0), model(x, samples=0), rtol=1e-3, atol=1e-4)
    for samples in (1, 3):  # after 0, the compiler takes them for unknowns
        model.zero_grad()
        outputs = compiled(x, samples=samples)
        elbo(outputs, targets(outputs)).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
