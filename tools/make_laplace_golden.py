"""Ask laplace-torch 0.3 for posteriors of small networks: ``python tools/make_laplace_golden.py``.

It needs laplace-torch (and what that needs), which nothing else here does; laplace.npz is what it said.
"""

from pathlib import Path

import numpy as np
import torch
from laplace import Laplace
from scipy.optimize import minimize_scalar
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, WIDTH, NOISE, PRECISION = 3, 4, 0.7, 2.0


def main() -> None:
    """Write laplace.npz."""
    torch.set_default_dtype(torch.double)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    x, classes, numbers = torch.randn(40, 2), torch.randint(CLASSES, (40,)), torch.randn(40, CLASSES)
    found = {f"net/{name}": value.numpy() for name, value in net.state_dict().items()}
    found |= {"x": x.numpy(), "classes": classes.numpy(), "numbers": numbers.numpy()}
    for size in (1.0, 0.01, 50.0):
        for likelihood, targets in (("categorical", classes), ("gaussian", numbers)):
            for structure in ("full", "kron", "diag"):
                own = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
                own.load_state_dict(
                    {name: size * value if name.startswith("2") else value for name, value in net.state_dict().items()}
                )
                options = {} if likelihood == "categorical" else {"sigma_noise": NOISE}
                kind = "classification" if likelihood == "categorical" else "regression"
                fitted = Laplace(
                    own,
                    kind,
                    subset_of_weights="last_layer",
                    hessian_structure=structure,
                    prior_precision=PRECISION,
                    **options,
                )
                fitted.fit(DataLoader(TensorDataset(x, targets), batch_size=40))
                case = f"{likelihood}/{structure}/{size:g}"
                found[f"{case}/covariance"] = covariance(fitted.posterior_precision, structure)
                if size == 1 and likelihood == "categorical":
                    found[f"{case}/outputs"] = fitted._glm_predictive_distribution(x[:3])[1].detach().numpy()
                found[f"{case}/best"] = np.array(best(fitted))
    np.savez_compressed(Path(__file__).parent / "laplace.npz", **found)


def covariance(precision, structure: str) -> np.ndarray:
    """Return the covariance as a matrix."""
    if structure == "diag":
        return np.diag(1 / precision.detach().numpy())
    matrix = precision if structure == "full" else precision.to_matrix()
    return np.linalg.inv(matrix.detach().numpy())


def best(fitted: Laplace) -> float:
    """Return the prior precision with the largest marginal likelihood."""

    def loss(log_precision: float) -> float:
        return -fitted.log_marginal_likelihood(prior_precision=torch.tensor(np.exp(log_precision))).item()

    return float(np.exp(minimize_scalar(loss, bounds=(-20, 20), method="bounded", options={"xatol": 1e-7}).x))


if __name__ == "__main__":
    main()
