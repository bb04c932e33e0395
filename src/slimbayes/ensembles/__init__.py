"""Posteriors over whole networks: deep ensembles, SWAG, subspaces, chains, Laplace."""
