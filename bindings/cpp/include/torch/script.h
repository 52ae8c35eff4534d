#pragma once
#error "torch/script.h: this library does not run TorchScript yet; build the model with torch::nn and load its state dict with torch::load"
