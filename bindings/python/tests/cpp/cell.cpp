// A recurrent cell as an extension: a forward pass in C++ with a backward of its own, called from Python through pybind11.
#include <torch/extension.h>

#include <vector>

torch::Tensor d_sigmoid(torch::Tensor z) {
  auto s = torch::sigmoid(z);
  return (1 - s) * s;
}

torch::Tensor d_tanh(torch::Tensor z) { return 1 - z.tanh().pow(2); }

torch::Tensor d_elu(torch::Tensor z, torch::Scalar alpha = 1.0) {
  auto e = z.exp();
  auto mask = (alpha * (e - 1)) < 0;
  return (z > 0).type_as(z) + mask.type_as(z) * (alpha * e);
}

std::vector<torch::Tensor> cell_forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias, torch::Tensor old_h, torch::Tensor old_cell) {
  TORCH_CHECK(input.dim() == 2, "input must be a matrix, got ", input.dim(), " dimensions");
  auto X = torch::cat({old_h, input}, /*dim=*/1);
  auto gate_weights = torch::addmm(bias, X, weights.transpose(0, 1));
  auto gates = gate_weights.chunk(3, /*dim=*/1);
  auto input_gate = torch::sigmoid(gates[0]);
  auto output_gate = torch::sigmoid(gates[1]);
  auto candidate_cell = torch::elu(gates[2], /*alpha=*/1.0);
  auto new_cell = old_cell + candidate_cell * input_gate;
  auto new_h = torch::tanh(new_cell) * output_gate;
  return {new_h, new_cell, input_gate, output_gate, candidate_cell, X, gate_weights};
}

std::vector<torch::Tensor> cell_backward(torch::Tensor grad_h, torch::Tensor grad_cell, torch::Tensor new_cell, torch::Tensor input_gate,
                                         torch::Tensor output_gate, torch::Tensor candidate_cell, torch::Tensor X, torch::Tensor gate_weights,
                                         torch::Tensor weights) {
  auto d_output_gate = torch::tanh(new_cell) * grad_h;
  auto d_tanh_new_cell = output_gate * grad_h;
  auto d_new_cell = d_tanh(new_cell) * d_tanh_new_cell + grad_cell;
  auto d_old_cell = d_new_cell;
  auto d_candidate_cell = input_gate * d_new_cell;
  auto d_input_gate = candidate_cell * d_new_cell;
  auto gates = gate_weights.chunk(3, /*dim=*/1);
  d_input_gate *= d_sigmoid(gates[0]);
  d_output_gate *= d_sigmoid(gates[1]);
  d_candidate_cell *= d_elu(gates[2]);
  auto d_gates = torch::cat({d_input_gate, d_output_gate, d_candidate_cell}, /*dim=*/1);
  auto d_weights = d_gates.t().mm(X);
  auto d_bias = d_gates.sum(/*dim=*/0, /*keepdim=*/true);
  auto d_X = d_gates.mm(weights);
  const auto state_size = grad_h.size(1);
  auto d_old_h = d_X.slice(/*dim=*/1, 0, state_size);
  auto d_input = d_X.slice(/*dim=*/1, state_size);
  return {d_old_h, d_input, d_weights, d_bias, d_old_cell};
}

// The product of a tensor's elements with a number, element by element, for each dtype; not recorded.
torch::Tensor scaled(const torch::Tensor& x, const torch::Scalar& by) {
  torch::Tensor in = x.contiguous(), out = torch::empty_like(in);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "scaled", [&] {
    const scalar_t* from = in.data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    at::parallel_for(0, in.numel(), 1000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<scalar_t>(static_cast<double>(from[i]) * by.toDouble());
    });
  });
  return out;
}

// A function with a backward in C++.
struct Cube : torch::autograd::Function<Cube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x) {
    ctx->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::tensor_list grads) {
    auto x = ctx->get_saved_variables()[0];
    return {3 * x * x * grads[0]};
  }
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &cell_forward, "a step of the cell");
  m.def("backward", &cell_backward, "its gradients");
  m.def("scaled", &scaled);
  m.def("cube", [](torch::Tensor x) { return Cube::apply(x); });
  m.def("same", [](torch::Tensor x) { return x; });
  m.def("fill_", [](torch::Tensor x, double value) { x.fill_(value); }, py::arg("x"), py::arg("value") = 1.0);
  m.def("maybe", [](std::optional<torch::Tensor> x) -> std::optional<torch::Tensor> { return x ? std::make_optional(*x + 1) : std::nullopt; });
  m.def("zeros", [](std::vector<int64_t> size, torch::ScalarType type, torch::Device device) { return torch::zeros(size, torch::dtype(type).device(device)); });
  m.def("describe", [](torch::Tensor x) { return std::make_tuple(x.scalar_type(), x.device(), x.sizes(), x.sum().item()); });
  m.def("squares_grad", [](torch::Tensor x) {
    auto leaf = x.detach().requires_grad_();
    (leaf * leaf).sum().backward();
    return leaf.grad();
  });
  m.def("one", [] { return torch::ones({1}); });
  m.def("fails", [](torch::Tensor x) { return x.view({3, 5}); });
}
