"""Networks that take sequences first, and torch's whole transformer."""

import pytest
import torch
from torch import nn

import slimbayes as sb

TIME, BATCH, WIDTH = 6, 4, 8


class Tagger(nn.Module):
    """LSTM and linear layer on (time, batch, width), norm in between; a class for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(self.lstm(x)[0]))


class LastStep(Tagger):
    """The same, but one answer for each sequence."""

    def forward(self, x):
        return super().forward(x)[-1]


class Inside(nn.Module):
    """Batch first outside, sequence first inside: the encoder's own layout is its own business."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.layer(x.transpose(0, 1)).transpose(0, 1))


def encoder():
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0), 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False
    )


@pytest.mark.parametrize("build", [Tagger, LastStep, encoder])
@pytest.mark.parametrize("options", [{}, {"member_norm": True}, {"noise": "shared"}])
# Equal lengths, and a time axis that is a multiple of the rows, are where axes get mixed up.
@pytest.mark.parametrize("time", [TIME, BATCH, 3 * BATCH])
def test_batch_dim_one_equals_each_member_alone(build, options, time):
    model = sb.rank1(build(), members=3, batch_dim=1, **options).eval()
    x = torch.randn(time, BATCH, WIDTH)
    draw = model.draw(2)
    outputs, locations = model(x, draw=draw), model(x, samples=0)
    for k in range(3):
        torch.testing.assert_close(locations[k], model.member(k)(x), rtol=1e-4, atol=1e-5)
        for s in range(2):
            torch.testing.assert_close(outputs[2 * k + s], model.member(k, s, draw=draw)(x), rtol=1e-4, atol=1e-5)
    assert model(x, samples=2).shape == outputs.shape


def test_splitting_along_axis_one():
    model = sb.batch_ensemble(Tagger(), 3, train_on="split", batch_dim=1)
    x = torch.randn(TIME, 7, WIDTH)
    outputs = model(x)
    assert outputs.shape == (1, TIME, 7, 3)
    plain = [model.member(k)(x) for k in range(3)]
    first = min(range(3), key=lambda k: (outputs[0][:, 0] - plain[k][:, 0]).abs().max().item())
    for b in range(7):
        torch.testing.assert_close(outputs[0][:, b], plain[(first + b) % 3][:, b], rtol=1e-4, atol=1e-5)


def test_an_attention_mask_for_each_head_of_each_example():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

        def forward(self, x, mask):
            return self.attend(x, x, x, attn_mask=mask)[0]

    model = sb.rank1(Attention(), members=3)
    x, mask = torch.randn(BATCH, TIME, WIDTH), torch.randn(BATCH * 2, TIME, TIME)
    outputs = model(x, sb.BatchAxis(mask, 0), samples=0)
    chunked = model.predict(x, sb.BatchAxis(mask, 0), samples=0, batch_size=3).draws
    for k in range(3):
        torch.testing.assert_close(outputs[k], model.member(k)(x, mask), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(chunked, outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("time", [TIME, 3 * BATCH])
def test_sequence_first_inside_a_batch_first_network(time):
    model = sb.rank1(Inside(), members=3).eval()
    x = torch.randn(BATCH, time, WIDTH)
    outputs = model(x, samples=0)
    for k in range(3):
        torch.testing.assert_close(outputs[k], model.member(k)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")  # torch's own, of a plain network
@pytest.mark.parametrize("batch_first", [True, False])
def test_encoder_and_decoder(batch_first):
    net = nn.Transformer(WIDTH, 2, 1, 1, 16, dropout=0.0, batch_first=batch_first)
    model = sb.rank1(net, members=2, batch_dim=0 if batch_first else 1).eval()
    source, target = torch.randn(BATCH, 7, WIDTH), torch.randn(BATCH, 5, WIDTH)
    if not batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    outputs = model(source, target, tgt_mask=sb.BatchAxis(mask, None), samples=0)
    for k in range(2):
        expected = model.member(k)(source, target, tgt_mask=mask)
        torch.testing.assert_close(outputs[k], expected, rtol=1e-4, atol=1e-5)


def test_a_layer_that_never_sees_the_batch_is_named_in_the_error():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(2, WIDTH)
            self.head = nn.Linear(WIDTH, 3)

        def forward(self, x):
            return self.head(x + self.project(torch.ones(x.shape[1], 2)))

    x = torch.randn(BATCH, 7, WIDTH)
    with pytest.raises(ValueError, match="project.*7 rows.*exclude"):
        sb.rank1(Positions())(x)
    assert sb.rank1(Positions(), exclude="project")(x).shape == (4, BATCH, 7, 3)


def test_a_layer_that_never_sees_the_batch_is_named_also_when_the_members_would_divide_its_rows():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(2, WIDTH)

        def forward(self, x):
            return x + self.project(torch.ones(x.shape[1], 2))

    with pytest.raises(ValueError, match="project.*8 rows.*exclude"):
        sb.batch_ensemble(Positions(), 4)(torch.randn(BATCH, 8, WIDTH))
