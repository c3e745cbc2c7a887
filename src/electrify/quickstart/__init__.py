"""`electrify quickstart`: the whole path on text that every Python installation has."""
