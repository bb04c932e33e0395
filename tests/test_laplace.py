"""Laplace on the last layer: closed forms of the posterior, of its draws, and what a saved one needs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributions as td
from torch import nn

import slimbayes as sb
from slimbayes.ensembles._covariance_root import ROOTS
from slimbayes.ensembles.laplace import DenseNormalLinear
from slimbayes.methods.laplace import dense_normal_model, expected_loss

CLASSES, WIDTH = 3, 4
STRUCTURES = list(ROOTS)


def small_net(bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES, bias=bias)).double()


def some_data(targets="classes", count=40):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=generator, dtype=torch.double)
    if targets == "classes":
        return x, torch.randint(CLASSES, (count,), generator=generator)
    return x, torch.randn(count, CLASSES, generator=generator, dtype=torch.double)


def batches(x, y):
    return [(x[:25], y[:25]), (x[25:], y[25:])]


def filled(structure, bias=True, seed=2):
    """Return a root with some covariance, and its matrix by NumPy."""
    torch.manual_seed(seed)
    root = ROOTS[structure](CLASSES, WIDTH, bias).double()
    state = {name: torch.rand_like(value) + 0.5 for name, value in root.state_dict().items()}
    for name in state:
        if name == "cholesky":
            state[name] = state[name].tril()
        elif name.endswith("basis"):
            state[name] = torch.linalg.qr(state[name])[0]
    root.load_state_dict(state)
    known = {name: value.numpy() for name, value in state.items()}
    if structure == "full":
        return root, known["cholesky"] @ known["cholesky"].T
    if structure == "diag":
        return root, np.diag(known["std"] ** 2)
    size = CLASSES * WIDTH
    covariance = np.zeros((root.size, root.size))
    basis = np.kron(known["output_basis"], known["input_basis"])
    covariance[:size, :size] = basis @ np.diag(known["std"].ravel() ** 2) @ basis.T
    covariance[size:, size:] = known["bias_basis"] @ np.diag(known["bias_std"] ** 2) @ known["bias_basis"].T
    return root, covariance


def model_of(structure, noise="shared"):
    model = dense_normal_model(small_net(), structure=structure, noise=noise, prior_precision=2.5)
    root, covariance = filled(structure)
    posterior = next(model.stochastic())
    posterior.root.load_state_dict(root.state_dict())
    return model, posterior, covariance


# ---------------------------------------------------------------------- the posterior


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_roots_are_roots(structure, bias):
    root, covariance = filled(structure, bias)
    matrix = root(torch.eye(root.size).double()).T.numpy()
    np.testing.assert_allclose(matrix @ matrix.T, covariance, atol=1e-12)
    np.testing.assert_allclose(root.variances().numpy(), np.diag(covariance))
    np.testing.assert_allclose(root.log_determinant().item(), np.linalg.slogdet(covariance)[1])


@pytest.mark.parametrize("structure", STRUCTURES)
def test_kl_is_that_of_two_gaussians(structure):
    model, posterior, covariance = model_of(structure)
    q = td.MultivariateNormal(posterior.mean.detach(), torch.tensor(covariance))
    p = td.MultivariateNormal(torch.zeros(posterior.root.size).double(), torch.eye(posterior.root.size).double() / 2.5)
    torch.testing.assert_close(model.kl().detach(), td.kl_divergence(q, p))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_moments_of_draws(structure):
    _, posterior, covariance = model_of(structure)
    count = 40_000
    drawn = posterior.draw(count, torch.Generator().manual_seed(0)).detach()
    std = np.sqrt(np.diag(covariance))
    assert np.all(np.abs((drawn.mean(0) - posterior.mean).detach().numpy()) < 5 * std / count**0.5)
    # The standard error of an entry of a Gaussian's covariance: sqrt((s_ij^2 + s_ii s_jj) / n).
    error = np.sqrt((covariance**2 + np.outer(std**2, std**2)) / count)
    assert np.all(np.abs(np.cov(drawn.numpy().T) - covariance) < 5 * error)
    np.testing.assert_allclose(posterior.scale.numpy(), std)


@pytest.mark.parametrize("noise", ["example", "shared"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_moments_of_outputs(structure, noise):
    """For one input, y ~ N(W x + b, (I ⊗ x~)^T Sigma (I ⊗ x~)) with either noise."""
    model, _, covariance = model_of(structure)
    net, x = small_net(), torch.tensor([[0.3, -1.2]]).double()
    features = net[:2](x)[0].detach().numpy()
    jacobian = np.hstack([np.kron(np.eye(CLASSES), features), np.eye(CLASSES)])
    expected = jacobian @ covariance @ jacobian.T
    count = 20_000 if noise == "example" else 4_000
    rows, samples = (x.expand(count, 2), 1) if noise == "example" else (x, count)
    outputs = model(rows, samples=samples, noise=noise, generator=torch.Generator().manual_seed(0)).detach()
    outputs = outputs.reshape(count, CLASSES).numpy()
    std = np.sqrt(np.diag(expected))
    assert np.all(np.abs(outputs.mean(0) - net(x)[0].detach().numpy()) < 5 * std / count**0.5)
    error = np.sqrt((expected**2 + np.outer(std**2, std**2)) / count)
    assert np.all(np.abs(np.cov(outputs.T) - expected) < 5 * error)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_autocast_leaves_draws_as_they_are(structure):
    posterior = dense_normal_model(small_net().float(), structure=structure).net[2].posterior
    posterior.root.load_state_dict(filled(structure)[0].state_dict())
    plain = posterior.draw(3, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(posterior.draw(3, torch.Generator().manual_seed(0)), plain)


def test_a_row_has_one_weight_at_all_its_positions():
    model, _, _ = model_of("full", noise="example")
    x = torch.randn(5, 1, 2).double().expand(5, 7, 2)
    outputs = model(x)[0]
    torch.testing.assert_close(outputs, outputs[:, :1].expand_as(outputs))
    assert not torch.allclose(outputs[0], model(x)[0, 0])


def test_tied_weights_stay_where_they_are_elsewhere():
    """A draw is of the decoder's use of the weight alone: features come from the embedding as it was trained."""
    net = nn.Sequential(nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)).double()
    net[1].weight = net[0].weight
    model = dense_normal_model(net)
    assert model.net[1].weight is model.net[0].weight
    tokens, draw = torch.arange(CLASSES), model.draw()
    weight = draw["1.posterior"].view(CLASSES, WIDTH)
    torch.testing.assert_close(model(tokens, draw=draw)[0], net[0].weight @ weight.T)
    folded = model.member(0, draw=draw)
    assert torch.equal(folded[0].weight, net[0].weight)
    torch.testing.assert_close(folded[1].weight, weight)


# ---------------------------------------------------------------------- the fit


def with_bias(features):
    return np.hstack([features, np.ones((len(features), 1))])


def gauss_newton(features, curvatures):
    """Return sum_n J_n^T Lambda_n J_n over [W row by row, b], in float64."""
    total = 0.0
    for phi, curvature in zip(features, curvatures, strict=True):
        jacobian = np.hstack([np.kron(np.eye(CLASSES), phi), np.eye(CLASSES)])
        total = total + jacobian.T @ curvature @ jacobian
    return total


def softmax_curvatures(logits):
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return np.array([np.diag(row) - np.outer(row, row) for row in p])


def covariance_of(model):
    root = next(model.stochastic()).root
    matrix = root(torch.eye(root.size, dtype=torch.double)).T.numpy()
    return matrix @ matrix.T


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_covariance_is_the_inverse_of_the_curvature(likelihood, structure, temperature):
    net = small_net()
    x, y = some_data("classes" if likelihood == "categorical" else "numbers")
    features, outputs = net[:2](x).detach().numpy(), net(x).detach().numpy()
    reading = likelihood if likelihood == "categorical" else sb.Gaussian(noise=0.7)
    curvatures = softmax_curvatures(outputs)
    if likelihood == "gaussian":
        curvatures = np.repeat(np.eye(CLASSES)[None] / 0.7**2, len(x), 0)
    options = {"structure": structure, "prior_precision": 2.0, "temperature": temperature}
    model = sb.laplace(net, batches(x, y), reading, **options)
    precision = gauss_newton(features, curvatures) / temperature
    if structure == "diag":
        precision = np.diag(np.diag(precision))
    if structure == "kron":  # sum_n Lambda_n, and the mean of phi phi^T; the bias apart
        outer, inner = curvatures.sum(0) / temperature, features.T @ features / len(x)
        size = CLASSES * WIDTH
        precision = np.zeros_like(precision)
        precision[:size, :size], precision[size:, size:] = np.kron(outer, inner), outer
    expected = np.linalg.inv(precision + 2 * np.eye(len(precision)))
    np.testing.assert_allclose(covariance_of(model), expected, rtol=1e-8, atol=1e-10)
    assert model.likelihood.name == likelihood
    assert torch.equal(model(x, samples=0)[0], net(x))


def test_bayesian_linear_regression():
    """With a Gaussian likelihood and the best weights, draws follow the exact predictive distribution."""
    noise, precision, count = 0.3, 1.5, 4000
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(30, 4, generator=generator, dtype=torch.double)
    y = x @ torch.tensor([1.0, -2, 0.5, 0]).double() + noise * torch.randn(30, generator=generator, dtype=torch.double)
    design = with_bias(x.numpy())
    covariance = np.linalg.inv(design.T @ design / noise**2 + precision * np.eye(5))
    best = covariance @ design.T @ y.numpy() / noise**2
    net = nn.Linear(4, 1).double()
    net.load_state_dict({"weight": torch.tensor(best[None, :4]), "bias": torch.tensor(best[4:])})
    model = sb.laplace(net, [(x, y)], sb.Gaussian(noise=noise), prior_precision=precision)
    np.testing.assert_allclose(covariance_of(model), covariance, rtol=1e-5, atol=1e-8)
    new = 2 * torch.randn(6, 4, generator=generator, dtype=torch.double)
    prediction = model.predict(new, samples=count, seed=0)
    rows = with_bias(new.numpy())
    epistemic = np.sqrt(np.einsum("ni,ij,nj->n", rows, covariance, rows))
    found = prediction.epistemic_std.squeeze(-1).numpy()
    np.testing.assert_allclose(found, epistemic, rtol=5 / (2 * count) ** 0.5)  # of a std: 1 / sqrt(2 n)
    mean = prediction.mean.squeeze(-1).numpy()
    assert np.all(np.abs(mean - rows @ best) < 5 * epistemic / count**0.5)
    np.testing.assert_allclose(prediction.aleatoric_std.numpy(), noise, rtol=1e-6)


GOLDEN = Path(__file__).parent / "golden" / "laplace.npz"


@pytest.fixture(scope="module")
def golden():
    """Return what laplace-torch says of small networks; tools/make_laplace_golden.py asked it."""
    with np.load(GOLDEN) as file:
        return dict(file)


def golden_net(golden, size):
    net = small_net()
    state = {name: torch.tensor(golden[f"net/{name}"]) for name in net.state_dict()}
    net.load_state_dict({name: size * value if name.startswith("2") else value for name, value in state.items()})
    return net


@pytest.mark.filterwarnings("ignore:The posterior is too wide")  # fifty times the weights are far too sure
@pytest.mark.parametrize("size", [1.0, 0.01, 50.0])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_posterior_and_chosen_precision_are_those_of_laplace_torch(golden, likelihood, structure, size):
    case = f"{likelihood}/{structure}/{size:g}"
    data = [(torch.tensor(golden["x"]), torch.tensor(golden["classes" if likelihood == "categorical" else "numbers"]))]
    reading = likelihood if likelihood == "categorical" else sb.Gaussian(noise=0.7)
    net = golden_net(golden, size)
    fixed = sb.laplace(net, data, reading, structure=structure, prior_precision=2.0)
    np.testing.assert_allclose(covariance_of(fixed), golden[f"{case}/covariance"], rtol=1e-6, atol=1e-9)
    model = sb.laplace(net, data, reading, structure=structure)
    chosen = model.options["prior_precision"]
    assert chosen == pytest.approx(golden[f"{case}/best"].item(), rel=1e-4)
    assert next(model.stochastic()).prior_precision == chosen


@pytest.mark.parametrize("structure", STRUCTURES)
def test_draws_have_the_predictive_distribution_of_laplace_torch(golden, structure):
    """Its Gaussian over the outputs of a classifier, by linearisation, which is exact for a last layer."""
    data = [(torch.tensor(golden["x"]), torch.tensor(golden["classes"]))]
    model = sb.laplace(golden_net(golden, 1.0), data, structure=structure, prior_precision=2.0)
    count = 4000
    outputs = model(data[0][0][:3], samples=count, generator=torch.Generator().manual_seed(0)).detach().numpy()
    for row, expected in enumerate(golden[f"categorical/{structure}/1/outputs"]):
        variances = np.diag(expected)
        error = np.sqrt((expected**2 + np.outer(variances, variances)) / count)
        assert np.all(np.abs(np.cov(outputs[:, row].T) - expected) < 5 * error)


def test_validation_data_choose_the_precision():
    """A network that is sure of what it cannot know: on data without structure the widest posterior is best."""
    net, (x, y) = small_net(), some_data()
    with torch.no_grad():
        net[2].weight *= 0
        net[2].bias.copy_(torch.tensor([3.0, 0.0, 0.0]))
    always = torch.zeros_like(y)
    right = sb.laplace(net, batches(x, always), structure="diag", validation_batches=[(x, always)])
    assert right.options["prior_precision"] >= 100  # what it says is true: a narrow one
    some = sb.laplace(net, batches(x, always), structure="diag", validation_batches=[(x, y)])
    scores = {}
    for precision in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0):
        model = sb.laplace(net, batches(x, always), structure="diag", prior_precision=precision)
        scores[precision] = model.predict(x, samples=3000, seed=0).log_likelihood(y).mean().item()
    assert max(scores, key=scores.get) < 10
    assert some.options["prior_precision"] == pytest.approx(max(scores, key=scores.get), rel=3.2)


def fitted_net(x, y, steps=300):
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, CLASSES)).double()
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_posterior_that_ruins_a_trained_network_is_warned_of(structure):
    """Before, a network sure of all its training data was made far worse by the default, without a word."""
    torch.manual_seed(0)
    x = torch.randn(60, 2, dtype=torch.double)
    y = x.argmax(1) + (x.sum(1) > 1).long()
    net, data = fitted_net(x, y), [(x, y)]
    before = nn.functional.cross_entropy(net(x), y).item()
    with pytest.warns(UserWarning, match=r"too wide.*validation_batches.*larger `prior_precision`"):
        model = sb.laplace(net, data, structure=structure)
    assert -model.predict(x, samples=100, seed=0).log_likelihood(y).mean() > before + 0.05
    chosen = sb.laplace(net, data, structure=structure, validation_batches=data)
    assert -chosen.predict(x, samples=100, seed=0).log_likelihood(y).mean() < before + 0.05


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_what_draws_lose_of_a_linear_regression_is_known(temperature):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 3, generator=generator, dtype=torch.double)
    y = x @ torch.randn(3, 2, generator=generator, dtype=torch.double)
    y += 0.1 * torch.randn(60, 2, generator=generator, dtype=torch.double)
    net = nn.Linear(3, 2).double()
    best = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x[:, :1])], 1), y).solution
    net.load_state_dict({"weight": best[:3].T, "bias": best[3]})
    model = sb.laplace(net, [(x, y)], sb.Gaussian(noise=0.1), prior_precision=2.0, temperature=temperature)
    ones = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    eigenvalues = torch.linalg.eigvalsh(ones.T @ ones / 0.1**2 / temperature).repeat(2)
    draws = model(x, samples=4000, generator=torch.Generator().manual_seed(0))
    lost = model.likelihood.log_prob(net(x)[None], y).sum() - model.likelihood.log_prob(draws, y).sum(1).mean()
    assert lost.item() == pytest.approx(expected_loss(eigenvalues, 2.0, temperature), rel=0.05)


def test_noise_is_the_residuals_unless_it_is_stated():
    net, (x, y) = small_net(), some_data("numbers")
    found = sb.laplace(net, batches(x, y), "gaussian").likelihood.noise
    assert found == pytest.approx((net(x) - y).square().mean().sqrt().item())
    learned = sb.Gaussian(initial=0.4)
    assert sb.laplace(net, batches(x, y), learned).likelihood.noise == pytest.approx(0.4, rel=1e-5)
    assert sb.laplace(net, batches(x, y), {"name": "gaussian", "noise": 0.2}).likelihood.noise == 0.2


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small_net()

    def forward(self, left, right):
        return self.net(left + right)


def test_inputs_of_any_form():
    x, y = some_data()
    expected = covariance_of(sb.laplace(small_net(), [(x, y)]))
    forms = {
        "two": (TwoInputs(), [((x, torch.zeros_like(x)), y)]),
        "named": (TwoInputs(), [({"left": x, "right": torch.zeros_like(x)}, y)]),
        "positions": (small_net(), [(x.view(8, 5, 2), y.view(8, 5))]),
        "once": (small_net(), (pair for pair in batches(x, y))),
        "ignored": (small_net(), [(torch.cat([x, x]), torch.cat([y, torch.full_like(y, -100)]))]),
    }
    for name, (net, data) in forms.items():
        np.testing.assert_allclose(covariance_of(sb.laplace(net, data)), expected, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("net", "count"), [(small_net(bias=False), 12), (nn.Linear(2, CLASSES), 9)])
def test_layers_without_a_bias_and_networks_of_one_layer(net, count, structure):
    x, y = some_data()
    x = x.to(next(net.parameters()).dtype)
    model = sb.laplace(net, batches(x, y), structure=structure)
    assert model.draw()[next(model.stochastic()).name].shape == (1, count)
    assert model.predict(x, samples=5).probs.isfinite().all()
    assert [type(one) for one in model.member(0, sample=0).modules()] == [type(one) for one in net.modules()]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_weight_of_one_number(structure):
    x, y = some_data("numbers")
    model = sb.laplace(
        nn.Linear(1, 1, bias=False),
        [(x[:, :1].float(), y[:, :1])],
        sb.Gaussian(noise=0.5),
        structure=structure,
        prior_precision=1.0,
    )
    expected = 1 / (x[:, 0].square().sum() / 0.25 + 1)
    torch.testing.assert_close(next(model.stochastic()).scale.square(), expected.float().view(1))


def test_a_float32_network_keeps_its_type():
    net, (x, y) = small_net().float(), some_data()
    model = sb.laplace(net, batches(x.float(), y))
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    assert torch.get_default_dtype() == torch.float32
    expected = covariance_of(sb.laplace(small_net(), batches(x, y)))
    root = next(model.stochastic()).root
    np.testing.assert_allclose((root.cholesky @ root.cholesky.T).numpy(), expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- storage, misuse


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_saved_one_predicts_the_same(structure, tmp_path):
    x, y = some_data()
    model = sb.laplace(small_net(), batches(x, y), structure=structure, prior_precision="marglik")
    model.save_pretrained(tmp_path)
    expected = model.predict(x, samples=4, seed=0).probs
    torch.manual_seed(9)
    again = sb.load(tmp_path, nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES)).double())
    assert torch.equal(again.predict(x, samples=4, seed=0).probs, expected)
    assert (again.method, again.options) == ("laplace", model.options)
    assert torch.equal(again.kl(), model.kl())


def test_a_layer_can_be_named():
    assert dense_normal_model(small_net(), layer="0").summary().converted == ["0"]
    model = dense_normal_model(small_net(), structure="kron")
    assert isinstance(model.net[2], DenseNormalLinear)
    assert model.summary().left == {"0": "only the last layer is random"}
    assert model.summary().after == model.summary().before


def nan_net():
    net = small_net()
    nn.init.constant_(net[0].weight, float("nan"))
    return net


X, Y = some_data()
WRONG = {
    "no linear layer": (lambda: sb.laplace(nn.Conv1d(2, 3, 1), [(X, Y)]), ["`net`", "nn.Linear"]),
    "a model": (lambda: sb.laplace(sb.deterministic(small_net()), [(X, Y)]), ["`net`", "member(0)"]),
    "converted layers": (lambda: sb.laplace(sb.rank1(small_net()).net, [(X, Y)]), ["`net`", "member(0)"]),
    "another layer": (lambda: sb.laplace(small_net(), [(X, Y)], layer="1"), ["`layer`", "'1'", "'2'"]),
    "not the last layer": (lambda: sb.laplace(small_net(), [(X, Y)], layer="0"), ["'0'", "`layer`", "logits"]),
    "no logits": (lambda: sb.laplace(small_net().append(nn.Softmax(1)), [(X, Y)]), ["'2'", "as they are"]),
    "weights that are not numbers": (lambda: sb.laplace(nan_net(), [(X, Y)]), ["finite", "Train it"]),
    "no pairs": (lambda: sb.laplace(small_net(), (X, Y)), ["`train_batches`", "pairs", "[(x, y)]"]),
    "no batches": (lambda: sb.laplace(small_net(), []), ["`train_batches`", "empty"]),
    "empty batches": (lambda: sb.laplace(small_net(), [(X[:0], Y[:0])]), ["`train_batches`", "empty"]),
    "classes beyond": (lambda: sb.laplace(small_net(), [(X, Y + 1)]), ["`targets`", "from 0 to 2"]),
    "too few numbers": (lambda: sb.laplace(small_net(), [(X, Y)], "gaussian"), ["`train_batches`", "120", "40"]),
    "bernoulli": (lambda: sb.laplace(small_net(), [(X, Y)], "bernoulli"), ["`likelihood`", "two classes"]),
    "predicted noise": (
        lambda: sb.laplace(small_net(), [(X, Y)], sb.Gaussian(noise="predicted")),
        ["`likelihood`", "predicted"],
    ),
    "no residuals": (
        lambda: sb.laplace(small_net(), [(X, small_net()(X).detach())], "gaussian"),
        ["residuals", "sb.Gaussian"],
    ),
    "numbers of another order": (
        lambda: sb.laplace(small_net(), [(X, torch.zeros(3, 40))], "gaussian"),
        ["`targets`", "(40, 3)", "(3, 40)"],
    ),
    "classes of another order": (
        lambda: sb.laplace(small_net(), [(X.view(8, 5, 2), Y.view(5, 8))]),
        ["`targets`", "(8, 5)", "(5, 8)"],
    ),
    "numbers that are none": (
        lambda: sb.laplace(small_net(), [(X, torch.full((40, 3), float("nan")))], "gaussian"),
        ["`train_batches`", "finite"],
    ),
    "probabilities": (lambda: sb.laplace(small_net(), [(X, torch.ones(40, 3) / 3)]), ["`train_batches`", "float32"]),
    "nothing counts": (lambda: sb.laplace(small_net(), [(X, Y * 0 - 100)]), ["`train_batches`", "-100"]),
    "classes on another axis": (
        lambda: sb.laplace(small_net(), [(X.view(8, 5, 2), Y.view(8, 5))], sb.Categorical(class_dim=2)),
        ["`likelihood`", "class_dim=2", "-1"],
    ),
    "structure": (lambda: sb.laplace(small_net(), [(X, Y)], structure="dense"), ["`structure`", "'full'"]),
    "precision": (lambda: sb.laplace(small_net(), [(X, Y)], prior_precision=0), ["`prior_precision`", "marglik"]),
    "way to choose": (lambda: sb.laplace(small_net(), [(X, Y)], prior_precision="cv"), ["`prior_precision`", "'cv'"]),
    "validation without data": (
        lambda: sb.laplace(small_net(), [(X, Y)], prior_precision="validation"),
        ["`validation_batches`", "none"],
    ),
    "data for a precision that is given": (
        lambda: sb.laplace(small_net(), [(X, Y)], prior_precision=1.0, validation_batches=[(X, Y)]),
        ["`prior_precision`", "1.0"],
    ),
    "temperature": (lambda: sb.laplace(small_net(), [(X, Y)], temperature=-1), ["`temperature`", "-1"]),
}


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG)
def test_misuse_is_told(call, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    for word in words:
        assert word in str(error.value)


def test_something_else_than_a_network():
    with pytest.raises(TypeError, match="`net`"):
        sb.laplace(None, [(X, Y)])
