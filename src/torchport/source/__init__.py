"""Read Python sources without running them: bytes, syntax tree, names and values, edits."""
