"""Stand-in for CANN's package of collectives, of which MindSpore's init("hccl") asks the version."""
