"""Shards in, masked batches out: batch k is a pure function of the seed and k."""
