"""Data sets in the formats in which their publishers ship them; see ``load_data``."""

from typing import TYPE_CHECKING

from slimbayes._lazy import lazily

if TYPE_CHECKING:
    from slimbayes.data.dataset import DataSet as DataSet
    from slimbayes.data.dataset import Examples as Examples
    from slimbayes.data.dataset import Task as Task
    from slimbayes.data.mnist import Mnist as Mnist
    from slimbayes.data.mnist import load_idx as load_idx
    from slimbayes.data.mnist import load_mnist as load_mnist
    from slimbayes.data.registry import load_data as load_data

#: Where each public name is: `slimbayes data list` need not wait for torch.
_PLACES = {
    **dict.fromkeys(("DataSet", "Examples", "Task"), "dataset"),
    **dict.fromkeys(("Mnist", "load_idx", "load_mnist"), "mnist"),
    "load_data": "registry",
}

__getattr__ = lazily("slimbayes.data", _PLACES)
