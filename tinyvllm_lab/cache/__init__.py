"""KV memory: block pool, prefix cache, contiguous allocators. Imports no torch (but `cache.kv`)."""
