"""What a layer cannot do, it refuses by name, and never broadcasts in silence."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.layers import (
    Rank1Conv2d,
    Rank1ConvTranspose1d,
    Rank1GRU,
    Rank1Linear,
    Rank1LSTM,
    Rank1MultiheadAttention,
)

MEMBERS = 3
LINEAR = Rank1Linear(5, 7, members=MEMBERS)
POINT = Rank1Linear(5, 7, members=MEMBERS, family="delta")
CONV = Rank1Conv2d(4, 6, 3, members=MEMBERS)
TRANSPOSED = Rank1ConvTranspose1d(4, 6, 3, members=MEMBERS)
LSTM = Rank1LSTM(3, 4, members=MEMBERS)
GRU = Rank1GRU(3, 4, members=MEMBERS, family="delta")
ATTENTION = Rank1MultiheadAttention(8, 2, members=MEMBERS)
QUERY = torch.zeros(5, 6, 8)


def attend(**kwargs):
    return ATTENTION(QUERY, QUERY, QUERY, **kwargs)


ERRORS = {
    "rows_linear": (lambda: LINEAR(torch.zeros(7, 5)), r"Rank1Linear got 7 rows.*3 members"),
    "rows_point": (lambda: POINT(torch.zeros(7, 5)), r"Rank1Linear got 7 rows.*\(7, 5\).*3 draws"),
    "rows_conv": (lambda: CONV(torch.zeros(7, 4, 5, 5)), r"Rank1Conv2d got 7 rows.*3 members"),
    "rows_lstm": (lambda: LSTM(torch.zeros(2, 7, 3)), r"Rank1LSTM got 7 rows.*3 members"),
    "rows_gru_point": (lambda: GRU(torch.zeros(2, 7, 3)), r"Rank1GRU got 7 rows.*3 draws"),
    "rows_attention": (lambda: ATTENTION(*[torch.zeros(5, 7, 8)] * 3), r"Rank1MultiheadAttention got 7 rows"),
    "no_batch_linear": (lambda: LINEAR(torch.zeros(5)), r"Rank1Linear.*\(5,\) with no batch axis"),
    "no_batch_conv": (lambda: CONV(torch.zeros(4, 5, 5)), r"Rank1Conv2d.*4 dimensions.*\(4, 5, 5\)"),
    "no_batch_lstm": (lambda: LSTM(torch.zeros(5, 3)), r"Rank1LSTM.*3 dimensions.*\(5, 3\)"),
    "no_batch_attention": (lambda: ATTENTION(*[torch.zeros(5, 8)] * 3), r"Rank1MultiheadAttention.*\(5, 8\)"),
    "one_channel_linear": (lambda: LINEAR(torch.zeros(6, 1)), r"Rank1Linear expected 5 channels.*\(6, 1\)"),
    "one_channel_conv": (lambda: CONV(torch.zeros(6, 1, 5, 5)), r"Rank1Conv2d expected 4 channels on axis 1"),
    "one_channel_transposed": (
        lambda: TRANSPOSED(torch.zeros(6, 1, 5)),
        r"Rank1ConvTranspose1d expected 4 channels.*\(6, 1, 5\)",
    ),
    "one_feature_lstm": (lambda: LSTM(torch.zeros(2, 6, 1)), r"Rank1LSTM expected 3 features, but got 1"),
    "one_feature_attention": (
        lambda: ATTENTION(*[torch.zeros(5, 6, 1)] * 3),
        r"Rank1MultiheadAttention expected 8 channels",
    ),
    "state_of_one_row": (
        lambda: LSTM(torch.zeros(2, 6, 3), (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))),
        r"Rank1LSTM.*`hx`.*\(1, 6, 4\).*\(1, 1, 4\)",
    ),
    "state_without_cell": (lambda: LSTM(torch.zeros(2, 6, 3), torch.zeros(1, 6, 4)), r"Rank1LSTM.*`hx`"),
    "causal_hint_alone": (lambda: attend(is_causal=True), r"`is_causal`.*`attn_mask`"),
    "mask_shape": (
        lambda: attend(attn_mask=torch.zeros(6, 5, 5)),
        r"Rank1MultiheadAttention.*`attn_mask`.*\(5, 5\) or \(12, 5, 5\).*\(6, 5, 5\)",
    ),
    "padding_of_one_row": (
        lambda: attend(key_padding_mask=torch.zeros(1, 5)),
        r"`key_padding_mask`.*\(6, 5\).*got \(1, 5\)",
    ),
    "byte_mask": (lambda: attend(attn_mask=torch.zeros(5, 5, dtype=torch.uint8)), r"`attn_mask`.*torch\.uint8"),
}


@pytest.mark.parametrize(("call", "message"), ERRORS.values(), ids=ERRORS)
def test_refusal_names_the_layer(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("axis", [2, 3, -1])
def test_rows_on_the_channels_axis(axis):
    layer = Rank1Linear(5, 7, members=MEMBERS)
    layer.row_dim = axis
    with pytest.raises(ValueError, match=rf"Rank1Linear.*rows are on axis {axis}.*\(6, 4, 5\).*`row_dim`"):
        layer(torch.zeros(6, 4, 5))


def test_inside_a_model_the_path_is_named():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
            self.head = nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.body(x)[:4])  # loses rows of the batch

    model = sb.rank1(Pooled(), members=MEMBERS)
    with pytest.raises(ValueError, match=r"Layer head got 4 rows.*\(4, 5\).*6 rows.*`row_dim`.*exclude"):
        model(torch.zeros(2, 5))
