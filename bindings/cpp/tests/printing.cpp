// Text forms of tensors. The expected text, printing.txt, was written by this program over LibTorch.
#include <torch/torch.h>

#include <iostream>
#include <limits>

int main() {
  auto show = [](const torch::Tensor& t) { std::cout << t << "\n--\n"; };
  float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  show(torch::Tensor());
  show(torch::tensor(0.5));
  show(torch::tensor(3));
  show(torch::tensor(1e-7));
  show(torch::tensor(123456789.0, torch::kDouble));
  show(torch::tensor(true));
  show(torch::arange(5));
  show(torch::arange(5) * 100000000);
  show(torch::arange(5) * 10000000000);
  show(torch::tensor({0.1, 1.0, 0.0001}));
  show(torch::tensor({0.1, 10.0, 999.25}));
  show(torch::tensor({-0.25, 0.5, 0.125}));
  show(torch::tensor({0.001, 0.002}));
  show(torch::tensor({0.01, 0.02}));
  show(torch::tensor({100000.5, 200000.25}));
  show(torch::tensor({1000000.5, 2000000.25}));
  show(torch::tensor({1e-30, 1e30}));
  show(torch::tensor({1e-120, 1e120}, torch::kDouble));
  show(torch::tensor(std::vector<float>{inf, 1.5f, -inf, nan}));
  show(torch::tensor(std::vector<float>{inf, nan}));
  show(torch::tensor({1.0, 2.0, -3.0}));
  show(torch::tensor({true, false}));
  show(torch::tensor({1, 2, 3}, torch::kByte));
  show(torch::zeros({0}));
  show(torch::zeros({0, 3}));
  show(torch::zeros({2, 0}));
  show(torch::zeros({2, 0, 3}));
  show(torch::zeros({3, 3}));
  show(torch::arange(6, torch::kFloat).view({2, 3}) / 4);
  show(torch::arange(6, torch::kFloat).view({2, 3}) * 1000000.5);
  show(torch::arange(6, torch::kFloat).view({2, 3}) / 4000);
  show(torch::arange(60).view({2, 30}));
  show((torch::arange(60, torch::kFloat) / 7).view({2, 30}));
  show((torch::arange(60, torch::kFloat) * 12345.678).view({2, 30}));
  show(torch::arange(24).view({2, 3, 4}));
  show((torch::arange(24, torch::kFloat) / 5).view({2, 3, 4}));
  show((torch::arange(8, torch::kFloat) * 1e6 + 0.5).view({2, 2, 2}));
  show(torch::arange(16).view({2, 2, 2, 2}));
  show(torch::arange(120).view({2, 2, 30}));
  show(torch::arange(3, torch::kDouble));
  show(torch::ones({2}, torch::requires_grad()));
  return 0;
}
