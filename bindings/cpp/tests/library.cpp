// Ops of a library by name, code by dtype, loops over threads, values.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <iostream>

using torch::Tensor;

Tensor clip_cpu(const Tensor& x, double most) { return x.clamp(-most, most); }

Tensor clip(const Tensor& x, double most) {
  return c10::Dispatcher::singleton().findSchemaOrThrow("program::clip", "").typed<Tensor(const Tensor&, double)>().call(x, most);
}

// Lets all gradients pass.
struct Clip : torch::autograd::Function<Clip> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, double most) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return clip(x, most);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list grads) { return {grads[0], Tensor()}; }
};
Tensor clip_autograd(const Tensor& x, double most) { return Clip::apply(x, most); }

TORCH_LIBRARY(program, m) {
  m.def("clip(Tensor x, float most=1.0) -> Tensor");
  m.def("count", [](const std::vector<Tensor>& all, c10::optional<int64_t> more) { return static_cast<int64_t>(all.size()) + more.value_or(0); });
}
TORCH_LIBRARY_IMPL(program, CPU, m) { m.impl("clip", clip_cpu); }
TORCH_LIBRARY_IMPL(program, Autograd, m) { m.impl("clip", clip_autograd); }

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << std::endl; \
      return 1;                                                                     \
    }                                                                               \
  } while (false)

int main() {
  Tensor x = torch::tensor({-3.0, 0.5, 2.0}, torch::requires_grad());
  Tensor y = clip(x, 1.0);
  CHECK(torch::equal(y, torch::tensor({-1.0, 0.5, 1.0})));
  y.sum().backward();
  CHECK(torch::equal(x.grad(), torch::ones({3})));

  auto count = c10::Dispatcher::singleton().findSchemaOrThrow("program::count", "").typed<int64_t(const std::vector<Tensor>&, c10::optional<int64_t>)>();
  CHECK(count.call({x, y}, c10::nullopt) == 2 && count.call({}, 5) == 5);
  bool missing = false;
  try {
    c10::Dispatcher::singleton().findSchemaOrThrow("program::none", "");
  } catch (const c10::Error&) {
    missing = true;
  }
  CHECK(missing);

  for (auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    Tensor in = torch::arange(5000).to(type), out = torch::empty_like(in);
    AT_DISPATCH_FLOATING_TYPES_AND2(torch::kHalf, torch::kBFloat16, type, "half_of", [&] {
      auto from = in.accessor<scalar_t, 1>();
      auto to = out.accessor<scalar_t, 1>();
      at::parallel_for(0, in.numel(), 100, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = static_cast<scalar_t>(static_cast<float>(from[i]) / 2);
      });
    });
    CHECK(torch::equal(out, in / 2));
  }
  std::string message;
  try {
    AT_DISPATCH_FLOATING_TYPES(torch::kLong, "half_of", [&] { (void)sizeof(scalar_t); });
  } catch (const c10::Error& error) {
    message = error.what();
  }
  CHECK(message == "\"half_of\" not implemented for 'Long'");

  c10::IValue values[] = {c10::IValue(x), 2.5, 3, true, "text", std::vector<int64_t>{1, 2}, c10::IValue()};
  CHECK(values[0].toTensor().is_same(x) && values[1].toDouble() == 2.5 && values[2].toInt() == 3 && values[2].toDouble() == 3.0 && values[3].toBool());
  CHECK(values[4].toStringRef() == "text" && values[5].toIntVector().size() == 2 && values[6].isNone() && values[1].to<double>() == 2.5);
  std::cout << "library.cpp: ok" << std::endl;
}
