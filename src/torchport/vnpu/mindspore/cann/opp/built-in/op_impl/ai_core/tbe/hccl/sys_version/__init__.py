"""The version that MindSpore compares with those of CANN that it supports."""

__sys_version__ = "9.1.0"
