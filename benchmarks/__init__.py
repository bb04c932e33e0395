"""What slimbayes costs, alone and beside other libraries: ``python -m benchmarks --help`` in a clone."""
