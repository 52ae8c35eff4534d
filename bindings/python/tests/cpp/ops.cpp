// Ops of a library by TORCH_LIBRARY: kernels by device, a derivative of their own, values of all kinds.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/torch.h>

using torch::Tensor;

Tensor scale_add_cpu(const Tensor& x, const Tensor& y, double alpha) { return x * alpha + y; }

Tensor scale_add(const Tensor& x, const Tensor& y, double alpha) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("rushlight_test::scale_add", "").typed<Tensor(const Tensor&, const Tensor&, double)>();
  return op.call(x, y, alpha);
}

// Its gradient of x is doubled, so that a test can tell it from the recorded one.
struct ScaleAdd : torch::autograd::Function<ScaleAdd> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& y, double alpha) {
    ctx->saved_data["alpha"] = alpha;
    at::AutoDispatchBelowADInplaceOrView guard;
    return scale_add(x, y, alpha);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::tensor_list grads) {
    return {grads[0] * (2 * ctx->saved_data["alpha"].toDouble()), grads[0], Tensor()};
  }
};

Tensor scale_add_autograd(const Tensor& x, const Tensor& y, double alpha) { return ScaleAdd::apply(x, y, alpha); }

std::tuple<Tensor, int64_t> split_sum(const std::vector<Tensor>& parts, c10::optional<double> scale, at::IntArrayRef dims, std::string name, bool negate) {
  Tensor total = parts.at(0).sum(dims);
  for (size_t i = 1; i < parts.size(); ++i) total = total + parts[i].sum(dims);
  if (scale) total = total * *scale;
  return {negate ? -total : total, static_cast<int64_t>(name.size())};
}

TORCH_LIBRARY(rushlight_test, m) {
  m.def("scale_add(Tensor x, Tensor y, float alpha=1.0) -> Tensor");
  m.def("split_sum(Tensor[] parts, float? scale=None, int[1] dims=[0], *, str name=\"none\", bool negate=False) -> (Tensor, int)", &split_sum);
  m.def("double_it", [](Tensor x) { return x + x; });
  m.def("add_one_(Tensor(a!) x) -> ()", [](Tensor x) { x.add_(1); });
  m.def("fails(Tensor x) -> Tensor", [](Tensor x) -> Tensor {
    TORCH_CHECK(x.dim() == 7, "expected 7 dimensions, got ", x.dim());
    return x;
  });
}

TORCH_LIBRARY_IMPL(rushlight_test, CPU, m) { m.impl("scale_add", scale_add_cpu); }
TORCH_LIBRARY_IMPL(rushlight_test, Autograd, m) { m.impl("scale_add", TORCH_FN(scale_add_autograd)); }
