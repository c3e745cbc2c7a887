"""Files and folders that are complete or absent: commit protocol, builds, locks, checksums."""
