"""A room for speed: exact forms of plain operations that take less time. Delete the folder and everything still works.

``layers.base.fused`` is the only place that asks here. Each function below returns its result, or None where it does
not apply, and the plain operation does the work. Each gains more than 5% of a train step on a network of the price
table: benchmarks/results/bench-fast-*.json, shown in docs/bench.md.

======================  ================================================================================
``scaled_linear``       a dense layer between its factors as one operation, which keeps less
``scale_rows``          x ∘ v + b and its gradients in one pass each, by a compiled kernel
``signed_noise``        a rank-1 factor for each row from few random numbers: shared magnitudes, own signs
``weighted_sum``        the sums of a Gaussian's KL, without the matrix U V^T of a k-tied one
``local_linear``        local reparameterisation of a dense layer as one operation
======================  ================================================================================
"""

from slimbayes._fast.local_linear import local_linear as local_linear
from slimbayes._fast.row_noise import signed_noise as signed_noise
from slimbayes._fast.scaled_linear import scaled_linear as scaled_linear
from slimbayes._fast.scaled_rows import scale_rows as scale_rows
from slimbayes._fast.weight_sums import weighted_sum as weighted_sum
