"""What checkpoint files hold, read without torch and without running anything that a file names.

`contents.read` gives names, dtypes, shapes and where the bytes are; the bytes themselves are read tensor by tensor.
"""
