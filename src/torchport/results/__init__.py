"""The data of a `Result`: frozen dataclasses, which steps hand to each other and which reports read.

Each is stored as JSON under the names of its fields (`codec`); the names and the version of the format are in
`findings`.
"""
