"""Chains over whole networks: posteriors in closed form, what is kept, how draws pick, and what is refused."""

import io

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch._dynamo.testing import CompileCounter

import slimbayes as sb
from slimbayes.ensembles._without_replacement import without_replacement
from slimbayes.mcmc import CyclicalRate, chain_report, effective_sample_size, kept_samples, r_hat, to_arviz

NUM_DATA, NOISE = 40, 0.5


def regression(features: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return data of a linear function, whose features are of unlike sizes and go together."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(NUM_DATA, features, generator=generator).double()
    x[:, 1] = 0.7 * (x[:, 1] + 0.5 * x[:, 0])
    noise = NOISE * torch.randn(NUM_DATA, generator=generator).double()
    return x, x.sum(1) - 0.5 + noise


def posterior(
    features: torch.Tensor, y: torch.Tensor, prior_mean: float, prior_std: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and precision of the coefficients under N(prior_mean, prior_std^2) and noise of known size."""
    precision = features.T @ features / NOISE**2 + torch.eye(features.shape[1]).double() / prior_std**2
    return torch.linalg.solve(precision, features.T @ y / NOISE**2 + prior_mean / prior_std**2), precision


def check_posterior(samples, mean, precision, lr, decay, temperature=1.0):
    """Hold samples ``(chains, samples, d)`` against the posterior that steps of finite size have (see ``SGHMC``).

    Tolerance: 4.5 Monte Carlo standard errors, with the effective sample size of each product.
    """
    hessian, eye = precision / NUM_DATA, torch.eye(len(mean)).double()
    widened = hessian @ (eye - lr * hessian / (2 * (2 - decay)))
    whitener = torch.linalg.cholesky(widened * NUM_DATA / temperature)
    white = (samples - mean) @ whitener
    products = white.unsqueeze(-1) * white.unsqueeze(-2)
    for values, expected in ((white, torch.zeros_like(mean)), (products, eye)):
        ess = effective_sample_size(values, rank_normalised=False)
        error = values.flatten(0, 1).std(0) / ess.sqrt()
        assert ess.min() > 100
        assert ((values.mean((0, 1)) - expected).abs() < 4.5 * error).all()


def run_chains(model, x, y, algorithm, lr, decay, temperature, steps, every, burn_in=100):
    elbo = sb.ELBO(model, NUM_DATA, sb.Gaussian(noise=NOISE))
    options = {"momentum_decay": decay} if algorithm == "sghmc" else {}
    sampler = sb.chain_sampler(model, NUM_DATA, algorithm, lr=lr, temperature=temperature, **options)
    for step in range(burn_in + steps):
        sampler.zero_grad()
        elbo(model(x), y).backward()
        sampler.step()
        if step >= burn_in and step % every == 0:
            model.collect()


@pytest.mark.parametrize(
    ("algorithm", "lr", "decay", "temperature"), [("sghmc", 0.03, 0.4, 1.0), ("sgld", 0.06, 1.0, 0.2)]
)
def test_chains_over_weights_have_the_posterior_of_linear_regression(algorithm, lr, decay, temperature):
    x, y = regression()
    model = sb.sgmcmc(lambda: nn.Linear(3, 1).double(), members=3, keep=1000, prior_std=0.3)
    run_chains(model, x, y, algorithm, lr, decay, temperature, steps=2000, every=2)
    mean, precision = posterior(torch.cat([x, torch.ones(NUM_DATA, 1)], 1), y, 0.0, 0.3)
    samples = model.net.posterior.kept
    assert samples.shape == (3, 1000, 4)
    check_posterior(samples, mean, precision, lr, decay, temperature)
    assert (r_hat(samples) < 1.1).all()
    prediction = model.predict(x, samples=1000)  # the posterior mean of a linear function is that of its coefficients
    expected = torch.cat([x, torch.ones(NUM_DATA, 1)], 1) @ samples.mean((0, 1))
    torch.testing.assert_close(prediction.mean.squeeze(-1), expected, rtol=1e-9, atol=1e-9)


def counting_chains(kind: str, keep: int = 4, steps: int = 6, members: int = 2) -> sb.BayesianModel:
    """Return chains all of whose numbers were the step when a sample was kept, with the member as tenths."""
    if kind == "factors":
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        model = sb.sgmcmc(net, members, over="factors", keep=keep)
    else:
        model = sb.sgmcmc(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), members, keep=keep)
    for step in range(steps):
        with torch.no_grad():
            if kind == "factors":
                for factor in model.stochastic():
                    factor.loc.copy_((step + torch.arange(members) / 10)[:, None].expand_as(factor.loc))
            else:
                for member, network in enumerate(model.net.networks):
                    for value in [*network.parameters(), network[1].running_mean, network[1].running_var]:
                        value.fill_(step + member / 10)
        model.collect()
    return model


@pytest.mark.parametrize("kind", ["weights", "factors"])
def test_the_last_samples_are_kept_and_draws_are_joint(kind):
    model = counting_chains(kind)
    assert (model.collected, model.ready, model.needed) == (6, True, 1)
    for samples in kept_samples(model).values():
        expected = torch.tensor([2.0, 3.0, 4.0, 5.0]) + torch.tensor([[0.0], [0.1]])
        shape = (2, 4, *[1] * (samples.dim() - 2))
        torch.testing.assert_close(samples, expected.view(shape).expand_as(samples))
    for samples in (1, 3, 4, 6):
        draw = model.draw(samples)
        steps = torch.stack([value.flatten(1).mean(1) for value in draw.values()])
        assert all(
            (value == value.flatten(1)[:, :1].view(-1, *[1] * (value.dim() - 1))).all() for value in draw.values()
        )
        torch.testing.assert_close(steps, steps[:1].expand_as(steps))  # one time for all parts
        for member, times in enumerate(steps[0].view(2, samples)):
            assert {round(time.item() % 1, 1) for time in times} == {member / 10}
            counts = (times.round()[:, None] == torch.arange(2, 6)).sum(0)
            assert counts.sum() == samples
            assert counts.max() - counts.min() <= 1  # without replacement until all have been dealt


@pytest.mark.parametrize("kind", ["weights", "factors"])
def test_kept_samples_are_copies_and_survive_state_dict(kind):
    model = counting_chains(kind)
    before = {name: value.clone() for name, value in model.kept_draw().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    twin = counting_chains(kind, steps=1)
    twin.load_state_dict(model.state_dict())
    for chains in (model, twin):
        assert chains.collected == 6
        assert all(torch.equal(value, before[name]) for name, value in chains.kept_draw().items())


@pytest.mark.parametrize("kind", ["weights", "factors"])
def test_predictions_in_chunks_of_samples_use_every_kept_sample_once(kind):
    model, x = counting_chains(kind), torch.randn(5, 3)
    expected = model.eval()(x, draw=model.kept_draw()).unflatten(0, (2, 4))
    with torch.no_grad():
        found = model.predict(x, samples=4, max_memory=1, likelihood="categorical").draws.unflatten(0, (2, 4))
    for member in range(2):
        distances = torch.cdist(found[member].flatten(1), expected[member].flatten(1))
        assert sorted(distances.argmin(1).tolist()) == [0, 1, 2, 3]
        assert distances.min(1).values.max() < 1e-3


def test_a_kept_network_has_the_statistics_of_its_time():
    model = counting_chains("weights")
    draw = model.kept_draw()
    for member in range(2):
        for sample in range(4):
            net = model.member(member, sample=sample, draw=draw)
            expected = torch.full((2,), 2 + sample + member / 10)
            torch.testing.assert_close(net[1].running_mean, expected)
            torch.testing.assert_close(net[1].bias.detach(), expected)
        torch.testing.assert_close(model.member(member)[1].running_var, torch.full((2,), 3.5 + member / 10))


def test_picks_are_uniform_and_those_of_a_few_begin_those_of_many():
    generator = torch.Generator()
    few, many = (without_replacement(3, 5, samples, generator.manual_seed(1)) for samples in (2, 12))
    assert torch.equal(few, many[:, :2])
    first = without_replacement(4000, 5, 1, generator.manual_seed(2))
    counts = torch.bincount(first.flatten(), minlength=5)
    assert (counts - 800).abs().max() < 4.5 * (4000 * 0.2 * 0.8) ** 0.5


def test_kept_networks_in_one_pass_equal_one_by_one():
    model = counting_chains("weights")
    x, draw = torch.randn(5, 3), model.eval().draw(3)
    expected = model(x, draw=draw)
    model.net.vectorised = True
    torch.testing.assert_close(model(x, draw=draw), expected)
    assert not model.net.refuses_vmap


@pytest.mark.parametrize("over", ["weights", "factors"])
def test_in_training_the_chains_run_and_in_evaluation_their_samples(over):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    source = net if over == "factors" else [net, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))]
    model = sb.sgmcmc(source, members=2, over=over)
    x = torch.randn(5, 3)
    early = model(x)
    torch.testing.assert_close(model.eval()(x, samples=0), early)  # nothing is kept: the chains as they are
    model.collect()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if over == "weights" or name.endswith("loc"):
                parameter.mul_(1.5)
    for noise in ("example", "shared"):
        torch.testing.assert_close(model.eval()(x, noise=noise, samples=2), early.repeat_interleave(2, 0))
        now = model.train()(x, noise=noise)
        assert not torch.allclose(now, early)
        torch.testing.assert_close(model(x, noise=noise, samples=2), now.repeat_interleave(2, 0))
    alone = [model.member(k).eval()(x) for k in range(2)]  # of the kept sample, in either mode
    torch.testing.assert_close(torch.stack(alone), early)


def test_the_noise_that_whole_networks_share_is_optimised_at_its_own_rate():
    x, y = regression()
    model = sb.sgmcmc(lambda: nn.Linear(3, 1).double(), members=3)
    elbo = sb.ELBO(model, NUM_DATA, "gaussian")
    rho = model.likelihood.rho
    outputs = model(x).detach()
    (gradient,) = torch.autograd.grad(elbo.terms(outputs, y).nll, rho)  # of the mean over the members
    expected = rho.item() - 0.1 * gradient.item()
    sampler = sb.chain_sampler(model, NUM_DATA, "sgld", lr=1e-3, base_lr=0.1)
    elbo(model(x), y).backward()
    sampler.step()
    assert rho.item() == pytest.approx(expected, rel=1e-6)


def digits() -> tuple[torch.Tensor, ...]:
    bunch = load_digits()
    x, y = torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)
    return x[:1000], y[:1000], x[1000:], y[1000:]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.mark.parametrize(("over", "lr"), [("weights", 0.1), ("factors", 0.1)])
def test_cyclical_chains_learn_digits(over, lr):
    x, y, test_x, test_y = digits()
    model = sb.sgmcmc(mlp, members=2, over=over, keep=6, prior_std=0.5)
    elbo = sb.ELBO(model, len(x))
    sampler = sb.chain_sampler(model, len(x), lr=lr)
    rate = CyclicalRate(steps=300, cycles=3, exploration=0.7)
    schedule = torch.optim.lr_scheduler.LambdaLR(sampler, rate)
    for step in range(300):
        rows = torch.randint(len(x), (100,))
        sampler.switch_noise(rate.sampling(step))
        sampler.zero_grad()
        elbo(model(x[rows]), y[rows]).backward()
        sampler.step()
        schedule.step()
        if rate.sampling(step) and step % 15 == 14:
            model.collect()
    assert model.collected == 6
    prediction = model.predict(test_x, samples=6)
    assert prediction.draws.shape == (12, 797, 10)
    assert (prediction.label == test_y).float().mean() > 0.8
    assert prediction.mutual_information.mean() > 0


@pytest.mark.parametrize("over", ["weights", "factors"])
def test_a_run_resumes_bit_by_bit(over):
    x, y = digits()[:2]

    def build():
        torch.manual_seed(0)
        model = sb.sgmcmc(mlp, members=2, over=over, keep=3)
        return model, sb.ELBO(model, len(x)), sb.chain_sampler(model, len(x), lr=0.05)

    def train(model, elbo, sampler, steps):
        for _ in range(steps):
            rows = torch.randint(len(x), (20,))
            sampler.zero_grad()
            elbo(model(x[rows]), y[rows]).backward()
            sampler.step()
            model.collect()
        return model.state_dict()

    whole = build()
    train(*whole, steps=2)
    stored = io.BytesIO()
    torch.save([whole[0].state_dict(), whole[2].state_dict(), torch.get_rng_state()], stored)
    expected = train(*whole, steps=2)
    stored.seek(0)
    weights, state, noise = torch.load(stored)
    resumed = build()
    resumed[0].load_state_dict(weights)
    resumed[2].load_state_dict(state)
    torch.set_rng_state(noise)
    found = train(*resumed, steps=2)
    assert resumed[0].collected == 4
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


def noisy_chains() -> sb.BayesianModel:
    model = sb.sgmcmc(lambda: nn.Linear(2, 3), members=3, keep=12)
    for _ in range(15):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        model.collect()
    return model


def test_the_report_is_of_parameters_and_outputs():
    model, x = noisy_chains(), torch.randn(4, 2)
    report = chain_report(model, x)
    assert (report.chains, report.samples) == (3, 12)
    samples = kept_samples(model)
    by_hand = torch.einsum("bi,ksoi->ksbo", x, samples["weight"]) + samples["bias"].unsqueeze(2)
    for name, draws in {**samples, "output": by_hand}.items():
        assert report.factors[name].max_r_hat == pytest.approx(r_hat(draws).max().item(), rel=1e-4)
        assert report.factors[name].min_ess == pytest.approx(effective_sample_size(draws).min().item(), rel=1e-4)
    assert list(report.factors) == ["weight", "bias", "output"]
    assert list(chain_report(model).factors) == ["weight", "bias"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("over", ["weights", "factors"])
def test_a_compiled_model_that_trains_is_not_compiled_anew_for_each_sample(over):
    model, counter = sb.sgmcmc(lambda: nn.Linear(2, 3), members=2, over=over), CompileCounter()
    compiled, frames, x = torch.compile(model, backend=counter), [], torch.randn(4, 2)
    for _ in range(5):
        compiled(x)
        frames.append(counter.frame_count)
        model.collect()
    assert frames[1] > 0
    assert frames[1:] == [frames[1]] * 4


class Counted(nn.Module):
    """Sums what its tokens stand for; 0 is padding."""

    def __init__(self, padding: float = 0.0, tied: bool = False):
        super().__init__()
        self.table = nn.Embedding(5, 3, padding_idx=0)
        nn.init.constant_(self.table.weight.data[0], padding)
        self.head = nn.Linear(3, 5)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.table(tokens).sum(1))


@pytest.mark.parametrize("algorithm", ["sgld", "sghmc"])
@pytest.mark.parametrize("padding", [0.0, 2.0])
def test_padding_stays_where_it_is(algorithm, padding):
    model, tokens = sb.sgmcmc(lambda: Counted(padding), 2), torch.tensor([[1, 2, 0], [3, 0, 0], [4, 1, 2]])
    elbo, start = sb.ELBO(model, 3), [p.detach().clone() for p in model.parameters()]
    sampler = sb.chain_sampler(model, 3, algorithm)
    for _ in range(5):
        sampler.zero_grad()
        elbo(model(tokens), torch.tensor([0, 1, 2])).backward()
        sampler.step()
    for before, after in zip(start, model.parameters(), strict=True):
        rows = slice(1, None) if before.shape == (5, 3) and (before[0] == padding).all() else slice(None)
        assert torch.equal(before[: rows.start or 0], after[: rows.start or 0])
        assert (before[rows] != after[rows]).all()
    alone = [network(torch.tensor([[1, 2]])) for network in model.net.networks]
    if padding == 0:
        torch.testing.assert_close([network(tokens[:1]) for network in model.net.networks], alone)


def test_a_padding_row_with_a_use_elsewhere_is_sampled():
    model = sb.sgmcmc(lambda: Counted(tied=True), 1)
    sampler = sb.chain_sampler(model, 3)
    sb.ELBO(model, 3)(model(torch.tensor([[1, 0]])), torch.tensor([0])).backward()
    sampler.step()
    assert model.net.networks[0].table.weight[0].all()


def test_kept_samples_go_to_arviz():
    arviz = pytest.importorskip("arviz")
    model = noisy_chains()
    assert arviz.rhat(to_arviz(kept_samples(model)))["bias"].shape == (3,)


ERRORS = {
    "no sample": (lambda: sb.sgmcmc(mlp).eval()(torch.ones(2, 64)), RuntimeError, r"no kept sample.*model.collect\(\)"),
    "no prediction": (lambda: sb.sgmcmc(mlp).predict(torch.ones(2, 64)), RuntimeError, "no kept sample"),
    "no draw": (lambda: sb.sgmcmc(mlp, over="factors").draw(), RuntimeError, "no kept sample"),
    "no factor": (
        lambda: sb.sgmcmc(mlp, over="factors").predict(torch.ones(2, 64)),
        RuntimeError,
        "no kept sample",
    ),
    "no report": (lambda: chain_report(sb.sgmcmc(mlp)), RuntimeError, "no kept sample"),
    "keep": (lambda: sb.sgmcmc(mlp, keep=0), ValueError, "`keep`.*at least 1, but got 0"),
    "keep of factors": (lambda: sb.sgmcmc(mlp, over="factors", keep=0.5), ValueError, "`keep`.*but got 0.5"),
    "over": (lambda: sb.sgmcmc(mlp, over="factor"), ValueError, "`over`.*Did you mean 'factors'"),
    "include": (lambda: sb.sgmcmc(mlp, include="0"), ValueError, "`include`.*belongs to over='factors'"),
    "rank": (lambda: sb.sgmcmc(mlp, rank=2), ValueError, "`rank`.*belongs to over='factors'"),
    "frozen": (lambda: sb.sgmcmc(mlp, freeze_base=True), ValueError, "`freeze_base`.*over='factors'"),
    "vectorised": (
        lambda: sb.sgmcmc(mlp, over="factors", vectorised=True),
        ValueError,
        "`vectorised`.*belongs to over='weights'",
    ),
    "one network": (lambda: sb.sgmcmc(mlp(), members=3), ValueError, "3 networks, but got 1"),
    "unlike networks": (
        lambda: sb.sgmcmc([nn.Linear(3, 2), nn.Linear(3, 2, bias=False)]),
        ValueError,
        "`networks`.*one architecture",
    ),
    "prior": (lambda: sb.sgmcmc(mlp, prior_std=0.0), ValueError, "`prior_std`"),
    "no chains": (lambda: sb.chain_sampler(sb.rank1(mlp()), 10), TypeError, "made by rank1.*sb.sgmcmc"),
    "algorithm": (lambda: sb.chain_sampler(sb.sgmcmc(mlp), 10, "sgd"), ValueError, "`algorithm`"),
    "rate": (lambda: sb.chain_sampler(sb.sgmcmc(mlp), 10, lr=-1.0), ValueError, "`lr`"),
    "base rate": (lambda: sb.chain_sampler(sb.sgmcmc(mlp), 10, base_lr=-1.0), ValueError, "`base_lr`"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_misuse_is_named(name):
    misuse, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        misuse()
