// LibTorch's names over Rushlight. Headers only; programs link librushlight.
#pragma once

#include <torch/chunks.h>
#include <torch/optim.h>
