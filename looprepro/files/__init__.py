"""Files that are never half written: atomic write, exclusive create, checksums, safe JSON and YAML, the errors."""
