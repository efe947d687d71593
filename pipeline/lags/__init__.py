"""Computes lags, watermarks and retention from the samples of one round."""
