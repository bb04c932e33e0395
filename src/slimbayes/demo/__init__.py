"""The demonstration: a plain network, BatchEnsemble and rank-1 nets on scikit-learn's handwritten digits."""

from slimbayes.demo.comparison import METHODS as METHODS
from slimbayes.demo.comparison import run as run
