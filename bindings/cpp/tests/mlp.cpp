// Times training steps of a small model, beside bindings/c/examples/mlp.rs.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>

int main() {
  auto x = torch::randn({32, 64}), y = torch::randn({32, 10});
  torch::nn::Linear first(64, 64), second(64, 10);
  auto params = first->parameters();
  for (auto& p : second->parameters()) params.push_back(p);
  torch::optim::SGD optimizer(params, torch::optim::SGDOptions(0.01).momentum(0.9));
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i) {
      optimizer.zero_grad();
      torch::mse_loss(second(torch::relu(first(x))), y).backward();
      optimizer.step();
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 500);
  }
  std::printf("C++: %.2f us a step\n", best * 1e6);
}
