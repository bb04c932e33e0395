"""The LSTM of the k-tied Normal paper: Keras's ``imdb_lstm`` example without its dropout."""

import torch
from torch import Tensor, nn

from slimbayes._checks import check_count

__all__ = ["SequenceClassifier"]


class _KerasLSTM(nn.LSTM):
    """One layer with one bias a gate, as Keras has it and initialises it.

    torch's second bias, ``bias_hh_l0``, is a buffer of zeros. Only ``__init__`` differs from ``nn.LSTM``, so that
    the layer converts like any other, and its state dict has the same names.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)
        weights = dict(self.named_parameters())
        del self._parameters["bias_hh_l0"]
        self.register_buffer("bias_hh_l0", None)
        # nn.LSTM computes with a list of its weights, which follows assignments but not register_buffer.
        self.bias_hh_l0 = torch.zeros_like(weights["bias_hh_l0"], requires_grad=False)
        nn.init.xavier_uniform_(weights["weight_ih_l0"])
        nn.init.orthogonal_(weights["weight_hh_l0"])
        nn.init.zeros_(weights["bias_ih_l0"])
        nn.init.ones_(weights["bias_ih_l0"][hidden : 2 * hidden])  # the forget gate, of i, f, g, o


class SequenceClassifier(nn.Module):
    """An embedding, an LSTM whose last output is read, and a dense layer.

    Weights begin as in Keras: Glorot-uniform kernels, an orthogonal recurrent kernel, 1 for the bias of the forget
    gate and 0 for the others, and embeddings uniform in ±0.05.

    Args:
        vocabulary: Number of different tokens.
        embedding: Width of the embedding.
        hidden: Width of the LSTM.
        outputs: Number of outputs.

    Shape:
        - Input: ``(batch, time)``, integers below ``vocabulary``. Since the last output is read, pad shorter
          sequences at the front, as Keras does. Output: ``(batch, outputs)``, logits.

    Example:
        >>> net = SequenceClassifier(vocabulary=50, embedding=8, hidden=16)
        >>> net(torch.randint(50, (4, 10))).shape
        torch.Size([4, 1])
        >>> with torch.device("meta"):
        ...     sum(p.numel() for p in SequenceClassifier().parameters())
        2691713
    """

    def __init__(self, vocabulary: int = 20_000, embedding: int = 128, hidden: int = 128, outputs: int = 1) -> None:
        super().__init__()
        check_count("vocabulary", vocabulary)
        check_count("embedding", embedding)
        check_count("hidden", hidden)
        check_count("outputs", outputs)
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = _KerasLSTM(embedding, hidden)
        self.head = nn.Linear(hidden, outputs)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        output, _ = self.lstm(self.embedding(tokens))
        return self.head(output[:, -1])
