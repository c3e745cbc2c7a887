"""Documents in, verified token shards out."""
