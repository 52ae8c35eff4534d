// What a Python extension includes: tensors, TORCH_LIBRARY, and pybind11 with conversions of tensors.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/python.h>
