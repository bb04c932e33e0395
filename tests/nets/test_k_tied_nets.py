"""The k-tied Normal paper's networks, against their equations written out with torch.nn.functional."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import slimbayes as sb

CLASSIFIER = {"vocabulary": 11, "embedding": 3, "hidden": 4, "outputs": 2}


def lenet(weights, x):
    for layer in ("0", "3"):
        kernel = weights[f"{layer}.weight"]
        x = F.conv2d(x, kernel, weights[f"{layer}.bias"], padding=kernel.shape[-1] // 2)
        x = F.max_pool2d(F.relu(x), 2)
    x = F.relu(F.linear(x.reshape(len(x), -1), weights["7.weight"], weights["7.bias"]))
    return F.linear(x, weights["9.weight"], weights["9.bias"])


def classifier(weights, tokens):
    embedded = weights["embedding.weight"][tokens]
    hidden = cell = torch.zeros(len(tokens), weights["lstm.weight_hh_l0"].shape[1], dtype=embedded.dtype)
    for t in range(tokens.shape[1]):
        gates = embedded[:, t] @ weights["lstm.weight_ih_l0"].T + hidden @ weights["lstm.weight_hh_l0"].T
        i, f, g, o = (gates + weights["lstm.bias_ih_l0"] + weights["lstm.bias_hh_l0"]).chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
    return hidden @ weights["head.weight"].T + weights["head.bias"]


def resnet(weights, x, training):
    def norm(x, name):
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        if training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        mean, variance, scale, shift = (
            v[:, None, None] for v in (mean, variance, weights[f"{name}.weight"], weights[f"{name}.bias"])
        )
        return (x - mean) / (variance + 1e-3).sqrt() * scale + shift

    def conv(x, name, stride, padding):
        return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding)

    x = conv(x, "stem", 1, 1)
    for block, stride in enumerate((1, 2, 2, 2)):
        name = f"blocks.{block}"
        x = F.relu(norm(x, f"{name}.norm1"))
        y = F.relu(norm(conv(x, f"{name}.conv1", stride, 1), f"{name}.norm2"))
        x = conv(y, f"{name}.conv2", 1, 1) + conv(x, f"{name}.shortcut", stride, 0)
    x = F.avg_pool2d(F.relu(norm(x, "norm")), 4).flatten(1)
    return F.linear(x, weights["head.weight"], weights["head.bias"])


def disturb(net):
    """Move every weight and statistic in place, biases from their zeros too."""
    with torch.no_grad():
        for tensor in net.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.2 * torch.rand_like(tensor)


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- parameter counts (reference-semantics.md, 11)


@pytest.mark.parametrize(
    ("build", "parameters", "with_statistics"),
    [
        (sb.nets.LeNet, 2_202_660, 2_202_660),
        (lambda: sb.nets.LeNet(kernel=3), 896 + 18_496 + 2_097_664 + 51_300, 2_168_356),
        (lambda: sb.nets.LeNet(10, 1, 28), 832 + 51_264 + 3136 * 512 + 512 + 5130, 1_663_370),
        (sb.nets.SequenceClassifier, 2_560_000 + 131_072 + 512 + 129, 2_691_713),
        (sb.nets.ResNet4, 4_901_568 + 2_954 + 7_936 // 2, 4_912_458),
    ],
)
def test_parameters(build, parameters, with_statistics):
    with torch.device("meta"):
        net = build()
    assert sb.count_parameters(net) == parameters
    assert sb.count_parameters(net, running_statistics=True) == with_statistics


@pytest.mark.parametrize(
    ("build", "tied", "mean_field", "expected"),
    [
        (
            lambda: sb.nets.MLP(784, [400, 400], 10),
            "1.weight 3.weight 5.weight",
            "1.bias 3.bias 5.bias",
            (956_820, 481_614, 484_008, 486_402),
        ),
        (
            sb.nets.LeNet,
            "7.weight 9.weight",
            "0.weight 0.bias 3.weight 3.bias 7.bias 9.bias",
            (4_405_320, 2_262_188, 2_267_408, 2_272_628),
        ),
        (
            sb.nets.SequenceClassifier,
            "lstm.weight_ih_l0 lstm.weight_hh_l0",
            "",
            (2_822_785, 2_692_993, 2_694_273, 2_695_553),
        ),
        (
            sb.nets.ResNet4,
            "stem.weight head.weight "
            + " ".join(f"blocks.{i}.{name}.weight" for i in range(4) for name in ("shortcut", "conv1", "conv2")),
            "",
            (9_814_026, 4_929_711, 4_946_964, 4_964_217),
        ),
    ],
    ids=["MLP", "LeNet", "LSTM", "ResNet-18"],
)
def test_shapes_give_the_counts_of_figure_6_and_table_5(build, tied, mean_field, expected):
    with torch.device("meta"):
        net = build()
    shapes = {name: (parameter.shape[0], parameter[0].numel()) for name, parameter in net.named_parameters()}
    matrices = [shapes[name] for name in tied.split()]
    plain = sb.count_parameters(net, running_statistics=True) + sum(
        m * n for m, n in map(shapes.get, mean_field.split())
    )
    counts = [plain + sum(m * n for m, n in matrices), *(plain + k * sum(map(sum, matrices)) for k in (1, 2, 3))]
    assert tuple(counts) == expected


# ---------------------------------------------------------------------- forward passes


@pytest.mark.parametrize(("channels", "size", "kernel"), [(3, 32, 5), (1, 30, 3)])
def test_lenet(channels, size, kernel):
    net = sb.nets.LeNet(7, channels, size, kernel).double()
    x = torch.randn(2, channels, size, size, dtype=torch.float64)
    assert_equal(net(x), lenet(net.state_dict(), x))


@pytest.mark.parametrize("training", [True, False])
def test_resnet4(training):
    net = sb.nets.ResNet4(classes=5, width=2).double()
    disturb(net)
    net.train(training)
    before = copy.deepcopy(net.state_dict())
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    assert_equal(net(x), resnet(before, x, training))


def test_resnet4_moves_its_running_statistics_by_a_hundredth():
    net = sb.nets.ResNet4(width=2).double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    net(x)
    stem = net.stem(x)
    norm = net.blocks[0].norm1
    assert_equal(norm.running_mean, 0.01 * stem.mean((0, 2, 3)))
    assert_equal(norm.running_var, 0.99 + 0.01 * stem.var((0, 2, 3)))


def test_sequence_classifier_and_its_gradients():
    net = sb.nets.SequenceClassifier(**CLASSIFIER).double()
    tokens = torch.randint(11, (5, 6))
    weights = {name: tensor.clone().requires_grad_() for name, tensor in net.state_dict().items()}
    output, expected = net(tokens), classifier(weights, tokens)
    assert_equal(output, expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in net.named_parameters():
        assert_equal(parameter.grad, weights[name].grad)
    assert net.lstm.bias_hh_l0.grad is None


# ---------------------------------------------------------------------- the bias that is a buffer


def loaded(net, **kwargs):
    other = sb.nets.SequenceClassifier(**CLASSIFIER).double()
    other.load_state_dict(net.state_dict(), **kwargs)
    return other


def saved(net):
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


JOURNEYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "save": saved,
    "there and back": lambda net: net.float().double(),
    "load_state_dict": loaded,
    "load_state_dict, assign": lambda net: loaded(net, assign=True),
    "after a forward pass": lambda net: (net(torch.tensor([[0]])), net)[1],
}


@pytest.mark.parametrize("journey", JOURNEYS.values(), ids=JOURNEYS)
def test_the_second_bias_stays_a_buffer_that_is_computed_with(journey):
    net = journey(sb.nets.SequenceClassifier(**CLASSIFIER).double())
    assert "lstm.bias_hh_l0" in dict(net.named_buffers())
    assert "lstm.bias_hh_l0" not in dict(net.named_parameters())
    assert sb.count_parameters(net) == 11 * 3 + 16 * (3 + 4 + 1) + 2 * (4 + 1)
    tokens = torch.randint(11, (5, 6))
    assert net.lstm.bias_hh_l0.eq(0).all()
    assert_equal(net(tokens), classifier(net.state_dict(), tokens))
    disturb(net)  # a list of stale weights would not notice
    assert net.lstm.bias_hh_l0.ne(0).all()
    assert_equal(net(tokens), classifier(net.state_dict(), tokens))


def test_the_lstm_takes_the_weights_of_a_plain_one():
    plain = nn.LSTM(3, 4, batch_first=True)
    net = sb.nets.SequenceClassifier(**CLASSIFIER)
    net.lstm.load_state_dict(plain.state_dict())
    x = torch.randn(5, 6, 3)
    torch.testing.assert_close(net.lstm(x)[0], plain(x)[0])


def test_the_classifier_begins_as_in_keras():
    net = sb.nets.SequenceClassifier(vocabulary=500, embedding=30, hidden=20)
    lstm = net.lstm
    recurrent = lstm.weight_hh_l0.detach()
    torch.testing.assert_close(recurrent.T @ recurrent, torch.eye(20))
    assert lstm.bias_ih_l0.tolist() == [0.0] * 20 + [1.0] * 20 + [0.0] * 40
    assert net.head.bias.tolist() == [0.0]
    limits = [(net.embedding.weight, 0.05), (lstm.weight_ih_l0, (6 / 110) ** 0.5), (net.head.weight, (6 / 21) ** 0.5)]
    for weight, limit in limits:
        assert 0.8 * limit < weight.abs().max() <= limit
    for weight, limit in limits[:2]:  # a uniform distribution has a standard deviation of limit / sqrt(3)
        assert weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.05)


def test_the_classifier_converts_and_folds():
    model = sb.rank1(sb.nets.SequenceClassifier(**CLASSIFIER).double(), members=3)
    assert model.summary().converted == ["lstm", "head"]
    tokens = torch.randint(11, (5, 6))
    draw = model.draw(2)
    outputs = model(tokens, draw=draw)
    for row in range(6):
        member = model.member(row // 2, draw=draw, sample=row % 2)
        assert_equal(classifier(member.state_dict(), tokens), outputs[row])
        assert_equal(member(tokens), outputs[row])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: sb.nets.LeNet(size=3), ["`size`", "3", "halve"]),
        (lambda: sb.nets.LeNet(classes=0), ["`classes`", "0"]),
        (lambda: sb.nets.LeNet(kernel=2.5), ["`kernel`", "2.5"]),
        (lambda: sb.nets.LeNet(channels=-1), ["`channels`", "-1"]),
        (lambda: sb.nets.SequenceClassifier(vocabulary=0), ["`vocabulary`", "0"]),
        (lambda: sb.nets.SequenceClassifier(hidden=0), ["`hidden`", "0"]),
        (lambda: sb.nets.ResNet4(width=0), ["`width`", "0"]),
        (lambda: sb.nets.ResNet4(classes=True), ["`classes`", "True"]),
    ],
)
def test_errors_name_the_argument(build, words):
    with pytest.raises(ValueError, match="Expected argument") as error:
        build()
    for word in words:
        assert word in str(error.value)
