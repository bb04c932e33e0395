"""Kernels in C for passes over memory, compiled when slimbayes is installed where there is a compiler; optional."""

from slimbayes.native.library import addresses, has_products, integers, kernel, named_in_profiles, status

__all__ = ["addresses", "has_products", "integers", "kernel", "named_in_profiles", "status"]
