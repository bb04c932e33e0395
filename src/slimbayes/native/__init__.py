"""Kernels in C for passes over memory, compiled when slimbayes is installed where there is a compiler; optional."""

from slimbayes.native.library import addresses, integers, kernel, named_in_profiles, status

__all__ = ["addresses", "integers", "kernel", "named_in_profiles", "status"]
