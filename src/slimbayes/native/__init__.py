"""Kernels in C for passes over memory, compiled when slimbayes is installed where there is a compiler; optional."""

from slimbayes.native.library import addresses, integers, kernel, status

__all__ = ["addresses", "integers", "kernel", "status"]
