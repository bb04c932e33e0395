"""The network for health records against a loop over its events, and what the methods make of it."""

import pytest
import torch

import slimbayes as sb
from slimbayes.nets.ehr import RecordClassifier


def small_net():
    torch.manual_seed(0)
    return RecordClassifier(variables=6, context=2, bags=4, bag_hours=12, embedding=5, hidden=7, dense=8)


def some_records(rows=6, events=9):
    g = torch.Generator().manual_seed(1)
    variables = torch.randint(0, 6, (rows, events), generator=g)
    variables[1] = 0  # a record without events
    times = torch.rand(rows, events, generator=g) * 50  # some are beyond the last bag
    return times, variables, torch.randn(rows, events, generator=g), torch.randn(rows, 2, generator=g)


def by_hand(net, times, variables, values, context):
    """One record, event by event; times, variables and values are lists."""
    bags = [[] for _ in range(net.bags)]
    for t, v, x in zip(times.tolist(), variables.tolist(), values.tolist(), strict=True):
        if v:
            bags[min(int(t // 12), 3)].append(net.variable.weight[v] + x * net.slope.weight[v])
    last = max((i for i, bag in enumerate(bags) if bag), default=0)
    means = [sum(bag) / len(bag) if bag else torch.zeros(5) for bag in bags[: last + 1]]
    output, _ = net.lstm(torch.stack(means).unsqueeze(0))
    hidden = net.dense(torch.cat([output[0, -1], context])).clamp(0, 6)
    return net.head(hidden)


def test_it_is_what_a_loop_says():
    net, records = small_net(), some_records()
    expected = torch.stack([by_hand(net, *(part[row] for part in records)) for row in range(6)])
    torch.testing.assert_close(net(*records), expected)


def test_padding_and_the_order_of_events_change_nothing():
    net, (times, variables, values, context) = small_net(), some_records()
    expected = net(times, variables, values, context)
    longer = [torch.cat([part, torch.zeros(6, 3, dtype=part.dtype)], 1) for part in (times, variables, values)]
    torch.testing.assert_close(net(*longer, context), expected)
    torch.testing.assert_close(net(times.flip(1), variables.flip(1), values.flip(1), context), expected)


MODELS = {
    "rank1": lambda net: sb.rank1(net, members=3),
    "rank1, Bayesian embeddings": lambda net: sb.rank1(net, members=3, embedding="mean_field"),
    "rank1, shared": lambda net: sb.rank1(net, members=3, noise="shared"),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=3),
    "mean_field": sb.mean_field,
    "mean_field, local": lambda net: sb.mean_field(net, estimator="local"),
    "mean_field, flipout": lambda net: sb.mean_field(net, estimator="flipout"),
    "k_tied": sb.k_tied,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_method_converts_it(make):
    model, records = make(small_net()), some_records()
    model.check(*records)
    outputs = model(*records, samples=2)
    assert outputs.shape == (2 * model.members, 6, 1)
    loss = sb.ELBO(model, num_data=6, likelihood="bernoulli")(outputs, torch.tensor([0.0, 1, 0, 1, 0, 1]))
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_it_learns_from_a_value_at_a_time():
    """Whether variable 2 was above 0 on the last day; on earlier days it says nothing."""
    g = torch.Generator().manual_seed(2)
    values = torch.randn(128, 4, generator=g)
    times = torch.tensor([1.0, 13.0, 25.0, 37.0]).expand(128, 4)
    inputs = times, torch.full((128, 4), 2), values, torch.zeros(128, 2)
    targets = (values[:, 3] > 0).float()
    net = small_net()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(80):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(*inputs).squeeze(1), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"variables": 1}, "padding"),
        ({"context": -1}, "`context`"),
        ({"bags": 0}, "`bags`"),
        ({"bag_hours": 0}, "hours"),
    ],
)
def test_arguments_that_make_no_sense(options, word):
    with pytest.raises(ValueError, match=word):
        RecordClassifier(**{"variables": 5, "context": 2, **options})
