"""Ways of getting draws out of a network; each turns it into a ``BayesianModel``."""

from slimbayes.methods.batch_ensemble import batch_ensemble as batch_ensemble
from slimbayes.methods.conversion import register_converter as register_converter
from slimbayes.methods.rank1 import rank1 as rank1
