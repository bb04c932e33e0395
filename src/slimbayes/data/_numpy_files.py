"""NumPy's .npy and .npz files, never unpickled; whatever is wrong names the file and the array."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def load_numpy(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name; the one of an .npy file is called ``x``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder) / "a.npy", np.arange(3))
        ...     load_numpy(Path(folder) / "a.npy")
        {'x': array([0, 1, 2])}
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with path.open("rb") as stream:  # NumPy leaves a damaged file open
            content = np.load(stream, allow_pickle=False)
            return (
                {"x": content} if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
            )
    except Exception as error:  # a damaged file raises one of many kinds
        # NumPy's own words advise to unpickle it.
        fault = "it is damaged, or holds Python objects" if "pickle" in str(error) else error
        raise ValueError(f"{path} is not an {path.suffix} file of plain arrays: {fault}.") from error


def as_tensor(path: Path, name: str, array: NDArray[Any]) -> Tensor:
    """Return an array of examples as a tensor: float32, int64, or uint8 as it is.

    Args:
        path: The file, for messages.
        name: The array's name, for messages.
        array: Numbers, ``(n, *)``.
    """
    kind = array.dtype.kind
    if kind not in "biuf":
        raise ValueError(f"{path}: {name} should hold numbers, but holds {array.dtype}. Store them as numbers.")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{path}: {name} should have a row for each example, but has the shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: {name} holds values that are not finite. Fill or remove them.")
    if array.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(array.astype(np.float32 if kind in "fb" else np.int64))
