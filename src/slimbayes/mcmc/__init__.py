"""Stochastic-gradient Markov chain Monte Carlo: samplers, the cyclical schedule, and diagnostics of chains."""

from slimbayes.mcmc.chain_report import chain_report as chain_report
from slimbayes.mcmc.chain_report import kept_samples as kept_samples
from slimbayes.mcmc.cyclical import CyclicalRate as CyclicalRate
from slimbayes.mcmc.cyclical import cyclical_rate as cyclical_rate
from slimbayes.mcmc.diagnostics import effective_sample_size as effective_sample_size
from slimbayes.mcmc.diagnostics import r_hat as r_hat
from slimbayes.mcmc.diagnostics_table import ChainSummary as ChainSummary
from slimbayes.mcmc.diagnostics_table import FactorMixing as FactorMixing
from slimbayes.mcmc.diagnostics_table import chain_summary as chain_summary
from slimbayes.mcmc.diagnostics_table import to_arviz as to_arviz
from slimbayes.mcmc.elliptical_slice import elliptical_slice as elliptical_slice
from slimbayes.mcmc.model_sampler import chain_sampler as chain_sampler
from slimbayes.mcmc.sampler import Sampler as Sampler
from slimbayes.mcmc.samplers import PSGLD as PSGLD
from slimbayes.mcmc.samplers import SGHMC as SGHMC
from slimbayes.mcmc.samplers import SGLD as SGLD
