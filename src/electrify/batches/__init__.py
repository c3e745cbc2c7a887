"""Turn shards into masked batches; batch k is a pure function of the seed and k."""
