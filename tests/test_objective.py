"""The objective against plain loops, closed forms and known optima."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

import slimbayes as sb

K, BATCH, CLASSES = 3, 4, 5
OBJECTIVES = ["average", "mixture", "marginal_logits", "marginal_probs"]


def mlp(outputs: int = CLASSES, **options) -> sb.BayesianModel:
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
    return sb.rank1(net, members=K, **options)


def batch(size: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 2, dtype=torch.float64), torch.randint(CLASSES, (size,))


def kl_of_normals(model: sb.BayesianModel, std: float = 0.1) -> torch.Tensor:
    """KL(N(m, s^2) || N(1, std^2)) of each member, from the parameters by the textbook formula."""
    total = torch.zeros(model.members, dtype=torch.float64)
    for name, parameter in model.named_parameters():
        if name.endswith(".loc"):
            loc, scale = parameter, F.softplus(model.get_parameter(name[:-3] + "rho")) + 1e-7
            each = math.log(std) - scale.log() + (scale**2 + (loc - 1) ** 2) / (2 * std**2) - 0.5
            total = total + each.flatten(1).sum(1)
    return total


def by_loop(outputs: torch.Tensor, targets: torch.Tensor, objective: str) -> float:
    """Appendix D, one draw and one example at a time."""
    draws, size = outputs.shape[:2]
    loss = 0.0
    for b in range(size):
        y = int(targets[b])
        logs = [math.log(outputs[d, b].softmax(-1)[y]) for d in range(draws)]
        if objective == "average":  # Eq. 13
            loss -= sum(logs) / draws
        elif objective == "mixture":  # Eq. 14
            loss -= math.log(sum(math.exp(one) for one in logs) / draws)
        elif objective == "marginal_logits":  # Eq. 11
            loss -= math.log((sum(outputs[d, b] for d in range(draws)) / draws).softmax(-1)[y])
        else:  # Eq. 12
            loss -= math.log(sum(outputs[d, b].softmax(-1)[y] for d in range(draws)) / draws)
    return loss / size


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_form_equals_a_loop_over_draws(objective: str) -> None:
    model, (x, y) = mlp(), batch()
    outputs = 3 * model(x, samples=2).detach()
    nll = sb.ELBO(model, 100, objective=objective).terms(outputs, y).nll.item()
    assert nll == pytest.approx(by_loop(outputs, y, objective), abs=1e-10)


@pytest.mark.parametrize("noise", [0.7, "predicted"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_form_of_a_regression_equals_scipy(objective: str, noise: str | float) -> None:
    model, (x, _) = mlp(2), batch()
    y = torch.randn(BATCH, 1 if noise == "predicted" else 2, dtype=torch.float64)
    outputs = model(x, samples=2).detach()
    f = outputs.numpy()
    if objective == "marginal_logits":
        f = f.mean(0, keepdims=True)
    mean, scale = (
        (f[..., :1], F.softplus(torch.from_numpy(f[..., 1:])).numpy() + 1e-7) if noise == "predicted" else (f, 0.7)
    )
    if objective == "marginal_probs":
        variance = scale**2 if noise == 0.7 else (scale**2).mean(0)
        expected = stats.norm.logpdf(y.numpy(), mean.mean(0), variance**0.5).sum(-1)
    else:
        each = stats.norm.logpdf(y.numpy(), mean, scale).sum(-1)
        expected = torch.from_numpy(each).exp().mean(0).log().numpy() if objective == "mixture" else each.mean(0)
    nll = sb.ELBO(model, 100, sb.Gaussian(noise), objective=objective).terms(outputs, y).nll.item()
    assert nll == pytest.approx(-expected.mean(), abs=1e-10)


def test_forms_relate_as_appendix_d_says() -> None:
    model, (x, y) = mlp(), batch()
    outputs = 3 * model(x, samples=2).detach()
    nll = {name: sb.ELBO(model, 100, objective=name).terms(outputs, y).nll for name in OBJECTIVES}
    torch.testing.assert_close(nll["marginal_probs"], nll["mixture"], rtol=1e-12, atol=1e-12)
    assert nll["mixture"] < nll["average"]  # Jensen
    assert nll["marginal_logits"] < nll["average"]  # log-softmax is concave


@pytest.mark.parametrize("members_and_draws_alike", OBJECTIVES)
def test_forms_agree_where_draws_agree(members_and_draws_alike: str) -> None:
    model, (x, y) = mlp(family="delta", init="ones"), batch()
    outputs = model(x)
    nll = sb.ELBO(model, 100, objective=members_and_draws_alike).terms(outputs, y).nll
    torch.testing.assert_close(nll, F.cross_entropy(outputs[0], y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_data", [4, 1000])
def test_loss_times_n_is_equation_2_with_the_sum_scaled_by_n_over_b(num_data: int) -> None:
    model, (x, y) = mlp(), batch()
    outputs = model(x)
    summed = sum(F.cross_entropy(outputs[k], y, reduction="sum") for k in range(K)) / K
    expected = num_data / BATCH * summed + kl_of_normals(model).sum()
    loss = sb.ELBO(model, num_data)(outputs, y)
    torch.testing.assert_close(loss * num_data, expected, rtol=1e-10, atol=1e-10)


def test_a_doubled_batch_has_the_same_loss() -> None:
    model, (x, y) = mlp(), batch()
    elbo = sb.ELBO(model, 1000)
    once = elbo(model(x, samples=0), y)
    twice = elbo(model(x.repeat(2, 1), samples=0), y.repeat(2))
    torch.testing.assert_close(twice, once, rtol=1e-12, atol=1e-12)


def test_terms_add_up_and_the_kl_is_whole() -> None:
    model, (x, y) = mlp(), batch()
    terms = sb.ELBO(model, 50, beta=0.3).terms(model(x), y)
    torch.testing.assert_close(terms.kl, kl_of_normals(model).sum(), rtol=1e-10, atol=1e-10)
    assert terms.beta == 0.3
    assert terms.loss.item() == pytest.approx(terms.nll.item() + 0.3 * terms.kl.item() / 50, rel=1e-12)


def test_member_kl_counts_a_shared_embedding_once() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 3), nn.Linear(3, 2)

        def forward(self, tokens):
            return self.head(self.embed(tokens).mean(1))

    model = sb.rank1(Net().double(), members=K, embedding="mean_field", embedding_prior_std=0.5)
    table, scale = model.net.embed.weight, model.net.embed.weight_posterior.spread.log_scale.exp()
    shared = (math.log(0.5) - scale.log() + (scale**2 + table**2) / (2 * 0.25) - 0.5).sum()
    by_member = kl_of_normals(model)
    outputs, y = model(torch.randint(7, (2, 4))), torch.tensor([0, 1])
    for member_kl, factors in {"sum": by_member.sum(), "mean": by_member.mean()}.items():
        found = sb.ELBO(model, 10, member_kl=member_kl).terms(outputs, y).kl
        torch.testing.assert_close(found, factors + shared, rtol=1e-10, atol=1e-10)


def test_linear_annealing_is_the_reference_schedule() -> None:
    model, (x, y) = mlp(), batch()
    elbo = sb.ELBO(model, 50, beta=sb.linear_annealing(4))
    outputs, kl = model(x), kl_of_normals(model).sum().item()
    for step in range(6):
        beta = min(1.0, (step + 1) / 4)
        terms = elbo.terms(outputs, y)
        assert terms.beta == beta
        assert (terms.loss - terms.nll).item() == pytest.approx(beta * kl / 50, rel=1e-9)
        elbo.step()


def test_any_function_of_the_step_is_a_schedule_and_resumes() -> None:
    model = mlp()
    first = sb.ELBO(model, 50, beta=lambda step: step**2)
    for _ in range(3):
        first.step()
    again = sb.ELBO(model, 50, beta=lambda step: step**2)
    again.load_state_dict(first.state_dict())
    assert first.beta == again.beta == 9.0


def test_a_function_is_a_likelihood_in_each_form() -> None:
    model, (x, _) = mlp(1), batch()
    y = torch.randn(BATCH, dtype=torch.float64)

    def laplace(outputs, targets):
        return torch.distributions.Laplace(outputs.squeeze(-1), 1.0).log_prob(targets)

    outputs = model(x).detach()
    logs = stats.laplace.logpdf(y.numpy(), outputs.squeeze(-1).numpy())
    expected = {
        "average": logs.mean(0),
        "mixture": torch.from_numpy(logs).exp().mean(0).log().numpy(),
        "marginal_logits": stats.laplace.logpdf(y.numpy(), outputs.squeeze(-1).mean(0).numpy()),
    }
    for objective, values in expected.items():
        nll = sb.ELBO(model, 10, laplace, objective=objective).terms(outputs, y).nll.item()
        assert nll == pytest.approx(-values.mean(), abs=1e-10)
    assert model.likelihood.function is laplace


def test_a_function_may_read_nested_outputs() -> None:
    model, (x, y) = mlp(), batch()
    nested = {"scores": model(x).detach(), "loss": torch.tensor(0.0)}
    elbo = sb.ELBO(model, 10, lambda out, t: sb.Categorical().log_prob(out["scores"], t), objective="marginal_logits")
    assert elbo.terms(nested, y).nll.item() == pytest.approx(by_loop(nested["scores"], y, "marginal_logits"), abs=1e-10)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda outputs, targets: outputs.sum(),
        lambda outputs, targets: outputs.sum(-1).mean(0),
        lambda outputs, targets: outputs.sum(-1).T,
        lambda outputs, targets: outputs.sum(-1).mean(0, keepdim=True),
    ],
    ids=["scalar", "averaged", "transposed", "averaged, kept"],
)
def test_a_function_of_the_wrong_shape_is_refused(wrong) -> None:
    model, (x, y) = mlp(), batch()
    with pytest.raises(ValueError, match=r"shape \(draws, batch\) = \(3, 4\), but got \("):
        sb.ELBO(model, 10, wrong)(model(x), y)


@pytest.mark.parametrize("wrong", [CLASSES, -1, 10**6])
def test_a_class_that_does_not_exist_is_named_by_the_likelihood(wrong: int) -> None:
    model, (x, y) = mlp(), batch()
    y[1] = wrong
    outputs = model(x)
    with pytest.raises(ValueError, match=f"`targets` to lie from 0 to {CLASSES - 1}, but got {wrong}") as expected:
        sb.Categorical().log_prob(outputs, y)
    with pytest.raises(ValueError, match="Expected") as error:
        sb.ELBO(model, 10)(outputs, y)
    assert str(error.value) == str(expected.value)


def test_the_average_of_few_logits_is_one_operation(monkeypatch) -> None:
    model, (x, y) = mlp(), batch()
    y[0] = -100
    outputs, parameters = model(x, samples=2), list(model.parameters())
    elbo, found = sb.ELBO(model, 10), []
    for few in (True, False):
        if not few:
            monkeypatch.setattr("slimbayes.likelihoods.classification.FEW_LOGITS", 0)
        assert (elbo.likelihood.mean_loss(outputs, y) is not None) == few
        loss = elbo(outputs, y)
        found.append([loss, *torch.autograd.grad(loss, parameters, retain_graph=True)])
    for one, plain in zip(*found, strict=True):
        torch.testing.assert_close(one, plain, rtol=1e-10, atol=1e-12)


def test_outputs_of_half_precision_are_read_in_single_precision() -> None:
    model = mlp().float()
    outputs = torch.randn(2, BATCH, CLASSES).bfloat16()
    y = torch.randint(CLASSES, (BATCH,))
    nll = sb.ELBO(model, 10).terms(outputs, y).nll
    assert nll.dtype == torch.float32
    assert nll.item() == pytest.approx(by_loop(outputs.double(), y, "average"), rel=1e-6)


def test_sequence_first_outputs_add_up_over_time() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(2, 3), nn.Linear(3, CLASSES)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    model = sb.rank1(Tagger().double(), members=K, batch_dim=1)
    x, y = torch.randn(7, 2, 2, dtype=torch.float64), torch.randint(CLASSES, (7, 2))
    outputs = model(x)
    assert outputs.shape == (K, 7, 2, CLASSES)
    each = [F.cross_entropy(outputs[k].flatten(0, 1), y.flatten(), reduction="sum") / 2 for k in range(K)]
    nll = sb.ELBO(model, 10).terms(outputs, y).nll
    torch.testing.assert_close(nll, sum(each) / K, rtol=1e-12, atol=1e-12)
    sequences = [
        sum(outputs[k, t, b].log_softmax(-1)[y[t, b]] for t in range(7)).exp() for b in range(2) for k in range(K)
    ]
    mixture = torch.stack(sequences).view(2, K).mean(1).log()
    nll = sb.ELBO(model, 10, objective="mixture").terms(outputs, y).nll
    torch.testing.assert_close(nll, -mixture.mean(), rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- the likelihood is the model's


def test_learned_noise_reaches_the_maximum_likelihood_and_is_a_parameter() -> None:
    x = torch.linspace(-1, 1, 40, dtype=torch.float64).unsqueeze(1)
    y = 2 * x.squeeze(1) - 1 + 0.3 * torch.randn(40, dtype=torch.float64)
    design = torch.cat([x, torch.ones_like(x)], 1)
    residual = y - design @ torch.linalg.lstsq(design, y.unsqueeze(1)).solution.squeeze(1)
    model = sb.batch_ensemble(nn.Linear(1, 1).double(), members=2)
    elbo = sb.ELBO(model, num_data=40, likelihood="gaussian")
    assert "likelihood.rho" in model.state_dict()
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-15
    )

    def closure():
        optimiser.zero_grad()
        loss = elbo(model(x), y)
        loss.backward()
        return loss

    optimiser.step(closure)
    prediction = model.predict(x)
    expected = residual.square().mean().sqrt()  # of a Gaussian, the maximum likelihood in closed form
    torch.testing.assert_close(prediction.aleatoric_std[0, 0], expected, rtol=1e-5, atol=1e-5)


def test_the_likelihood_follows_dtype_and_stays_when_named_again() -> None:
    model = mlp(1)
    first = sb.ELBO(model, 10, "gaussian").likelihood
    assert model.likelihood is first
    assert first.rho.dtype == torch.float64
    with torch.no_grad():
        first.rho.fill_(-1.0)
    assert sb.ELBO(model, 10, "gaussian").likelihood is first
    other = sb.Gaussian(initial=0.5)
    assert sb.ELBO(model, 10, other).likelihood is other
    assert model.likelihood is other


def test_param_groups_give_the_noise_no_weight_decay() -> None:
    model = mlp(1)
    sb.ELBO(model, 10, "gaussian")
    groups = model.param_groups(lr=0.1, weight_decay=0.5)
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert decays[id(model.likelihood.rho)] == 0.0
    assert decays[id(model.net[0].weight)] == 0.5


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: m,
        torch.compile,
        lambda m: SimpleNamespace(module=m),
        lambda m: SimpleNamespace(module=torch.compile(m)),
    ],
    ids=["bare", "compiled", "wrapped", "wrapped and compiled"],
)
def test_wrapped_models_are_unwrapped(wrap) -> None:
    model, (x, y) = mlp(), batch()
    outputs = model(x)
    elbo = sb.ELBO(wrap(model), 50)
    assert elbo.model is model
    torch.testing.assert_close(elbo(outputs, y), sb.ELBO(model, 50)(outputs, y), rtol=0, atol=0)


def test_learned_noise_must_be_there_before_distributed_training() -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(mlp(1))
        with pytest.raises(ValueError, match=r"`model`.*DistributedDataParallel.*'gaussian'.*before wrapping"):
            sb.ELBO(wrapped, 10, "gaussian")
        assert sb.ELBO(wrapped, 10, sb.Gaussian(0.5)).model is wrapped.module
    finally:
        distributed.destroy_process_group()


# ---------------------------------------------------------------------- split


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7])
def test_split_answers_each_example_by_one_member_in_turn(size: int, samples: int) -> None:
    model, (x, _) = mlp(family="delta", train_on="split"), batch(size)
    outputs = model.train()(x, samples=samples)
    assert outputs.shape == (samples, size, CLASSES)
    by_member = torch.stack([model.member(k)(x) for k in range(K)])
    distance = (outputs.unsqueeze(1) - by_member).abs().amax(-1)  # (samples, members, size)
    nearest = distance.argmin(1)
    assert distance.amin(1).max() < 1e-12
    first = int(nearest[0, 0])
    assert nearest.tolist() == [[(first + b) % K for b in range(size)]] * samples


def test_split_is_for_training_only() -> None:
    model, (x, _) = mlp(family="delta", train_on="split"), batch(4)
    assert model.eval()(x).shape == (K, 4, CLASSES)


def test_split_keeps_nested_and_sequence_first_inputs_together() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(2, 3), nn.Linear(3, 4)

        def forward(self, inputs):
            steps = self.head(self.rnn(inputs["x"])[0])
            return {"steps": steps + inputs["shift"], "last": steps[-1]}

    model = sb.rank1(Net().double(), members=2, family="delta", train_on="split", batch_dim=1).train()
    x, shift = torch.randn(6, 5, 2, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    outputs = model({"x": x, "shift": sb.BatchAxis(shift, 0)})
    assert outputs["steps"].shape == (1, 6, 5, 4)
    plain = [model.member(k)({"x": x, "shift": shift}) for k in range(2)]
    first = int((outputs["last"][0, 0] - plain[0]["last"][0]).abs().max() > 1e-12)
    for b in range(5):
        member = plain[(first + b) % 2]
        torch.testing.assert_close(outputs["last"][0, b], member["last"][b], rtol=1e-12, atol=1e-12)
        expected = member["steps"][:, b]
        torch.testing.assert_close(outputs["steps"][0, :, b], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4, 6, 7])
def test_split_gradient_averages_to_the_tiled_one(size: int) -> None:
    """Whoever answers first, the K turns together let every member meet every example once."""
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()
    model = sb.rank1(net, members=K, family="delta", train_on="split").train()
    x, y = torch.randn(size, 2, dtype=torch.float64), torch.randint(CLASSES, (size,))
    by_member = [model.member(k)(x) for k in range(K)]
    losses = {}
    for seed in range(100):
        output = model(x, generator=torch.Generator().manual_seed(seed))
        first = min(range(K), key=lambda k: (output[0, 0] - by_member[k][0]).abs().max().item())
        losses.setdefault(first, sb.ELBO(model, 100)(output, y))
    assert sorted(losses) == list(range(K))
    parameters = list(model.parameters())
    found = torch.autograd.grad(sum(losses.values()) / K, parameters)
    tiled = sum(F.cross_entropy(logits, y) for logits in model.eval()(x)) / K
    for ours, expected in zip(found, torch.autograd.grad(tiled, parameters), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------------- what is mistaken for something else


def ordinal(outputs, targets):
    """Four levels from three cumulative logits, as somebody would write it."""
    above = F.logsigmoid(outputs).cumsum(-1)
    log_probs = torch.cat([F.logsigmoid(-outputs[..., :1]), above], -1)
    return log_probs.gather(-1, targets.expand(outputs.shape[:2]).unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("figure", ["probs", "label", "entropy", "mean", "std", "interval"])
def test_a_function_is_kept_and_no_figure_is_made_up(figure: str) -> None:
    model, (x, _) = mlp(3), batch()
    y = torch.tensor([0, 3, 1, 2])
    sb.ELBO(model, 10, ordinal)(model(x), y)
    p = model.predict(x, samples=0)
    torch.testing.assert_close(p.log_likelihood(y), ordinal(p.draws, y).exp().mean(0).log(), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"function, 'ordinal'.*log_likelihood\(targets\) or draws.*sb.Likelihood"):
        p.interval(0.9) if figure == "interval" else getattr(p, figure)
    assert model.predict(x, likelihood=sb.Categorical()).probs.shape == (BATCH, 3)


def test_a_function_may_hold_the_model_and_have_parameters_of_its_own() -> None:
    model, (x, y) = mlp(), batch()
    scale = nn.Linear(1, 1)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.scale = model, scale

        def forward(self, outputs, targets):
            return sb.Categorical().log_prob(outputs, targets)

    before = len(list(model.parameters()))
    elbo = sb.ELBO(model, 10, Own())
    elbo(model(x), y).backward()
    assert len(list(model.parameters())) == before
    assert model.member(0)(x).shape == (BATCH, CLASSES)


def test_a_function_is_given_pairs_of_targets_by_predictions_too() -> None:
    model, (x, _) = mlp(1), batch()
    time, event = torch.rand(BATCH).double(), torch.ones(BATCH).double()

    def exponential(outputs, targets):
        time, event = targets
        return event * outputs.squeeze(-1) - time * outputs.squeeze(-1).exp()

    sb.ELBO(model, 10, exponential)(model(x), (time, event))
    assert model.predict(x).log_likelihood((time, event)).shape == (BATCH,)


@pytest.mark.parametrize("loss", [F.cross_entropy, F.mse_loss, F.binary_cross_entropy_with_logits, nn.MSELoss()])
def test_a_loss_of_torch_is_no_likelihood(loss) -> None:
    with pytest.raises(TypeError, match="`likelihood`.*log-likelihood.*the loss.*'categorical'"):
        sb.ELBO(mlp(), 10, loss)


def test_a_function_that_returns_a_loss_is_noticed_once() -> None:
    model, (x, y) = mlp(), batch()
    elbo = sb.ELBO(model, 10, lambda outputs, targets: -sb.Categorical().log_prob(outputs, targets))
    with pytest.warns(UserWarning, match="above 0.*return its negative"):
        elbo(model(x), y)
    elbo(model(x), y)  # warnings are errors here
    sb.ELBO(model, 10, lambda outputs, targets: sb.Categorical().log_prob(outputs, targets))(model(x), y)


def test_more_examples_than_num_data_are_noticed_once_and_in_training_only() -> None:
    model, (x, y) = mlp(), batch(12)
    elbo = sb.ELBO(model, 8)
    model.eval()
    elbo(model(x), y)
    model.train()
    with pytest.warns(UserWarning, match="batch of 12 .*num_data=8.*all training examples"):
        elbo(model(x), y)
    elbo(model(x), y)
    sb.ELBO(model, 12)(model(x), y)


@pytest.mark.parametrize("first", ["optimiser", "objective"])
def test_noise_that_no_optimiser_knows_is_noticed(first: str) -> None:
    model, (x, _) = mlp(1), batch()
    y = torch.randn(BATCH, dtype=torch.float64)
    early = torch.optim.SGD(model.parameters(), lr=0.01)
    elbo = sb.ELBO(model, 10, "gaussian")
    optimiser = early if first == "optimiser" else torch.optim.SGD(model.parameters(), lr=0.01)
    elbo(model(x), y)  # no step yet
    elbo(model(x), y).backward()
    optimiser.step()
    if first == "optimiser":
        with pytest.warns(UserWarning, match="gaussian likelihood learns.*1 parameters.*before the optimiser"):
            elbo(model(x), y)
    elbo(model(x), y)


def test_segmentation_is_trained_and_predicted_on_the_classes() -> None:
    classes = 4
    torch.manual_seed(0)
    x = torch.randn(64, 1, 4, 4)
    y = (x[:, 0] > 0).long() + 2 * (torch.arange(4) > 1).long()  # by value and by column
    net = nn.Sequential(nn.Conv2d(2, 16, 1), nn.ReLU(), nn.Conv2d(16, classes, 1))
    inputs = torch.cat([x, torch.arange(4.0).sub(1.5).expand(64, 1, 4, 4)], 1)
    model = sb.batch_ensemble(net, members=2)
    with pytest.raises(ValueError, match=r"\(2, 64, 4, 4, 4\).*likelihood="):
        model.predict(inputs).probs  # noqa: B018
    elbo = sb.ELBO(model, num_data=64)
    with pytest.raises(ValueError, match=r"first targets.*class_dim"):
        model.predict(inputs).probs  # noqa: B018
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(150):
        optimiser.zero_grad()
        elbo(model(inputs), y).backward()
        optimiser.step()
    p = model.predict(inputs)
    assert (p.label == y).double().mean() > 0.95
    assert p.probs.shape == (64, 4, 4, classes)
    torch.testing.assert_close(p.probs, p.draws.softmax(2).mean(0).movedim(1, -1))
    assert p.entropy.shape == p.mutual_information.shape == p.disagreement.shape == y.shape
    expected = F.nll_loss(p.draws.log_softmax(2)[0], y)
    torch.testing.assert_close(sb.Prediction(p.draws[:1], p.likelihood).log_likelihood(y).mean() / 16, -expected)
    assert sb.metrics.accuracy(p.probs, y).item() == pytest.approx((p.label == y).double().mean().item())
    assert sb.ELBO(model, num_data=64, likelihood="categorical").likelihood.class_dim == 2


def test_pairs_that_a_likelihood_does_not_know_are_named() -> None:
    model, (x, y) = mlp(), batch()
    with pytest.raises(TypeError, match="`targets` to be a tensor, but got tuple"):
        sb.ELBO(model, 10)(model(x), (y, y))
