"""Tools that look inside a model and its priors."""

from slimbayes.analysis.drift import PosteriorDrift as PosteriorDrift
from slimbayes.analysis.factors import FactorSummary as FactorSummary
from slimbayes.analysis.factors import factor_summary as factor_summary
from slimbayes.analysis.factors import member_distance as member_distance
from slimbayes.analysis.factors import plot_factors as plot_factors
from slimbayes.analysis.factors import plot_member_distance as plot_member_distance
from slimbayes.analysis.gradient_snr import SNR as SNR
from slimbayes.analysis.gradient_snr import GradientSNR as GradientSNR
from slimbayes.analysis.heat_maps import heat_maps as heat_maps
from slimbayes.analysis.heat_maps import plot_heat_maps as plot_heat_maps
from slimbayes.analysis.low_rank import low_rank as low_rank
from slimbayes.analysis.matrices import PosteriorMatrices as PosteriorMatrices
from slimbayes.analysis.matrices import posterior_matrices as posterior_matrices
from slimbayes.analysis.nonnegative import nonnegative_factors as nonnegative_factors
from slimbayes.analysis.prior_share import PriorShare as PriorShare
from slimbayes.analysis.prior_share import prior_share as prior_share
from slimbayes.analysis.spectrum import ExplainedVariance as ExplainedVariance
from slimbayes.analysis.spectrum import explained_variance as explained_variance
from slimbayes.analysis.spectrum import plot_explained_variance as plot_explained_variance
from slimbayes.analysis.tie import tie as tie
from slimbayes.analysis.weight_prior import induced_weight_density as induced_weight_density
from slimbayes.analysis.weight_prior import plot_induced_weight_priors as plot_induced_weight_priors
