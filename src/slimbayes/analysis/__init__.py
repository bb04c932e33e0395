"""Tools that look inside a model and its priors."""

from slimbayes.analysis.weight_prior import induced_weight_density as induced_weight_density
from slimbayes.analysis.weight_prior import plot_induced_weight_priors as plot_induced_weight_priors
