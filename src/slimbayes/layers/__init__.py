"""Bayesian layers: torch's own layer classes with random parts added."""

from slimbayes.layers.attention import Rank1MultiheadAttention as Rank1MultiheadAttention
from slimbayes.layers.base import BayesianLayer as BayesianLayer
from slimbayes.layers.base import Stochastic as Stochastic
from slimbayes.layers.conv import Rank1Conv1d as Rank1Conv1d
from slimbayes.layers.conv import Rank1Conv2d as Rank1Conv2d
from slimbayes.layers.conv import Rank1Conv3d as Rank1Conv3d
from slimbayes.layers.conv import Rank1ConvTranspose1d as Rank1ConvTranspose1d
from slimbayes.layers.conv import Rank1ConvTranspose2d as Rank1ConvTranspose2d
from slimbayes.layers.conv import Rank1ConvTranspose3d as Rank1ConvTranspose3d
from slimbayes.layers.embedding import MeanFieldEmbedding as MeanFieldEmbedding
from slimbayes.layers.factor import Factor as Factor
from slimbayes.layers.factor import FactorOptions as FactorOptions
from slimbayes.layers.linear import Rank1Linear as Rank1Linear
from slimbayes.layers.norm import MemberNorm as MemberNorm
from slimbayes.layers.rank1 import Rank1 as Rank1
from slimbayes.layers.recurrent import Rank1GRU as Rank1GRU
from slimbayes.layers.recurrent import Rank1LSTM as Rank1LSTM
from slimbayes.layers.recurrent import Rank1RNN as Rank1RNN
