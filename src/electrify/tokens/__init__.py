"""Turn documents into verified token shards."""
