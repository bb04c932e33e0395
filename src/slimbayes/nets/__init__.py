"""Plain torch networks of the papers, and for tables; nothing Bayesian inside: ``sb.rank1`` makes them so."""

from slimbayes.nets.cifar_resnet import CifarResNet as CifarResNet
from slimbayes.nets.ehr import RecordClassifier as RecordClassifier
from slimbayes.nets.lenet import LeNet as LeNet
from slimbayes.nets.lstm import SequenceClassifier as SequenceClassifier
from slimbayes.nets.matched import matched as matched
from slimbayes.nets.mlp import MLP as MLP
from slimbayes.nets.number_embedding import Periodic as Periodic
from slimbayes.nets.number_embedding import PiecewiseLinear as PiecewiseLinear
from slimbayes.nets.resnet import ResNet as ResNet
from slimbayes.nets.resnet import resnet50 as resnet50
from slimbayes.nets.series import SeriesClassifier as SeriesClassifier
from slimbayes.nets.small_resnet import ResNet4 as ResNet4
from slimbayes.nets.table import ResidualBlock as ResidualBlock
from slimbayes.nets.table import TableMLP as TableMLP
from slimbayes.nets.wide_resnet import WideResNet as WideResNet
from slimbayes.nets.wide_resnet import wide_resnet as wide_resnet
