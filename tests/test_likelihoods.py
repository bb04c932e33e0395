"""Likelihoods against torch's losses, SciPy and torch.distributions."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import distributions as td

import slimbayes as sb
from slimbayes.families import softplus_scale
from slimbayes.likelihoods import get_likelihood, mixture
from slimbayes.likelihoods.classification import FEW_LOGITS

DRAWS, BATCH, CLASSES = 3, 4, 5


def logits(*shape: int, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def labels(*shape: int) -> torch.Tensor:
    return torch.randint(CLASSES, shape, generator=torch.Generator().manual_seed(7))


def by_cross_entropy(outputs: torch.Tensor, targets: torch.Tensor, class_dim: int, **options: int) -> torch.Tensor:
    """Sum torch's own loss over positions, one draw and one example at a time."""
    result = torch.zeros(outputs.shape[:2], dtype=outputs.dtype)
    for d in range(outputs.shape[0]):
        for b in range(outputs.shape[1]):
            classes_second = outputs[d, b : b + 1].movedim(class_dim, 1)
            target = targets[b : b + 1].movedim(class_dim, 1) if targets.is_floating_point() else targets[b : b + 1]
            result[d, b] = -F.cross_entropy(classes_second, target, reduction="sum", **options)
    return result


CATEGORICAL = {
    "one label": ((DRAWS, BATCH, CLASSES), (BATCH,), -1),
    "sequence": ((DRAWS, BATCH, 6, CLASSES), (BATCH, 6), -1),
    "as many positions as examples": ((DRAWS, BATCH, BATCH, CLASSES), (BATCH, BATCH), -1),
    "map with classes second": ((DRAWS, BATCH, CLASSES, 2, 3), (BATCH, 2, 3), 2),
}


@pytest.mark.parametrize("case", CATEGORICAL)
def test_categorical_equals_cross_entropy(case: str) -> None:
    shape, target_shape, class_dim = CATEGORICAL[case]
    outputs, targets = logits(*shape), labels(*target_shape)
    found = sb.Categorical(class_dim).log_prob(outputs, targets)
    expected = by_cross_entropy(outputs, targets, class_dim if class_dim < 0 else class_dim - 1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 15, 16, 17])
@pytest.mark.parametrize("class_dim", [-1, 2])
def test_short_and_long_rows_of_classes_equal_log_softmax(classes: int, class_dim: int) -> None:
    shape = (DRAWS, BATCH, 4, classes) if class_dim < 0 else (DRAWS, BATCH, classes, 4)
    outputs = (30 * logits(*shape)).requires_grad_()
    targets = labels(BATCH, 4) % classes
    found = sb.Categorical(class_dim).class_log_probs(outputs)
    expected = outputs.log_softmax(class_dim).movedim(class_dim, -1)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    loss = sb.Categorical(class_dim).log_prob(outputs, targets).sum()
    one_hot = F.one_hot(targets, classes).movedim(-1, class_dim if class_dim < 0 else class_dim - 1)
    (gradient,) = torch.autograd.grad(loss, outputs)
    torch.testing.assert_close(gradient, one_hot - outputs.detach().softmax(class_dim), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CATEGORICAL)
def test_probability_targets_equal_cross_entropy(case: str) -> None:
    shape, _, class_dim = CATEGORICAL[case]
    outputs = logits(*shape)
    of_one_draw = class_dim if class_dim < 0 else class_dim - 1
    targets = logits(*shape[1:]).softmax(of_one_draw)
    found = sb.Categorical(class_dim).log_prob(outputs, targets)
    torch.testing.assert_close(found, by_cross_entropy(outputs, targets, of_one_draw), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ignore_index", [-100, -1, 2])
def test_ignored_positions_do_not_count(ignore_index: int) -> None:
    outputs, targets = logits(DRAWS, BATCH, 6, CLASSES), labels(BATCH, 6)
    targets[:, ::2] = ignore_index
    found = sb.Categorical(ignore_index=ignore_index).log_prob(outputs, targets)
    expected = by_cross_entropy(outputs, targets, -1, ignore_index=ignore_index)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_ignored_position_of_impossible_class_leaves_the_rest_finite() -> None:
    outputs = torch.tensor([[[[-math.inf, 0.0], [0.0, 0.0]]]])
    found = sb.Categorical(-1).log_prob(outputs, torch.tensor([[-100, 1]]))
    torch.testing.assert_close(found, torch.tensor([[-math.log(2)]]))


# ---------------------------------------------------------------------- the mean loss in one operation


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ignore_index", [-100, -1, 2])
@pytest.mark.parametrize("class_dim", [-1, 2])
@pytest.mark.parametrize(("draws", "classes"), [(1, CLASSES), (DRAWS, CLASSES), (DRAWS, 40), (DRAWS, 3)])
def test_the_mean_loss_is_that_of_each_example(draws, classes, class_dim, ignore_index, dtype) -> None:
    likelihood, targets = sb.Categorical(class_dim, ignore_index), labels(6) % classes
    targets[::2] = ignore_index
    outputs = logits(draws, 6, classes).to(dtype).requires_grad_()
    found, expected = likelihood.mean_loss(outputs, targets), -likelihood.log_prob(outputs, targets).mean()
    near = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, expected, rtol=near, atol=0)
    gradients, plain = (torch.autograd.grad(3 * loss, outputs)[0] for loss in (found, expected))
    torch.testing.assert_close(gradients, plain, rtol=0, atol=10 * near * plain.abs().max().item())


def test_the_mean_loss_of_outputs_that_do_not_lie_together() -> None:
    outputs, targets = logits(BATCH, CLASSES, DRAWS).movedim(-1, 0), labels(BATCH)
    found, expected = sb.Categorical().mean_loss(outputs, targets), -sb.Categorical().log_prob(outputs, targets).mean()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


def test_the_mean_loss_of_ignored_examples_alone_is_zero() -> None:
    outputs = logits(DRAWS, BATCH, CLASSES).requires_grad_()
    loss = sb.Categorical().mean_loss(outputs, torch.full((BATCH,), -100))
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, outputs)[0].any()


def test_an_ignored_example_of_an_impossible_class_leaves_the_mean_loss_finite() -> None:
    outputs = torch.tensor([[[-math.inf, 0.0], [0.0, 0.0]]])
    found = sb.Categorical().mean_loss(outputs, torch.tensor([-100, 1]))
    torch.testing.assert_close(found, torch.tensor(math.log(2) / 2))


ELSEWHERE = {
    "sequence": (sb.Categorical(), torch.zeros(DRAWS, BATCH, 6, CLASSES), labels(BATCH, 6)),
    "classes second": (sb.Categorical(-2), torch.zeros(DRAWS, BATCH, CLASSES), labels(CLASSES)),
    "probabilities": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES), torch.ones(BATCH, CLASSES) / CLASSES),
    "small integers": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES), labels(BATCH).int()),
    "half precision": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES).bfloat16(), labels(BATCH)),
    "another batch": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES), labels(BATCH + 1)),
    "targets of each draw": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES), labels(DRAWS, BATCH)),
    "no tensor": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES), [0, 1, 2, 3]),
    "no classes": (sb.Categorical(), torch.zeros(DRAWS, BATCH), labels(BATCH)),
    "no examples": (sb.Categorical(), torch.zeros(DRAWS, 0, CLASSES), labels(0)),
    "many logits": (sb.Categorical(), torch.zeros(1, 2, FEW_LOGITS // 2), labels(2)),
    "a class too high": (sb.Categorical(), torch.zeros(DRAWS, 1, CLASSES), torch.tensor([CLASSES])),
    "a class too low": (sb.Categorical(), torch.zeros(DRAWS, 1, CLASSES), torch.tensor([-1])),
    "another device": (sb.Categorical(), torch.zeros(DRAWS, BATCH, CLASSES, device="meta"), labels(BATCH)),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_other_losses_are_left_to_the_log_likelihood(case: str) -> None:
    likelihood, outputs, targets = ELSEWHERE[case]
    assert likelihood.mean_loss(outputs, targets) is None


# ---------------------------------------------------------------------- types and shapes


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_any_integer_type_is_a_class_number(dtype: torch.dtype) -> None:
    outputs, targets = logits(DRAWS, 2, CLASSES), torch.tensor([0, 1])
    expected = by_cross_entropy(outputs, targets, -1)
    torch.testing.assert_close(sb.Categorical().log_prob(outputs, targets.to(dtype)), expected)


@pytest.mark.parametrize(
    ("shape", "target_shape"),
    [((DRAWS, BATCH), (BATCH,)), ((DRAWS, BATCH, 1), (BATCH,)), ((DRAWS, BATCH, 6), (BATCH, 6))],
    ids=["squeezed", "one logit", "multi-label"],
)
@pytest.mark.parametrize("soft", [False, True])
def test_bernoulli_equals_binary_cross_entropy(shape: tuple, target_shape: tuple, soft: bool) -> None:
    outputs = logits(*shape)
    targets = logits(*target_shape).sigmoid() if soft else (logits(*target_shape) > 0).long()
    found = sb.Bernoulli().log_prob(outputs, targets)
    for d in range(DRAWS):
        flat = F.binary_cross_entropy_with_logits(
            outputs[d].reshape(target_shape), targets.to(torch.float64), reduction="none"
        )
        torch.testing.assert_close(found[d], -flat.reshape(BATCH, -1).sum(1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("shape", "target_shape"),
    [((DRAWS, BATCH), (BATCH,)), ((DRAWS, BATCH, 1), (BATCH,)), ((DRAWS, BATCH, 6), (BATCH, 6))],
)
@pytest.mark.parametrize("noise", ["learned", 0.3])
def test_gaussian_equals_scipy(shape: tuple, target_shape: tuple, noise: str | float) -> None:
    outputs, targets = logits(*shape), logits(*target_shape)
    likelihood = sb.Gaussian(noise, initial=0.3).double()
    found = likelihood.log_prob(outputs, targets)
    sigma = 0.3 + (1e-7 if noise == "learned" else 0.0)  # softplus(rho) + 1e-7
    expected = stats.norm.logpdf(targets.numpy(), outputs.reshape(DRAWS, *target_shape).numpy(), sigma)
    expected = torch.from_numpy(expected).reshape(DRAWS, BATCH, -1).sum(2)
    # A learned sigma starts as a float32 number.
    torch.testing.assert_close(found.detach(), expected, rtol=1e-5 if noise == "learned" else 1e-10, atol=1e-10)


def test_gaussian_with_predicted_noise_equals_torch() -> None:
    outputs, targets = logits(DRAWS, BATCH, 6), logits(BATCH, 3)
    sigma = F.softplus(outputs[..., 3:]) + 1e-7
    expected = td.Normal(outputs[..., :3], sigma).log_prob(targets).sum(-1)
    torch.testing.assert_close(sb.Gaussian("predicted").log_prob(outputs, targets), expected, rtol=1e-10, atol=1e-10)


def test_predicted_noise_of_one_target_drops_its_axis() -> None:
    outputs, targets = logits(DRAWS, BATCH, 2), logits(BATCH)
    expected = td.Normal(outputs[..., 0], F.softplus(outputs[..., 1]) + 1e-7).log_prob(targets)
    torch.testing.assert_close(sb.Gaussian("predicted").log_prob(outputs, targets), expected, rtol=1e-10, atol=1e-10)


def test_log_prob_of_mean_averages_the_parameters() -> None:
    outputs, targets = logits(DRAWS, BATCH, 6, CLASSES), labels(BATCH, 6)
    probs = outputs.softmax(-1).mean(0)
    expected = td.Categorical(probs).log_prob(targets).sum(-1)
    torch.testing.assert_close(sb.Categorical().log_prob_of_mean(outputs, targets), expected, rtol=1e-10, atol=1e-10)

    outputs, answers = logits(DRAWS, BATCH, 6), (logits(BATCH, 6) > 0).double()
    expected = td.Bernoulli(outputs.sigmoid().mean(0)).log_prob(answers).sum(-1)
    torch.testing.assert_close(sb.Bernoulli().log_prob_of_mean(outputs, answers), expected, rtol=1e-10, atol=1e-10)

    outputs, values = logits(DRAWS, BATCH, 6), logits(BATCH, 3)
    variance = (F.softplus(outputs[..., 3:]) + 1e-7).square().mean(0)
    expected = td.Normal(outputs[..., :3].mean(0), variance.sqrt()).log_prob(values).sum(-1)
    found = sb.Gaussian("predicted").log_prob_of_mean(outputs, values)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_mixture_survives_impossible_and_tiny_likelihoods() -> None:
    values = torch.tensor([[-1e4, -math.inf, -math.inf], [-1e4 - math.log(3), 0.0, -math.inf]], dtype=torch.float64)
    expected = torch.tensor([-1e4 + math.log(4 / 6), -math.log(2), -math.inf], dtype=torch.float64)
    torch.testing.assert_close(mixture(values), expected)


def test_gradients_are_those_of_cross_entropy() -> None:
    outputs, targets = logits(1, BATCH, CLASSES).requires_grad_(), labels(BATCH)
    sb.Categorical().log_prob(outputs, targets).sum().backward()
    expected = F.one_hot(targets, CLASSES) - outputs.detach()[0].softmax(-1)
    torch.testing.assert_close(outputs.grad[0], expected, rtol=1e-10, atol=1e-10)


ERRORS = {
    "class too high": (sb.Categorical(), (3, 4, 5), torch.tensor([0, 1, 2, 5]), ["targets", "0 to 4", "got 5"]),
    "class negative": (sb.Categorical(), (3, 4, 5), torch.tensor([0, -1, 2, 0]), ["targets", "0 to 4", "got -1"]),
    "targets too short": (sb.Categorical(), (3, 4, 5), torch.zeros(3).long(), ["targets", "(4,)", "(3,)"]),
    "targets of whole sequences": (
        sb.Categorical(),
        (3, 4, 4, 5),
        torch.zeros(4).long(),
        ["targets", "(4, 4)", "(4,)"],
    ),
    "float class numbers": (
        sb.Categorical(),
        (3, 4, 4),
        torch.tensor([0.0, 1, 0, 1]),
        ["targets", "(4, 4)", "(4,)", "integers"],
    ),
    "float class numbers for maps": (
        sb.Categorical(class_dim=2),
        (3, 4, 5, 2, 2),
        torch.zeros(4),
        ["(4, 5, 2, 2)", "(4,)"],
    ),
    "probability above one": (sb.Categorical(), (3, 1, 2), torch.tensor([[2.0, -1]]), ["targets", "0 to 1", "got 2.0"]),
    "no classes": (sb.Categorical(), (3, 4), torch.zeros(4).long(), ["(3, 4)", "classes", "bernoulli"]),
    "yes or no out of range": (sb.Bernoulli(), (3, 2, 1), torch.tensor([0, 2]), ["targets", "0 to 1", "got 2"]),
    "yes or no unknown": (sb.Bernoulli(), (3, 2), torch.tensor([0, math.nan]), ["targets", "0 to 1", "got nan"]),
    "yes or no shape": (sb.Bernoulli(), (3, 4, 6), torch.zeros(4), ["targets", "(4, 6)", "(4,)"]),
    "real shape": (sb.Gaussian(), (3, 4, 1), torch.zeros(4, 4), ["targets", "(4, 1)", "(4, 4)"]),
    "odd outputs": (sb.Gaussian("predicted"), (3, 4, 3), torch.zeros(4), ["even", "(3, 4, 3)", "twice"]),
    "no axis of outputs": (sb.Gaussian("predicted"), (3, 4), torch.zeros(4), ["even", "(3, 4)", "twice"]),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("method", ["log_prob", "log_prob_of_mean"])
def test_wrong_targets_are_named(case: str, method: str) -> None:
    likelihood, shape, targets, words = ERRORS[case]
    with pytest.raises(ValueError, match="Expected") as error:
        getattr(likelihood, method)(torch.zeros(shape), targets)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: sb.Gaussian(-1.0), ["`noise`", "-1.0"]),
        (lambda: sb.Gaussian("lerned"), ["`noise`", "'lerned'", "Did you mean 'learned'"]),
        (lambda: sb.Gaussian(initial=0.0), ["`initial`", "0.0"]),
        (lambda: sb.Categorical(class_dim=1), ["`class_dim`", "got 1"]),
        (lambda: get_likelihood("categorial"), ["`likelihood`", "'categorial'", "Did you mean 'categorical'"]),
    ],
)
def test_wrong_options_are_named(build, words: list[str]) -> None:
    with pytest.raises(ValueError, match="Expected") as error:
        build()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "likelihood",
    [sb.Categorical(2, -1), sb.Bernoulli(), sb.Gaussian(), sb.Gaussian("predicted"), sb.Gaussian(0.25)],
    ids=repr,
)
def test_spec_rebuilds_the_likelihood(likelihood) -> None:
    again = get_likelihood(likelihood.spec())
    assert type(again) is type(likelihood)
    assert again.spec() == likelihood.spec()
    for name in ("class_dim", "ignore_index", "noise"):
        assert getattr(again, name, None) == getattr(likelihood, name, None)


# ---------------------------------------------------------------------- the axis of the classes

#: Outputs, targets, and the class axis that torch's cross-entropy has, draws first.
AXES = {
    "map": ((DRAWS, BATCH, CLASSES, 2, 3), (BATCH, 2, 3), 2),
    "map as wide as there are classes": ((DRAWS, BATCH, CLASSES, 2, CLASSES), (BATCH, 2, CLASSES), 2),
    "square map of as many classes": ((DRAWS, BATCH, CLASSES, CLASSES, CLASSES), (BATCH, CLASSES, CLASSES), 2),
    "map with classes last": ((DRAWS, BATCH, 2, 3, CLASSES), (BATCH, 2, 3), -1),
    "volume": ((DRAWS, BATCH, CLASSES, 2, 3, 2), (BATCH, 2, 3, 2), 2),
    "signal": ((DRAWS, BATCH, CLASSES, 7), (BATCH, 7), 2),
    "sequence": ((DRAWS, BATCH, 7, CLASSES), (BATCH, 7), -1),
}


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("case", AXES)
def test_targets_tell_the_axis_of_the_classes(case: str, soft: bool) -> None:
    shape, target_shape, axis = AXES[case]
    one_draw = axis if axis < 0 else axis - 1
    outputs, likelihood = logits(*shape), sb.Categorical()
    targets = logits(*shape[1:]).softmax(one_draw) if soft else labels(*target_shape)
    expected = by_cross_entropy(outputs, targets, one_draw)
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), expected, rtol=1e-10, atol=1e-10)
    assert likelihood.class_dim == likelihood.spec()["class_dim"] == axis
    remembered = likelihood.class_log_probs(outputs)
    torch.testing.assert_close(remembered, outputs.log_softmax(axis).movedim(axis, -1), rtol=1e-10, atol=1e-10)


def test_a_sequence_as_long_as_there_are_classes_is_read_as_before_with_a_warning() -> None:
    outputs, targets, likelihood = logits(DRAWS, BATCH, CLASSES, CLASSES), labels(BATCH, CLASSES), sb.Categorical()
    with pytest.warns(UserWarning, match=r"time, class\).*class_dim"):
        found = likelihood.log_prob(outputs, targets)
    torch.testing.assert_close(found, by_cross_entropy(outputs, targets, -1))
    assert likelihood.class_dim is None  # the next batch may tell
    likelihood.log_prob(logits(DRAWS, BATCH, CLASSES, 7), labels(BATCH, 7))
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), by_cross_entropy(outputs, targets, 1))


def test_maps_without_targets_are_not_guessed_at() -> None:
    with pytest.raises(ValueError, match=r"\(3, 4, 5, 2, 2\).*class_dim=2"):
        sb.Categorical().class_log_probs(torch.zeros(3, 4, 5, 2, 2))


CONFUSED = {
    "several labels": (
        (DRAWS, 2, 3),
        torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
        ["sum of 2", "likelihood='bernoulli'"],
    ),
    "no label": ((DRAWS, 2, 3), torch.zeros(2, 3), ["sum of 0", "likelihood='bernoulli'"]),
    "several whole labels": ((DRAWS, 2, 3), torch.tensor([[1, 1, 0], [0, 1, 0]]), ["likelihood='bernoulli'"]),
    "one logit": ((DRAWS, 2, 1), torch.tensor([0, 0]), ["(3, 2, 1)", "likelihood='bernoulli'", "two outputs"]),
    "map of another size": (
        (DRAWS, 2, 3, 8, 8),
        torch.zeros(2, 9, 9).long(),
        ["(2, 8, 8)", "(2, 9, 9)", "class_dim=2"],
    ),
}


@pytest.mark.parametrize("case", CONFUSED)
def test_targets_of_another_kind_are_refused_with_the_remedy(case: str) -> None:
    shape, targets, words = CONFUSED[case]
    model = sb.rank1(torch.nn.Linear(2, 3), members=DRAWS)
    with pytest.raises(ValueError, match="Expected") as error:
        sb.ELBO(model, 100, "categorical")(torch.zeros(shape), targets)
    for word in words:
        assert word in str(error.value)


# ---------------------------------------------------------------------- one's own


class Gumbel(sb.Likelihood):
    def log_prob(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return td.Gumbel(outputs.squeeze(-1), 1.0).log_prob(targets)


class WholeGumbel(Gumbel):
    name = "gumbel"

    def moments(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gumbel = td.Gumbel(outputs, 1.0)
        return gumbel.mean, gumbel.stddev

    def cdf(self, outputs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return td.Gumbel(outputs, 1.0).cdf(values)


def test_one_method_makes_a_likelihood_and_others_add_figures() -> None:
    outputs, y = logits(DRAWS, BATCH, 1), logits(BATCH)
    density = stats.gumbel_r.pdf(y.numpy(), outputs[..., 0].numpy()).mean(0)
    assert (Gumbel.name, WholeGumbel.name) == ("Gumbel", "gumbel")
    bare, whole = sb.Prediction(outputs, Gumbel()), sb.Prediction(outputs, WholeGumbel())
    torch.testing.assert_close(bare.log_likelihood(y), torch.from_numpy(density).log())
    with pytest.raises(ValueError, match=r"Gumbel likelihood has no mean or std.*log_likelihood.*`moments`"):
        bare.mean  # noqa: B018
    with pytest.raises(ValueError, match=r"gumbel likelihood has no class probabilities.*mean, std.*interval"):
        whole.probs  # noqa: B018
    found = whole.quantile(0.9)[:, 0].numpy()
    reached = stats.gumbel_r.cdf(found, outputs[..., 0].numpy()).mean(0)
    torch.testing.assert_close(torch.from_numpy(reached), torch.full((BATCH,), 0.9).double())
    with pytest.raises(ValueError, match=r"Gumbel likelihood.*marginal_probs.*log_prob_of_mean"):
        bare.likelihood.log_prob_of_mean(outputs, y)


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_residual_variance_is_the_noise_of_the_largest_likelihood(outputs) -> None:
    torch.manual_seed(0)
    likelihood = sb.Gaussian(outputs=outputs).double()
    draws, targets = torch.randn(4, 50, 3).double(), torch.tensor([1.0, 2.0, 0.1]) * torch.randn(50, 3).double()
    likelihood.set_noise(likelihood.residual_variance(draws, targets))
    likelihood.log_prob(draws, targets).mean().backward()
    assert likelihood.rho.grad.abs().max() < 1e-6


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("outputs", [None, 3])
def test_the_best_scale_of_a_student_t_has_no_gradient(outputs, size):
    generator = torch.Generator().manual_seed(0)
    draws = size * torch.randn(4, 50, 3, generator=generator).double()
    targets = size * torch.tensor([1.0, 2.0, 0.1]) * torch.randn(50, 3, generator=generator).double()
    likelihood = sb.StudentT(outputs=outputs).double()
    for mixed in (False, True):
        likelihood.set_scale(likelihood.best_scale(draws, targets, mixed=mixed))
        each = likelihood.log_prob(draws, targets)
        scale = softplus_scale(likelihood.rho)
        (slope,) = torch.autograd.grad((mixture(each) if mixed else each).mean(), likelihood.rho)
        assert (slope * scale / likelihood.rho.sigmoid()).abs().max() < 1e-4  # by the logarithm of the scale
    assert (scale < likelihood.best_scale(draws, targets)).all()


def test_the_best_scale_is_that_of_scipy():
    errors = stats.t(3.0, scale=0.2).rvs(500, random_state=0)
    found = sb.StudentT(df=3.0).best_scale(torch.zeros(1, 500), torch.tensor(errors)).item()
    _, _, expected = stats.t.fit(errors, fix_df=3.0, floc=0.0)
    assert found == pytest.approx(expected, rel=1e-3)
    counts = stats.nbinom(2.0, 2.0 / (2.0 + 5.0)).rvs(500, random_state=0)  # a mean of 5, a dispersion of 0.5
    alphas = np.linspace(0.3, 0.8, 5001)
    values = [stats.nbinom.logpmf(counts, 1 / a, 1 / (1 + 5 * a)).sum() for a in alphas]
    found = sb.NegativeBinomial().best_scale(torch.full((1, 500), math.log(5.0)), torch.tensor(counts)).item()
    assert found == pytest.approx(alphas[int(np.argmax(values))], abs=2e-4)


# ---------------------------------------------------------------------- the noise of a mixture


def test_a_mixtures_noise_is_what_its_spread_leaves_of_the_variance():
    # Draws and targets are quantiles of N(0, 4) and N(0, 9): the mixture is N(0, 4 + noise).
    def normal(count, std):
        return std * torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count)

    means, targets = normal(2000, 2.0), normal(1000, 3.0)
    found = sb.Gaussian().mixture_variance(means[:, None].expand(-1, 1000), targets)
    expected = targets.square().mean() - means.square().mean()
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
    assert found.item() == pytest.approx(9 - 4, rel=0.01)


@pytest.mark.parametrize("outputs", [None, 2])
def test_a_mixtures_noise_has_the_largest_log_likelihood(outputs):
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(5, 40, 2, generator=generator).double()
    targets = torch.randn(40, 2, generator=generator).double()
    likelihood = sb.Gaussian(outputs=outputs).double()

    def log_likelihood(variance):
        likelihood.set_noise(variance)
        each = likelihood.log_prob(means, targets)
        return (each.logsumexp(0) - math.log(5)).mean().item()

    best = likelihood.mixture_variance(means, targets)
    assert (best < likelihood.residual_variance(means, targets)).all()
    value = log_likelihood(best)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert log_likelihood(best * factor) < value
        if outputs is not None:
            assert log_likelihood(best * torch.tensor([factor, 1.0])) < value


def test_the_noise_of_draws_that_are_alike_is_that_of_one():
    means, targets = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([0.5, 0.0, 3.0])
    likelihood = sb.Gaussian()
    one = likelihood.residual_variance(means, targets)
    torch.testing.assert_close(likelihood.mixture_variance(means, targets), one)
    torch.testing.assert_close(likelihood.mixture_variance(means.expand(4, 3), targets), one)
    assert likelihood.mixture_variance(means, means[0]).item() == 0.0
