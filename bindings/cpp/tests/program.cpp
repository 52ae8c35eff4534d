// The C++ interface: tensors, indexing, autograd, modules, optimizers, data, files. Compiles over LibTorch too.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>

#define EXPECT(...)                                                                    \
  do {                                                                                 \
    if (!(__VA_ARGS__)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (0)

template <class F>
std::string error(F f) {
  try {
    f();
  } catch (const c10::Error& e) {
    return e.what();
  }
  return "";
}

void tensors() {
  auto a = torch::arange(6, torch::kFloat).view({2, 3});
  EXPECT(a.sizes() == std::vector<int64_t>{2, 3} && a.dim() == 2 && a.numel() == 6);
  EXPECT(a.dtype() == torch::kFloat && a.scalar_type() == torch::kFloat32 && a.device().is_cpu());
  EXPECT((a + 1).sum().item<float>() == 21 && (2 * a - a / 2).sum().item<double>() == 22.5);
  EXPECT((1 - a).min().item<float>() == -4 && (1 / (a + 1)).max().item<float>() == 1);
  EXPECT(a.mm(a.t()).equal(torch::tensor({{5, 14}, {14, 50}}, torch::kFloat)));
  EXPECT(torch::cat({a, a}, 1).size(1) == 6 && torch::stack({a, a}).dim() == 3);
  auto [values, indices] = a.max(1);
  EXPECT(values[1].item<float>() == 5 && indices[0].item<int64_t>() == 2);
  EXPECT(std::get<0>(torch::topk(a, 2)).sizes() == std::vector<int64_t>{2, 2});
  EXPECT(a.sum(0).sizes() == std::vector<int64_t>{3} && a.mean({0, 1}).dim() == 0 && a.sum(1, true).size(1) == 1);
  EXPECT(a.argmax().item<int64_t>() == 5 && a.argmax(1).size(0) == 2);
  EXPECT(a.clamp(1, 4).sum().item<float>() == 15 && torch::clamp_min(a, 3).min().item<float>() == 3);
  EXPECT(a.std().item<float>() > 1.8 && a.var(0, false).size(0) == 3 && a.norm().item<float>() > 7.4 && a.norm(1, 0).size(0) == 3);
  EXPECT(torch::where(a > 2, a, 0).sum().item<float>() == 12 && (a == a).all().item<bool>());
  EXPECT(a.split(1, 0).size() == 2 && a.chunk(3, 1)[0].size(1) == 1 && a.unbind().size() == 2);
  EXPECT(torch::einsum("ij,kj->ik", {a, a}).equal(a.mm(a.t())));
  EXPECT(torch::linalg::norm(a).item<float>() > 7.4 && torch::linalg::inv(torch::eye(3)).equal(torch::eye(3)));
  EXPECT(torch::full({2, 2}, 7).dtype() == torch::kLong && torch::full({2}, 0.5).dtype() == torch::kFloat);
  EXPECT(torch::tensor({1, 2, 3}).dtype() == torch::kLong && torch::tensor({1.5}).dtype() == torch::kFloat);
  EXPECT(torch::zeros({2}, torch::dtype(torch::kDouble).requires_grad(true)).requires_grad());
  EXPECT(torch::randint(5, {10}).max().item<int64_t>() < 5 && torch::randperm(4).sum().item<int64_t>() == 6);
  EXPECT(torch::linspace(0, 1, 5)[1].item<float>() == 0.25 && torch::eye(2)[0][0].item<int>() == 1);
  float data[] = {1, 2, 3, 4};
  {
    bool freed = false;
    auto blob = torch::from_blob(data, {2, 2}, [&](void*) { freed = true; });
    blob.mul_(2);
    EXPECT(data[3] == 8 && blob.data_ptr<float>() == data && blob.accessor<float, 2>()[1][0] == 6);
    blob = torch::Tensor();
    EXPECT(freed);
  }
  torch::Tensor b = a, c = a.clone();
  b.add_(1);
  EXPECT(a[0][0].item<float>() == 1 && c[0][0].item<float>() == 0 && !torch::Tensor().defined());
  a += c;
  a[0] = torch::zeros(3);
  a[1][2] = 9;
  EXPECT(a[0].sum().item<float>() == 0 && a[1][2].item<float>() == 9);
  std::ostringstream out;
  out << torch::ones({2, 2});
  EXPECT(out.str() == " 1  1\n 1  1\n[ CPUFloatType{2,2} ]");
  EXPECT(torch::str("a", 1, 2.5) == "a12.5" && torch::Device("cuda:1").index() == 1);
}

void indexing() {
  using namespace torch::indexing;
  auto x = torch::arange(24).view({2, 3, 4});
  EXPECT(x.index({Slice(), 1, Slice(1, None)}).sizes() == std::vector<int64_t>{2, 3});
  EXPECT(x.index({Ellipsis, 0}).sum().item<int64_t>() == 60 && x.index({"...", -1}).dim() == 2);
  EXPECT(x.index({None, 0}).size(0) == 1 && x.index({Slice(None, None, 2)}).size(0) == 1);
  EXPECT(x.index({torch::tensor({1, 0}), 0, 0}).equal(torch::tensor({12, 0})) && x.index({x > 20}).numel() == 3);
  x.index_put_({0, Slice(), Slice(0, 2)}, -1);
  EXPECT((x == -1).sum().item<int64_t>() == 6);
  x.index_put_({1, 0}, torch::tensor({7, 7, 7, 7}));
  EXPECT(x[1][0].sum().item<int64_t>() == 28);
}

struct Square : torch::autograd::Function<Square> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return x * x * factor;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::tensor_list grads) {
    auto x = ctx->get_saved_variables()[0];
    return {grads[0] * 2 * x * ctx->saved_data["factor"].toDouble(), torch::Tensor()};
  }
};
struct Failing : torch::autograd::Function<Failing> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) { return x * 1; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list) {
    TORCH_CHECK(false, "no gradient today");
    return {};
  }
};

void autograd() {
  auto x = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  Square::apply(x, 0.5).sum().backward();
  EXPECT(x.grad().equal(torch::tensor({1.0, 2.0, 3.0})));
  x.mutable_grad() = torch::Tensor();
  EXPECT(!x.grad().defined());
  auto g = torch::autograd::grad({(x * x * x).sum()}, {x}, {}, true, true)[0];
  auto h = torch::autograd::grad({g.sum()}, {x})[0];
  EXPECT(h.equal(torch::tensor({6.0, 12.0, 18.0})));
  {
    torch::NoGradGuard no_grad;
    EXPECT(!(x * 2).requires_grad() && !torch::GradMode::is_enabled());
  }
  EXPECT((x * 2).requires_grad() && (x * 2).grad_fn()->name().find("Mul") == 0 && x.is_leaf() && !x.detach().requires_grad());
  float seen = 0;
  auto y = x * 2;
  y.register_hook([&](torch::Tensor grad) { seen = grad.sum().item<float>(); });
  y.sum().backward();
  EXPECT(seen == 3);
  EXPECT(error([&] { Failing::apply(x).sum().backward(); }).find("no gradient today") == 0);
  EXPECT(error([&] { x.backward(); }).find("scalar") != std::string::npos);
  EXPECT(!error([&] { torch::matmul(torch::ones({2, 3}), torch::ones({2, 3})); }).empty());
  EXPECT(!error([&] { torch::ones({2})[5]; }).empty());
  EXPECT(!error([&] { torch::Tensor().sum(); }).empty());
}

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t in, int64_t out)
      : conv(torch::nn::Conv2dOptions(1, 4, 3).padding(1)), norm(4), lstm(torch::nn::LSTMOptions(16, 8).batch_first(true)), linear(8, out) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("lstm", lstm);
    register_module("linear", linear);
    scale = register_parameter("scale", torch::ones({1}));
    offset = register_buffer("offset", torch::zeros({1}));
    (void)in;
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv(x))).flatten(2);
    x = std::get<0>(lstm(x));
    return linear(torch::dropout(x.mean(1), 0.1, is_training())) * scale + offset;
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::LSTM lstm;
  torch::nn::Linear linear;
  torch::Tensor scale, offset;
};
TORCH_MODULE(Net);

struct ShiftImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, double by) { return x + by; }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(Shift);

void modules() {
  Net net(1, 3);
  auto names = net->named_parameters().keys();
  EXPECT(names.size() == 1 + 2 + 2 + 4 + 2 && names[0] == "scale" && names[1] == "conv.weight");
  EXPECT(net->named_buffers().keys()[1] == "norm.running_mean" && net->named_parameters().contains("lstm.weight_ih_l0"));
  auto x = torch::randn({8, 1, 4, 4});
  auto target = torch::randint(3, {8});
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.02).weight_decay(1e-4));
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    adam.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net(x), target);
    loss.backward();
    adam.step();
    (i ? last : first) = loss.item<double>();
  }
  EXPECT(last < 0.5 * first);
  net->eval();
  EXPECT(!net->is_training() && !net->norm->is_training());
  torch::save(net, "cpp_net.pt");
  Net other(1, 3);
  torch::load(other, "cpp_net.pt");
  other->eval();
  EXPECT(torch::allclose(net(x), other(x)));
  torch::save(adam, "cpp_adam.pt");
  torch::optim::Adam again(other->parameters(), torch::optim::AdamOptions(0.5));
  torch::load(again, "cpp_adam.pt");
  auto tensor = torch::randn({3});
  torch::save(tensor, "cpp_tensor.pt");
  torch::Tensor back;
  torch::load(back, "cpp_tensor.pt");
  EXPECT(back.equal(tensor));
  std::stringstream stream;
  torch::save(std::vector<torch::Tensor>{tensor, tensor}, stream);
  std::vector<torch::Tensor> both;
  torch::load(both, stream);
  EXPECT(both.size() == 2);

  torch::nn::Sequential sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Dropout(0.5), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                   torch::nn::Functional(torch::relu), torch::nn::Linear(8, 2));
  EXPECT(sequential->forward(torch::ones({3, 4})).size(1) == 2 && sequential->size() == 6 && sequential->parameters().size() == 6);
  EXPECT(sequential->named_parameters().contains("3.weight"));
  sequential->push_back("last", torch::nn::Softmax(1));
  EXPECT(std::abs(sequential->forward(torch::ones({1, 4})).sum().item<float>() - 1) < 1e-5);
  EXPECT(torch::nn::Sequential(Shift(), torch::nn::ConvTranspose1d(1, 2, 3))->forward(torch::zeros({1, 1, 4})).size(2) == 6);
  sequential->to(torch::kDouble);
  EXPECT(sequential->parameters()[0].dtype() == torch::kDouble && net->children().size() == 4);
  auto linear = torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false));
  EXPECT(!linear->bias.defined() && linear->parameters().size() == 1);
  auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(linear->clone());
  copy->weight.detach().zero_();
  EXPECT(!linear->weight.equal(copy->weight));
  auto weight = linear->weight;
  linear->to(torch::kDouble);
  EXPECT(weight.dtype() == torch::kDouble);
  torch::nn::ModuleList list;
  for (int i = 0; i < 3; ++i) list->push_back(torch::nn::Linear(2, 2));
  EXPECT(list->size() == 3 && list->parameters().size() == 6 && list[1]->as<torch::nn::Linear>()->options.in_features() == 2);
  auto [out, state] = torch::nn::GRU(torch::nn::GRUOptions(4, 5).num_layers(2).bidirectional(true))(torch::ones({3, 2, 4}));
  EXPECT(out.size(2) == 10 && state.size(0) == 4);
  auto table = torch::nn::Embedding(10, 3);
  EXPECT(table(torch::tensor({1, 2})).sizes() == std::vector<int64_t>{2, 3});
  EXPECT(torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(3, 4, 4).stride(2).padding(1))(torch::ones({1, 3, 5, 5})).size(2) == 10);
  std::ostringstream text;
  text << torch::nn::Sequential(torch::nn::Linear(1, 2), torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).stride(2)));
  EXPECT(text.str() == "torch::nn::Sequential(\n  (0): torch::nn::Linear(in_features=1, out_features=2, bias=true)\n  (1): torch::nn::Conv2d(1, 2, "
                       "kernel_size=[3, 3], stride=[2, 2])\n)");
}

template <class Make>
void minimises(Make make) {
  auto w = torch::tensor({3.0, -2.0}, torch::requires_grad());
  auto optimizer = make(w);
  for (int i = 0; i < 200; ++i)
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = (w * w).sum();
      loss.backward();
      return loss;
    });
  EXPECT(w.abs().max().item<float>() < 0.1);
}

void optimizers() {
  using namespace torch::optim;
  using P = std::vector<torch::Tensor>;
  minimises([](torch::Tensor w) { return SGD(P{w}, SGDOptions(0.1).momentum(0.5)); });
  minimises([](torch::Tensor w) { return Adam(P{w}, AdamOptions(0.1).betas(std::make_tuple(0.9, 0.99))); });
  minimises([](torch::Tensor w) { return AdamW(P{w}, AdamWOptions(0.1)); });
  minimises([](torch::Tensor w) { return RMSprop(P{w}, RMSpropOptions(0.05)); });
  minimises([](torch::Tensor w) { return Adagrad(P{w}, AdagradOptions(1.0)); });
  minimises([](torch::Tensor w) { return LBFGS(P{w}, LBFGSOptions(1).line_search_fn("strong_wolfe")); });
  auto a = torch::ones({1}, torch::requires_grad()), b = torch::ones({1}, torch::requires_grad());
  SGD sgd({OptimizerParamGroup({a}), OptimizerParamGroup({b}, std::make_unique<SGDOptions>(0.5))}, SGDOptions(0.1));
  (a + b).sum().backward();
  sgd.step();
  EXPECT(std::abs(a.item<float>() - 0.9) < 1e-6 && std::abs(b.item<float>() - 0.5) < 1e-6);
  static_cast<SGDOptions&>(sgd.param_groups()[0].options()).lr(0.2);
  StepLR schedule(sgd, 1, 0.5);
  schedule.step();
  EXPECT(sgd.param_groups()[1].options().get_lr() == 0.25);
  sgd.step();
  EXPECT(std::abs(a.item<float>() - 0.8) < 1e-6 && std::abs(b.item<float>() - 0.25) < 1e-6);
  EXPECT(torch::nn::utils::clip_grad_norm_(P{a, b}, 0.1) > 1.4 && a.grad().item<float>() < 0.08);
}

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(size_t index) override {
    if (index == fails) throw std::runtime_error("sample 7 is broken");
    return {torch::full({2}, static_cast<double>(index)), torch::tensor(static_cast<int64_t>(index))};
  }
  torch::optional<size_t> size() const override { return 10; }
  size_t fails = 100;
};

void data() {
  for (size_t workers : {0, 1, 3}) {
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Numbers().map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions().batch_size(4).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> seen;
      for (auto& batch : *loader)
        for (int64_t i = 0; i < batch.target.size(0); ++i) seen.push_back(batch.target[i].item<int64_t>());
      EXPECT(seen.size() == 10 && std::is_sorted(seen.begin(), seen.end()));
    }
    auto shuffled = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()),
                                                  torch::data::DataLoaderOptions(3).workers(workers).drop_last(true));
    int64_t count = 0;
    for (auto& batch : *shuffled) count += batch.data.size(0);
    EXPECT(count == 9);
    Numbers broken;
    broken.fails = 7;
    auto failing = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(broken.map(torch::data::transforms::Stack<>()),
                                                                                          torch::data::DataLoaderOptions(2).workers(workers));
    bool failed = false;
    try {
      for (auto& batch : *failing) static_cast<void>(batch);
    } catch (const std::exception&) {
      failed = true;
    }
    EXPECT(failed);
  }
}

// Chunk i has i + 3 examples.
struct Chunks : torch::data::datasets::ChunkDataReader<int> {
  std::vector<int> read_chunk(size_t chunk) override {
    if (chunk == fails) throw std::runtime_error("chunk 2 is broken");
    std::vector<int> all;
    for (size_t i = 0; i < chunk + 3; ++i) all.push_back(static_cast<int>(100 * chunk + i));
    return all;
  }
  size_t chunk_count() override { return 4; }
  void reset() override {}
  size_t fails = 100;
};

void chunks() {
  using torch::data::samplers::SequentialSampler;
  namespace datasets = torch::data::datasets;
  using InOrder = datasets::ChunkDataset<Chunks, SequentialSampler, SequentialSampler>;
  // Four chunks of 3 to 6 examples: batches go over their ends, whatever the threads and the cache.
  for (size_t preloaders : {1, 3})
    for (size_t cache : {5, 2048}) {
      auto dataset = datasets::make_shared_dataset<InOrder>(Chunks(), SequentialSampler(0), SequentialSampler(0),
                                                            datasets::ChunkDatasetOptions(preloaders, 5, cache));
      for (size_t workers : {0, 2}) {
        auto loader = torch::data::make_data_loader(dataset, torch::data::DataLoaderOptions(5).workers(workers));
        for (int pass = 0; pass < 2; ++pass) {
          std::vector<int> seen;
          size_t batches = 0;
          for (auto& batch : *loader) {
            seen.insert(seen.end(), batch.begin(), batch.end());
            ++batches;
          }
          EXPECT(batches == 4 && seen.size() == 18);
          if (workers == 0) EXPECT(std::is_sorted(seen.begin(), seen.end()));
          std::sort(seen.begin(), seen.end());
          EXPECT(seen.front() == 0 && seen.back() == 305);
        }
      }
      EXPECT(!error([&] { dataset->get_batch(4); }).empty());
    }
  using Shuffled = datasets::ChunkDataset<Chunks>;
  auto mixed = datasets::make_shared_dataset<Shuffled>(Chunks(), torch::data::samplers::RandomSampler(0), torch::data::samplers::RandomSampler(0),
                                                       datasets::ChunkDatasetOptions(2, 4, 64, 2));
  auto doubled = mixed.map(torch::data::transforms::Lambda<int>([](int value) { return 2 * value; }));
  auto loader = torch::data::make_data_loader(doubled, torch::data::DataLoaderOptions(4));
  int total = 0;
  for (auto& batch : *loader)
    for (int value : batch) total += value;
  EXPECT(total == 2 * (0 + 1 + 2 + 406 + 1010 + 1815));
  Chunks broken;
  broken.fails = 2;
  auto failing = datasets::make_shared_dataset<InOrder>(broken, SequentialSampler(0), SequentialSampler(0), datasets::ChunkDatasetOptions(2, 3));
  auto stopped = torch::data::make_data_loader(failing, torch::data::DataLoaderOptions(3));
  std::string message;
  try {
    for (auto& batch : *stopped) static_cast<void>(batch);
  } catch (const std::exception& e) {
    message = e.what();
  }
  EXPECT(message == "chunk 2 is broken");
}

void threads() {
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        auto x = torch::full({16}, static_cast<double>(t), torch::requires_grad());
        (x * x).sum().backward();
        EXPECT(x.grad()[0].item<float>() == 2 * t);
        EXPECT(!error([] { torch::ones({2}) + torch::ones({3}); }).empty());
      }
    });
  for (auto& thread : all) thread.join();
}

int main() {
  torch::manual_seed(1);
  tensors();
  indexing();
  autograd();
  modules();
  optimizers();
  data();
  chunks();
  threads();
  std::puts("program.cpp: ok");
}
