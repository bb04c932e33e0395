"""The demonstration: a plain network and every Bayesian method on scikit-learn's handwritten digits."""

from slimbayes.demo.comparison import run as run
from slimbayes.demo.contenders import METHODS as METHODS
