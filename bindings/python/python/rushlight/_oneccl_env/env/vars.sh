# Sourced by scripts written for oneCCL. There is nothing to set.
