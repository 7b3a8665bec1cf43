"""The version that MindSpore compares with those of CANN that it supports."""

version = "9.1.0"
