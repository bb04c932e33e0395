"""Readers of data sets in the formats in which their publishers ship them; numpy arrays come out."""

from slimbayes.data.mnist import Mnist as Mnist
from slimbayes.data.mnist import load_idx as load_idx
from slimbayes.data.mnist import load_mnist as load_mnist
