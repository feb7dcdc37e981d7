"""Files that outlive a run: tables, artifacts, the cache, run folders, their digests."""
