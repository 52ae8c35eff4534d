// torch::nn::functional, with option structs.
#pragma once

#include <torch/composed.h>
#include <torch/nn/options.h>

namespace torch {
namespace nn {
namespace functional {

namespace raw = torch::detail::raw;

inline Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = Tensor()) { return raw::linear(input, weight, bias); }
inline Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias = Tensor()) { return raw::bilinear(a, b, weight, bias); }
inline Tensor one_hot(const Tensor& tensor, int64_t num_classes = -1) { return raw::one_hot(tensor, num_classes); }

// Activations.
struct ReLUFuncOptions { ReLUFuncOptions(bool inplace = false) : inplace_(inplace) {} TORCH_ARG(bool, inplace); };
inline Tensor relu(const Tensor& input, bool inplace = false) { return inplace ? raw::relu(input, true) : torch::relu(input); }
inline Tensor relu(const Tensor& input, const ReLUFuncOptions& o) { return relu(input, o.inplace()); }
inline Tensor relu6(const Tensor& input, bool inplace = false) { return raw::relu6(input, inplace); }
inline Tensor relu6(const Tensor& input, const ReLU6FuncOptions& o) { return relu6(input, o.inplace()); }
struct RReLUFuncOptions {
  TORCH_ARG(double, lower) = 1.0 / 8.0;
  TORCH_ARG(double, upper) = 1.0 / 3.0;
  TORCH_ARG(bool, training) = false;
  TORCH_ARG(bool, inplace) = false;
};
inline Tensor rrelu(const Tensor& input, const RReLUFuncOptions& o = {}) { return raw::rrelu(input, o.lower(), o.upper(), o.training(), o.inplace()); }
struct GumbelSoftmaxFuncOptions { TORCH_ARG(double, tau) = 1.0; TORCH_ARG(bool, hard) = false; TORCH_ARG(int64_t, dim) = -1; };
inline Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& o = {}) { return raw::gumbel_softmax(logits, o.tau(), o.hard(), 1e-10, o.dim()); }
inline Tensor leaky_relu(const Tensor& input, const LeakyReLUOptions& o = {}) { return raw::leaky_relu(input, o.negative_slope(), o.inplace()); }
inline Tensor elu(const Tensor& input, const ELUOptions& o = {}) { return raw::elu(input, o.alpha(), o.inplace()); }
inline Tensor selu(const Tensor& input, const SELUOptions& o = {}) { return raw::selu(input, o.inplace()); }
inline Tensor celu(const Tensor& input, const CELUOptions& o = {}) { return raw::celu(input, o.alpha(), o.inplace()); }
inline Tensor gelu(const Tensor& input, const GELUOptions& o = {}) { return raw::gelu(input, o.approximate()); }
inline Tensor silu(const Tensor& input) { return raw::silu(input); }
inline Tensor mish(const Tensor& input) { return raw::mish(input); }
inline Tensor hardtanh(const Tensor& input, const HardtanhOptions& o = {}) { return raw::hardtanh(input, o.min_val(), o.max_val(), o.inplace()); }
inline Tensor hardshrink(const Tensor& input, const HardshrinkOptions& o = {}) { return torch::hardshrink(input, o.lambda()); }
inline Tensor softshrink(const Tensor& input, const SoftshrinkOptions& o = {}) { return raw::softshrink(input, o.lambda()); }
inline Tensor softplus(const Tensor& input, const SoftplusOptions& o = {}) { return raw::softplus(input, o.beta(), o.threshold()); }
inline Tensor threshold(const Tensor& input, const ThresholdOptions& o) { return raw::threshold(input, o.threshold(), o.value(), o.inplace()); }
inline Tensor softsign(const Tensor& input) { return raw::softsign(input); }
inline Tensor tanhshrink(const Tensor& input) { return raw::tanhshrink(input); }
inline Tensor logsigmoid(const Tensor& input) { return raw::logsigmoid(input); }
inline Tensor glu(const Tensor& input, const GLUOptions& o = {}) { return raw::glu(input, o.dim()); }
inline Tensor prelu(const Tensor& input, const Tensor& weight) { return torch::prelu(input, weight); }
inline Tensor softmax(const Tensor& input, const SoftmaxOptions& o) { return torch::softmax(input, o.dim()); }
inline Tensor log_softmax(const Tensor& input, const LogSoftmaxOptions& o) { return torch::log_softmax(input, o.dim()); }
inline Tensor softmin(const Tensor& input, const SoftminOptions& o) { return torch::softmax(-input, o.dim()); }
inline Tensor sigmoid(const Tensor& input) { return torch::sigmoid(input); }
inline Tensor tanh(const Tensor& input) { return torch::tanh(input); }

// Dropout.
struct DropoutFuncOptions { TORCH_ARG(double, p) = 0.5; TORCH_ARG(bool, training) = false; TORCH_ARG(bool, inplace) = false; };
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;
struct AlphaDropoutFuncOptions { TORCH_ARG(double, p) = 0.5; TORCH_ARG(bool, training) = false; TORCH_ARG(bool, inplace) = false; };
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;
inline Tensor dropout(const Tensor& input, const DropoutFuncOptions& o = {}) { return raw::dropout(input, o.p(), o.training(), o.inplace()); }
inline Tensor dropout2d(const Tensor& input, const Dropout2dFuncOptions& o = {}) { return raw::dropout2d(input, o.p(), o.training(), o.inplace()); }
inline Tensor dropout3d(const Tensor& input, const Dropout3dFuncOptions& o = {}) { return raw::dropout3d(input, o.p(), o.training(), o.inplace()); }
inline Tensor alpha_dropout(const Tensor& input, const AlphaDropoutFuncOptions& o = {}) { return raw::alpha_dropout(input, o.p(), o.training(), o.inplace()); }
inline Tensor feature_alpha_dropout(const Tensor& input, const FeatureAlphaDropoutFuncOptions& o = {}) {
  return raw::feature_alpha_dropout(input, o.p(), o.training(), o.inplace());
}

// Convolution.
#define RL_CONVOLUTION(D)                                                                                                              \
  inline Tensor conv##D##d(const Tensor& input, const Tensor& weight, const Conv##D##dFuncOptions& o = {}) {                            \
    return o.padding().name().empty() ? torch::conv##D##d(input, weight, o.bias(), o.stride(), o.padding(), o.dilation(), o.groups())   \
                                      : torch::conv##D##d(input, weight, o.bias(), o.stride(), PaddingName(o.padding().name()), o.dilation(), o.groups()); \
  }                                                                                                                                     \
  inline Tensor conv_transpose##D##d(const Tensor& input, const Tensor& weight, const ConvTranspose##D##dFuncOptions& o = {}) {          \
    return torch::conv_transpose##D##d(input, weight, o.bias(), o.stride(), o.padding(), o.output_padding(), o.groups(), o.dilation());  \
  }
RL_CONVOLUTION(1)
RL_CONVOLUTION(2)
RL_CONVOLUTION(3)
#undef RL_CONVOLUTION

// Pooling.
#define RL_POOLING(D)                                                                                                               \
  inline Tensor max_pool##D##d(const Tensor& input, const MaxPool##D##dOptions& o) {                                                 \
    return torch::max_pool##D##d(input, o.kernel_size(), o.stride(), o.padding(), o.dilation(), o.ceil_mode());                      \
  }                                                                                                                                  \
  inline std::tuple<Tensor, Tensor> max_pool##D##d_with_indices(const Tensor& input, const MaxPool##D##dOptions& o) {                \
    return raw::max_pool##D##d_with_indices(input, o.kernel_size(), o.stride(), o.padding(), o.dilation(), o.ceil_mode());           \
  }                                                                                                                                  \
  inline Tensor adaptive_avg_pool##D##d(const Tensor& input, const AdaptiveAvgPool##D##dOptions& o) {                                \
    return torch::adaptive_avg_pool##D##d(input, o.output_size());                                                                   \
  }
RL_POOLING(1)
RL_POOLING(2)
RL_POOLING(3)
#undef RL_POOLING
inline Tensor avg_pool1d(const Tensor& input, const AvgPool1dOptions& o) {
  return torch::avg_pool1d(input, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad());
}
inline Tensor avg_pool2d(const Tensor& input, const AvgPool2dOptions& o) {
  return torch::avg_pool2d(input, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad(), o.divisor_override());
}
inline Tensor avg_pool3d(const Tensor& input, const AvgPool3dOptions& o) {
  return torch::avg_pool3d(input, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad(), o.divisor_override());
}
inline Tensor adaptive_max_pool1d(const Tensor& input, const AdaptiveMaxPool1dOptions& o) { return raw::adaptive_max_pool1d(input, o.output_size()); }
inline Tensor adaptive_max_pool2d(const Tensor& input, const AdaptiveMaxPool2dOptions& o) { return raw::adaptive_max_pool2d(input, o.output_size()); }

// Normalisation.
struct BatchNormFuncOptions {
  TORCH_ARG(Tensor, weight);
  TORCH_ARG(Tensor, bias);
  TORCH_ARG(bool, training) = false;
  TORCH_ARG(optional<double>, momentum) = 0.1;
  TORCH_ARG(double, eps) = 1e-5;
};
inline Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const BatchNormFuncOptions& o = {}) {
  return raw::batch_norm(input, running_mean, running_var, o.weight(), o.bias(), o.training(), o.momentum().value_or(0), o.eps());
}
struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<int64_t> shape) : normalized_shape_(std::move(shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(Tensor, weight);
  TORCH_ARG(Tensor, bias);
  TORCH_ARG(double, eps) = 1e-5;
};
inline Tensor layer_norm(const Tensor& input, const LayerNormFuncOptions& o) { return torch::layer_norm(input, o.normalized_shape(), o.weight(), o.bias(), o.eps()); }
struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t groups) : num_groups_(groups) {}
  TORCH_ARG(int64_t, num_groups);
  TORCH_ARG(Tensor, weight);
  TORCH_ARG(Tensor, bias);
  TORCH_ARG(double, eps) = 1e-5;
};
inline Tensor group_norm(const Tensor& input, const GroupNormFuncOptions& o) { return torch::group_norm(input, o.num_groups(), o.weight(), o.bias(), o.eps()); }
struct NormalizeFuncOptions { TORCH_ARG(double, p) = 2.0; TORCH_ARG(int64_t, dim) = 1; TORCH_ARG(double, eps) = 1e-12; };
inline Tensor normalize(const Tensor& input, const NormalizeFuncOptions& o = {}) { return raw::normalize(input, o.p(), o.dim(), o.eps()); }

// Embedding, padding, resizing, attention.
struct EmbeddingFuncOptions {
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(bool, sparse) = false;
};
inline Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingFuncOptions& o = {}) {
  return raw::embedding(input, weight, o.padding_idx(), o.max_norm(), o.norm_type(), o.scale_grad_by_freq(), o.sparse());
}
inline Tensor pad(const Tensor& input, const PadFuncOptions& o) {
  return raw::pad(input, o.pad(), o.mode().name, o.mode().name == "constant" ? optional<Scalar>(o.value()) : nullopt);
}
inline Tensor interpolate(const Tensor& input, const InterpolateFuncOptions& o = {}) {
  using namespace torch::detail;
  static const Op op("nn.functional.interpolate");
  rl_value a[] = {v(input), o.size() ? v(IntArrayRef(*o.size())) : v(nullopt), o.scale_factor() ? v(ArrayRef<double>(*o.scale_factor())) : v(nullopt),
                  v(string_view(o.mode().name)), v(o.align_corners()), v(o.recompute_scale_factor()), v(o.antialias())};
  return one(op, a);
}
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const optional<Tensor>& mask = {},
                                           double dropout_p = 0, bool is_causal = false) {
  return torch::scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal);
}
struct InstanceNormFuncOptions {
  TORCH_ARG(Tensor, running_mean);
  TORCH_ARG(Tensor, running_var);
  TORCH_ARG(Tensor, weight);
  TORCH_ARG(Tensor, bias);
  TORCH_ARG(bool, use_input_stats) = true;
  TORCH_ARG(double, momentum) = 0.1;
  TORCH_ARG(double, eps) = 1e-5;
};
inline Tensor instance_norm(const Tensor& input, const InstanceNormFuncOptions& o = {}) {
  return raw::instance_norm(input, o.running_mean(), o.running_var(), o.weight(), o.bias(), o.use_input_stats(), o.momentum(), o.eps());
}
struct PairwiseDistanceFuncOptions { TORCH_ARG(double, p) = 2.0; TORCH_ARG(double, eps) = 1e-6; TORCH_ARG(bool, keepdim) = false; };
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceFuncOptions& o = {}) {
  return raw::pairwise_distance(a, b, o.p(), o.eps(), o.keepdim());
}
inline Tensor pdist(const Tensor& input, double p = 2.0) { return raw::pdist(input, p); }
struct CosineSimilarityFuncOptions { TORCH_ARG(int64_t, dim) = 1; TORCH_ARG(double, eps) = 1e-8; };
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityFuncOptions& o = {}) { return torch::cosine_similarity(a, b, o.dim(), o.eps()); }
inline Tensor pixel_shuffle(const Tensor& input, int64_t factor) { return torch::pixel_shuffle(input, factor); }

// Losses.
inline Tensor mse_loss(const Tensor& input, const Tensor& target, const MSELossOptions& o = {}) { return torch::mse_loss(input, target, o.reduction()); }
inline Tensor l1_loss(const Tensor& input, const Tensor& target, const L1LossOptions& o = {}) { return torch::l1_loss(input, target, o.reduction()); }
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& o = {}) {
  return torch::smooth_l1_loss(input, target, o.reduction(), o.beta());
}
inline Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& o = {}) {
  return torch::huber_loss(input, target, o.reduction(), o.delta());
}
inline Tensor nll_loss(const Tensor& input, const Tensor& target, const NLLLossOptions& o = {}) {
  return torch::nll_loss(input, target, o.weight(), o.reduction(), o.ignore_index());
}
inline Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyLossOptions& o = {}) {
  return torch::cross_entropy_loss(input, target, o.weight(), o.reduction(), o.ignore_index(), o.label_smoothing());
}
inline Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BCELossOptions& o = {}) {
  return torch::binary_cross_entropy(input, target, o.weight(), o.reduction());
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const BCEWithLogitsLossOptions& o = {}) {
  return torch::binary_cross_entropy_with_logits(input, target, o.weight(), o.pos_weight(), o.reduction());
}
inline Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivLossOptions& o = {}) {
  return raw::kl_div(input, target, nullopt, nullopt, o.reduction().name, o.log_target());
}

}  // namespace functional
}  // namespace nn
}  // namespace torch
