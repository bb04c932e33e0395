"""One step of training under a seed, for a process with the compiled kernels and one without."""

import sys
from pathlib import Path

import torch
from slimbayes.native import status
from torch import nn

import slimbayes as sb


def one_step():
    """Return the loss, all gradients and the parameters after the step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
    model = sb.rank1(net, members=4, dropout_rate=0.05)
    elbo = sb.ELBO(model, num_data=1000)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 20), torch.randint(5, (64,))
    loss = elbo(model(x), y)
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    optimiser.step()
    return {"loss": loss.detach(), "gradients": gradients, "after": dict(model.state_dict())}


if __name__ == "__main__":
    torch.save({"status": status(), **one_step()}, Path(sys.argv[1]))
