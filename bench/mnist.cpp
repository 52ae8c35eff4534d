// Training steps of MNIST's small networks from C++, for bench/cpp: the same steps as src/bin/mnist.rs, over the same library.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>

// The network of PyTorch's C++ example.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("dropout", dropout);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(dropout->forward(conv2->forward(x)), 2)).view({-1, 320});
    x = torch::dropout(torch::relu(fc1->forward(x)), 0.5, is_training());
    return torch::log_softmax(fc2->forward(x), 1);
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 10, 5)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(10, 20, 5)};
  torch::nn::Dropout2d dropout{0.5};
  torch::nn::Linear fc1{320, 50};
  torch::nn::Linear fc2{50, 10};
};
TORCH_MODULE(Net);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t hidden) : fc1(register_module("fc1", torch::nn::Linear(784, hidden))), fc2(register_module("fc2", torch::nn::Linear(hidden, 10))) {}

  torch::Tensor forward(torch::Tensor x) { return torch::log_softmax(fc2->forward(torch::relu(fc1->forward(x.flatten(1)))), 1); }

  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

using Step = std::function<void()>;

template <class Model>
Step training(Model model, int64_t batch) {
  auto x = torch::rand({batch, 1, 28, 28}), y = torch::randint(10, {batch});
  auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  return [=]() mutable {
    optimizer->zero_grad();
    auto loss = torch::nll_loss(model->forward(x), y);
    loss.backward();
    optimizer->step();
    loss.template item<float>();
  };
}

Step prepare(const std::string& name) {
  if (name == "mlp_8") return training(Mlp(32), 8);
  if (name == "mlp_64") return training(Mlp(64), 64);
  if (name == "conv_64") return training(Net(), 64);
  throw std::invalid_argument("unknown case '" + name + "': expected mlp_8, mlp_64 or conv_64");
}

int main() {
  std::string line, name, known;
  Step step;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    long steps = 0;
    if (!(words >> name >> steps)) {
      std::cerr << "unknown request '" << line << "': expected CASE STEPS, for example mlp_64 1000\n";
      return 1;
    }
    if (name != known) {
      step = prepare(name);
      known = name;
    }
    const auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < steps; ++i) step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%e\n", seconds.count() / static_cast<double>(steps));
    std::fflush(stdout);
  }
}
