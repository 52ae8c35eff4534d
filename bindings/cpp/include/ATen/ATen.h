#pragma once
#include <torch/dispatch.h>
#include <torch/torch.h>
