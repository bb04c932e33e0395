"""The network for health records of the rank-1 paper: embedded events, averaged in bags of time, and an LSTM."""

import torch
from torch import Tensor, nn

from slimbayes._checks import check_count, check_number

__all__ = ["RecordClassifier"]


class RecordClassifier(nn.Module):
    """Classifies patients from irregular events.

    Each event is embedded from its variable and its value, v -> e + value * d with vectors e and d for each variable;
    embeddings are averaged in bags of time; an LSTM reads the bags up to the last one with an event; its output there
    and the context go through a dense layer with ReLU6 to the outputs.

    Args:
        variables: Number of different variables, padding included.
        context: Columns of the context.
        bags: Number of bags; later events belong to the last one.
        bag_hours: Hours of a bag: 24 for days.
        embedding: Width of the embeddings.
        hidden: Width of the LSTM.
        dense: Width of the dense layer.
        outputs: Number of outputs.

    Shape:
        - Input: times in hours ``(batch, events)``; variables ``(batch, events)``, integers, 0 for padding; values
          ``(batch, events)``; context ``(batch, context)``. Output: ``(batch, outputs)``, logits.

    Example:
        >>> net = RecordClassifier(variables=5, context=2, bags=2, bag_hours=24, embedding=4, hidden=8, dense=8)
        >>> times, variables = torch.tensor([[1.0, 30.0, 0.0]]), torch.tensor([[3, 4, 0]])
        >>> net(times, variables, torch.zeros(1, 3), torch.zeros(1, 2)).shape
        torch.Size([1, 1])
    """

    def __init__(
        self,
        variables: int,
        context: int,
        bags: int = 48,
        bag_hours: float = 1.0,
        embedding: int = 32,
        hidden: int = 256,
        dense: int = 128,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        check_count("variables", variables, 2, "Variable 0 is padding.")
        check_count("context", context, 0)
        widths = {"bags": bags, "embedding": embedding, "hidden": hidden, "dense": dense, "outputs": outputs}
        for name, width in widths.items():
            check_count(name, width)
        check_number("bag_hours", bag_hours, low=0.0)
        self.bags, self.bag_hours = bags, bag_hours
        self.variable = nn.Embedding(variables, embedding, padding_idx=0)
        self.slope = nn.Embedding(variables, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.dense = nn.Linear(hidden + context, dense)
        self.head = nn.Linear(dense, outputs)
        nn.init.kaiming_normal_(self.dense.weight, nonlinearity="relu")
        nn.init.zeros_(self.dense.bias)

    def forward(self, times: Tensor, variables: Tensor, values: Tensor, context: Tensor) -> Tensor:
        """Return logits."""
        there = variables != 0
        bag = (times / self.bag_hours).long().clamp(0, self.bags - 1)
        events = self.variable(variables) + values.unsqueeze(-1) * self.slope(variables)
        outputs, _ = self.lstm(self._averages(events, bag, there))
        last = torch.where(there, bag, 0).amax(1)
        final = outputs.take_along_dim(last.view(-1, 1, 1), 1).squeeze(1)
        return self.head(nn.functional.relu6(self.dense(torch.cat([final, context], 1))))

    def _averages(self, events: Tensor, bag: Tensor, there: Tensor) -> Tensor:
        """Return the mean of the events in each bag, 0 for an empty one: ``(batch, bags, embedding)``."""
        belongs = (bag.unsqueeze(1) == torch.arange(self.bags, device=bag.device).view(1, -1, 1)) & there.unsqueeze(1)
        belongs = belongs.to(events.dtype)
        return (belongs @ events) / belongs.sum(-1, keepdim=True).clamp(min=1)
