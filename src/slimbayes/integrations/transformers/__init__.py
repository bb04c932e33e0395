"""Hugging Face: ``Trainer``, ``generate`` and adapters for models made by ``sb.rank1`` and the other methods."""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'slimbayes.integrations.transformers needs {error.name}: pip install "slimbayes[transformers]"'
    ) from error

from slimbayes.integrations.transformers.adapters import adapters
from slimbayes.integrations.transformers.generation import Generation, generate
from slimbayes.integrations.transformers.trainer import Trainer

__all__ = ["Generation", "Trainer", "adapters", "generate"]
