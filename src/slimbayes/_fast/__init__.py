"""A room for speed: exact forms of plain operations that take less time. Delete the folder and everything still works.

``layers.base.fused`` is the only place that asks here. Each function below returns its result, or None where it does
not apply, and the plain operation does the work. The last column says how much longer a train step takes without a
function, in the row of the price table that it is there for: benchmarks/results/bench-fast-*.json, shown in
docs/bench.md. What gains less than 5% in every row does not stay.

======================  =======================================================================  =======================
``scaled_linear``       a dense layer between its factors as one operation, which keeps less     10%, MLP 512
``scale_rows``          x ∘ v + b and its gradients in one pass each, by a compiled kernel       9%, ResNet-20, bfloat16
``signed_noise``        a rank-1 factor for each row: shared magnitudes, own signs               22%, MLP 512
``weighted_sum``        the sums of a Gaussian's KL, without the matrix U V^T of a k-tied one    18%, MLP 512
``local_linear``        local reparameterisation of a dense layer as one operation               6%, MLP 512
======================  =======================================================================  =======================
"""

from slimbayes._fast.local_linear import local_linear as local_linear
from slimbayes._fast.row_noise import signed_noise as signed_noise
from slimbayes._fast.scaled_linear import scaled_linear as scaled_linear
from slimbayes._fast.scaled_rows import scale_rows as scale_rows
from slimbayes._fast.weight_sums import weighted_sum as weighted_sum
