// torch::nn::init and torch::nn::utils.
#pragma once

#include <torch/nn/functional.h>

namespace torch {
namespace nn {
namespace init {

inline Tensor uniform_(Tensor t, double low = 0, double high = 1) { NoGradGuard g; return t.uniform_(low, high); }
inline Tensor normal_(Tensor t, double mean = 0, double std = 1) { NoGradGuard g; return t.normal_(mean, std); }
inline Tensor constant_(Tensor t, const Scalar& value) { NoGradGuard g; return t.fill_(value); }
inline Tensor ones_(Tensor t) { return constant_(std::move(t), 1); }
inline Tensor zeros_(Tensor t) { return constant_(std::move(t), 0); }
inline Tensor eye_(Tensor t) { NoGradGuard g; return t.copy_(torch::eye(t.size(0), t.size(1), t.options())); }

inline double calculate_gain(const Word& nonlinearity, double param = 0.01) {
  const std::string& n = nonlinearity.name;
  if (n == "tanh") return 5.0 / 3.0;
  if (n == "relu") return std::sqrt(2.0);
  if (n == "leaky_relu") return std::sqrt(2.0 / (1 + param * param));
  return 1;
}
inline std::pair<int64_t, int64_t> _calculate_fan_in_and_fan_out(const Tensor& t) {
  TORCH_CHECK(t.dim() >= 2, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
  int64_t field = t.dim() > 2 ? t.numel() / (t.size(0) * t.size(1)) : 1;
  return {t.size(1) * field, t.size(0) * field};
}
inline Tensor xavier_uniform_(Tensor t, double gain = 1) {
  auto [in, out] = _calculate_fan_in_and_fan_out(t);
  double bound = gain * std::sqrt(6.0 / static_cast<double>(in + out));
  return uniform_(std::move(t), -bound, bound);
}
inline Tensor xavier_normal_(Tensor t, double gain = 1) {
  auto [in, out] = _calculate_fan_in_and_fan_out(t);
  return normal_(std::move(t), 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)));
}
inline double kaiming_std(const Tensor& t, double a, const Word& mode, const Word& nonlinearity) {
  auto [in, out] = _calculate_fan_in_and_fan_out(t);
  return calculate_gain(nonlinearity, a) / std::sqrt(static_cast<double>(mode.name == "fan_in" ? in : out));
}
inline Tensor kaiming_uniform_(Tensor t, double a = 0, Word mode = torch::kFanIn, Word nonlinearity = torch::kLeakyReLU) {
  double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity);
  return uniform_(std::move(t), -bound, bound);
}
inline Tensor kaiming_normal_(Tensor t, double a = 0, Word mode = torch::kFanIn, Word nonlinearity = torch::kLeakyReLU) {
  double std = kaiming_std(t, a, mode, nonlinearity);
  return normal_(std::move(t), 0, std);
}
// Repeated identity: the layer keeps its input's channels.
inline Tensor dirac_(Tensor t) {
  NoGradGuard g;
  TORCH_CHECK(t.dim() >= 3 && t.dim() <= 5, "Only tensors with 3, 4, or 5 dimensions are supported");
  t.zero_();
  for (int64_t i = 0; i < std::min(t.size(0), t.size(1)); ++i) {
    Tensor kernel = t[i][i];
    for (int64_t d = 2; d < t.dim(); ++d) kernel = kernel[t.size(d) / 2];
    kernel.fill_(1);
  }
  return t;
}
// Normal numbers, and zeros at random places of each column.
inline Tensor sparse_(Tensor t, double sparsity, double std = 0.01) {
  NoGradGuard g;
  TORCH_CHECK(t.dim() == 2, "Only tensors with 2 dimensions are supported");
  const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(t.size(0))));
  t.normal_(0, std);
  for (int64_t column = 0; column < t.size(1); ++column)
    t.index_put_({torch::randperm(t.size(0), TensorOptions(kLong).device(t.device())).narrow(0, 0, zeros), column}, 0);
  return t;
}
inline Tensor orthogonal_(Tensor t, double gain = 1) {
  NoGradGuard g;
  TORCH_CHECK(t.dim() >= 2, "Only tensors with 2 or more dimensions are supported");
  int64_t rows = t.size(0), columns = t.numel() / rows;
  Tensor flat = torch::randn({rows, columns}, t.options());
  if (rows < columns) flat = flat.t();
  auto [q, r] = torch::linalg::qr(flat);
  q = q * r.diagonal().sign();
  if (rows < columns) q = q.t();
  return t.copy_(q.reshape(t.sizes()) * gain);
}

}  // namespace init

namespace utils {

// Scales gradients so that their norm is at most `max_norm`; returns the norm.
inline double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0, bool error_if_nonfinite = false) {
  torch::detail::Handles handles(parameters);
  double norm = 0;
  torch::detail::check(rl_clip_grad_norm(handles.list.data(), handles.list.size(), max_norm, norm_type, &norm));
  TORCH_CHECK(!error_if_nonfinite || std::isfinite(norm), "The total norm of order ", norm_type, " for gradients is non-finite");
  return norm;
}
inline double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0) {
  return clip_grad_norm_(std::vector<Tensor>{parameter}, max_norm, norm_type);
}
inline void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  for (const Tensor& parameter : parameters) {
    Tensor grad = parameter.grad();
    if (grad.defined()) grad.detach().clamp_(Scalar(-clip_value), Scalar(clip_value));
  }
}
inline Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> flat;
  for (const Tensor& parameter : parameters) flat.push_back(parameter.view(-1));
  return torch::cat(flat);
}
// Parts of a vector as the elements of parameters, which keep their places in modules.
inline void vector_to_parameters(const Tensor& vec, const std::vector<Tensor>& parameters) {
  int64_t at = 0;
  for (const Tensor& parameter : parameters) {
    const int64_t count = parameter.numel();
    parameter.set_data(vec.narrow(0, at, count).view_as(parameter).data());
    at += count;
  }
}

}  // namespace utils
}  // namespace nn
}  // namespace torch
