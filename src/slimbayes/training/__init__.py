"""Training: from a configuration to a trained model in a folder, on one core or many machines."""

try:
    import accelerate as _accelerate  # noqa: F401
    import pydantic as _pydantic  # noqa: F401
    import tqdm as _tqdm  # noqa: F401
    import yaml as _yaml  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f'slimbayes.training needs {error.name}: pip install "slimbayes[train]"') from error

from slimbayes.training.config import TrainConfig as TrainConfig
from slimbayes.training.engine import fit as fit
from slimbayes.training.ensemble import fit_ensemble as fit_ensemble
from slimbayes.training.parsing import load_config as load_config
from slimbayes.training.run import Run as Run
