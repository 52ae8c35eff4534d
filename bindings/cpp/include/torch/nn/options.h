// Options of layers, activations, losses and functions.
#pragma once

#include <torch/nn/containers.h>

namespace torch {

// Words of LibTorch's enumerations.
namespace enumtype {
#define RL_ENUM(Name, text) struct k##Name { static constexpr const char* name = text; };
RL_ENUM(Linear, "linear") RL_ENUM(Conv1D, "conv1d") RL_ENUM(Conv2D, "conv2d") RL_ENUM(Conv3D, "conv3d") RL_ENUM(Sigmoid, "sigmoid")
RL_ENUM(Tanh, "tanh") RL_ENUM(ReLU, "relu") RL_ENUM(GELU, "gelu") RL_ENUM(SiLU, "silu") RL_ENUM(LeakyReLU, "leaky_relu") RL_ENUM(FanIn, "fan_in")
RL_ENUM(FanOut, "fan_out") RL_ENUM(Constant, "constant") RL_ENUM(Reflect, "reflect") RL_ENUM(Replicate, "replicate") RL_ENUM(Circular, "circular")
RL_ENUM(Nearest, "nearest") RL_ENUM(Bilinear, "bilinear") RL_ENUM(Bicubic, "bicubic") RL_ENUM(Trilinear, "trilinear") RL_ENUM(Area, "area")
RL_ENUM(NearestExact, "nearest-exact") RL_ENUM(Sum, "sum") RL_ENUM(Mean, "mean") RL_ENUM(Max, "max") RL_ENUM(None, "none") RL_ENUM(BatchMean, "batchmean")
RL_ENUM(Zeros, "zeros") RL_ENUM(Border, "border") RL_ENUM(Reflection, "reflection") RL_ENUM(Same, "same") RL_ENUM(Valid, "valid")
#undef RL_ENUM
}  // namespace enumtype
#define RL_WORD(Name) inline constexpr enumtype::k##Name k##Name{};
RL_WORD(Linear) RL_WORD(Conv1D) RL_WORD(Conv2D) RL_WORD(Conv3D) RL_WORD(Sigmoid) RL_WORD(Tanh) RL_WORD(ReLU) RL_WORD(GELU) RL_WORD(SiLU) RL_WORD(LeakyReLU)
RL_WORD(FanIn) RL_WORD(FanOut) RL_WORD(Constant) RL_WORD(Reflect) RL_WORD(Replicate) RL_WORD(Circular) RL_WORD(Nearest) RL_WORD(Bilinear) RL_WORD(Bicubic)
RL_WORD(Trilinear) RL_WORD(Area) RL_WORD(NearestExact) RL_WORD(Sum) RL_WORD(Mean) RL_WORD(Max) RL_WORD(None) RL_WORD(BatchMean) RL_WORD(Zeros) RL_WORD(Border)
RL_WORD(Reflection) RL_WORD(Same) RL_WORD(Valid)
#undef RL_WORD

namespace nn {

// One of the words.
struct Word {
  template <class T, class = decltype(T::name)>
  Word(const T&) : name(T::name) {}
  // As LibTorch's text forms show it: kNearestExact.
  std::string shown() const {
    std::string text = "k";
    bool upper = true;
    for (char c : name) {
      if (c == '-') upper = true;
      else text += upper ? static_cast<char>(c - 'a' + 'A') : c, upper = false;
    }
    return name == "relu" ? "kReLU" : text;
  }
  std::string name;
};
// How a loss is reduced.
struct LossReduction {
  LossReduction(enumtype::kNone) : value(Reduction::None) {}
  LossReduction(enumtype::kMean) : value(Reduction::Mean) {}
  LossReduction(enumtype::kSum) : value(Reduction::Sum) {}
  operator int64_t() const { return value; }
  int64_t value;
};

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features) : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
};
struct BilinearOptions {
  BilinearOptions(int64_t a, int64_t b, int64_t out) : in1_features_(a), in2_features_(b), out_features_(out) {}
  TORCH_ARG(int64_t, in1_features);
  TORCH_ARG(int64_t, in2_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
};
struct FlattenOptions { TORCH_ARG(int64_t, start_dim) = 1; TORCH_ARG(int64_t, end_dim) = -1; };
struct UnflattenOptions {
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  TORCH_ARG(int64_t, dim);
  TORCH_ARG(std::vector<int64_t>, sizes);
};

// Padding of a convolution: numbers, or a word.
template <size_t D>
class ConvPadding {
 public:
  ConvPadding(ExpandingArray<D> values) : values_(values) {}
  ConvPadding(std::initializer_list<int64_t> values) : values_(values) {}
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  ConvPadding(T value) : values_(static_cast<int64_t>(value)) {}
  ConvPadding(enumtype::kSame) : values_(0), name_("same") {}
  ConvPadding(enumtype::kValid) : values_(0), name_("valid") {}
  operator IntArrayRef() const { return values_; }
  const ExpandingArray<D>& values() const { return values_; }
  const std::string& name() const { return name_; }

 private:
  ExpandingArray<D> values_;
  std::string name_;
};
template <size_t D>
struct ConvOptions {
  ConvOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ConvPadding<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(Word, padding_mode) = torch::kZeros;
};
template <size_t D>
struct ConvTransposeOptions {
  ConvTransposeOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, output_padding) = 0;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
};
template <size_t D>
struct ConvFuncOptions {
  TORCH_ARG(Tensor, bias) = Tensor();
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ConvPadding<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
  TORCH_ARG(int64_t, groups) = 1;
};
template <size_t D>
struct ConvTransposeFuncOptions {
  TORCH_ARG(Tensor, bias) = Tensor();
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, output_padding) = 0;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
};
template <size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
  TORCH_ARG(bool, ceil_mode) = false;
};
template <size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(bool, ceil_mode) = false;
  TORCH_ARG(bool, count_include_pad) = true;
  TORCH_ARG(optional<int64_t>, divisor_override) = nullopt;
};
template <size_t D>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(ExpandingArray<D> output_size) : output_size_(output_size) {}
  AdaptivePoolOptions(std::initializer_list<int64_t> output_size) : output_size_(output_size) {}
  // nullopt: the input's own size.
  AdaptivePoolOptions(std::initializer_list<optional<int64_t>> output_size) : output_size_(-1) {
    TORCH_CHECK(output_size.size() == D, "Expected ", D, " values, but instead got ", output_size.size());
    size_t at = 0;
    for (const auto& size : output_size) (*output_size_)[at++] = size.value_or(-1);
  }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  AdaptivePoolOptions(T output_size) : output_size_(static_cast<int64_t>(output_size)) {}
  TORCH_ARG(ExpandingArray<D>, output_size);
};
#define RL_DIMENSIONS(D)                                             \
  using Conv##D##dOptions = ConvOptions<D>;                          \
  using ConvTranspose##D##dOptions = ConvTransposeOptions<D>;        \
  using MaxPool##D##dOptions = MaxPoolOptions<D>;                    \
  using AvgPool##D##dOptions = AvgPoolOptions<D>;                    \
  using AdaptiveAvgPool##D##dOptions = AdaptivePoolOptions<D>;       \
  using AdaptiveMaxPool##D##dOptions = AdaptivePoolOptions<D>;       \
  namespace functional {                                             \
  using Conv##D##dFuncOptions = ConvFuncOptions<D>;                  \
  using ConvTranspose##D##dFuncOptions = ConvTransposeFuncOptions<D>;\
  using MaxPool##D##dFuncOptions = MaxPoolOptions<D>;                \
  using AvgPool##D##dFuncOptions = AvgPoolOptions<D>;                \
  using AdaptiveAvgPool##D##dFuncOptions = AdaptivePoolOptions<D>;   \
  using AdaptiveMaxPool##D##dFuncOptions = AdaptivePoolOptions<D>;   \
  }
RL_DIMENSIONS(1)
RL_DIMENSIONS(2)
RL_DIMENSIONS(3)
#undef RL_DIMENSIONS

struct BatchNormOptions {
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;
  TORCH_ARG(bool, track_running_stats) = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;
struct InstanceNormOptions {
  InstanceNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(double, momentum) = 0.1;
  TORCH_ARG(bool, affine) = false;
  TORCH_ARG(bool, track_running_stats) = false;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;
struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, elementwise_affine) = true;
};
struct GroupNormOptions {
  GroupNormOptions(int64_t num_groups, int64_t num_channels) : num_groups_(num_groups), num_channels_(num_channels) {}
  TORCH_ARG(int64_t, num_groups);
  TORCH_ARG(int64_t, num_channels);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, affine) = true;
};
struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  TORCH_ARG(double, p) = 0.5;
  TORCH_ARG(bool, inplace) = false;
};
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;
struct EmbeddingOptions {
  EmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim) : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(bool, sparse) = false;
  TORCH_ARG(Tensor, _weight) = Tensor();
};
struct EmbeddingFromPretrainedOptions {
  TORCH_ARG(bool, freeze) = true;
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(bool, sparse) = false;
};
struct RNNOptionsBase {
  RNNOptionsBase(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  TORCH_ARG(int64_t, num_layers) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(bool, batch_first) = false;
  TORCH_ARG(double, dropout) = 0.0;
  TORCH_ARG(bool, bidirectional) = false;
  TORCH_ARG(int64_t, proj_size) = 0;
  TORCH_ARG(Word, nonlinearity) = torch::kTanh;
};
using RNNOptions = RNNOptionsBase;
using LSTMOptions = RNNOptionsBase;
using GRUOptions = RNNOptionsBase;

#define RL_INPLACE_OPTION(Name) struct Name { Name(bool inplace = false) : inplace_(inplace) {} TORCH_ARG(bool, inplace); };
RL_INPLACE_OPTION(ReLUOptions)
RL_INPLACE_OPTION(ReLU6Options)
RL_INPLACE_OPTION(SELUOptions)
#undef RL_INPLACE_OPTION
struct RReLUOptions { TORCH_ARG(double, lower) = 1.0 / 8.0; TORCH_ARG(double, upper) = 1.0 / 3.0; TORCH_ARG(bool, inplace) = false; };
struct LeakyReLUOptions { TORCH_ARG(double, negative_slope) = 1e-2; TORCH_ARG(bool, inplace) = false; };
struct ELUOptions { TORCH_ARG(double, alpha) = 1.0; TORCH_ARG(bool, inplace) = false; };
struct CELUOptions { TORCH_ARG(double, alpha) = 1.0; TORCH_ARG(bool, inplace) = false; };
struct GELUOptions { TORCH_ARG(std::string, approximate) = "none"; };
struct HardtanhOptions { TORCH_ARG(double, min_val) = -1.0; TORCH_ARG(double, max_val) = 1.0; TORCH_ARG(bool, inplace) = false; };
struct HardshrinkOptions { HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {} TORCH_ARG(double, lambda); };
struct SoftshrinkOptions { SoftshrinkOptions(double lambda = 0.5) : lambda_(lambda) {} TORCH_ARG(double, lambda); };
struct SoftplusOptions { TORCH_ARG(double, beta) = 1.0; TORCH_ARG(double, threshold) = 20.0; };
struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  TORCH_ARG(double, threshold);
  TORCH_ARG(double, value);
  TORCH_ARG(bool, inplace) = false;
};
struct PReLUOptions { TORCH_ARG(int64_t, num_parameters) = 1; TORCH_ARG(double, init) = 0.25; };
struct GLUOptions { GLUOptions(int64_t dim = -1) : dim_(dim) {} TORCH_ARG(int64_t, dim); };
struct SoftmaxOptions { SoftmaxOptions(int64_t dim) : dim_(dim) {} TORCH_ARG(int64_t, dim); };
struct LogSoftmaxOptions { LogSoftmaxOptions(int64_t dim) : dim_(dim) {} TORCH_ARG(int64_t, dim); };
struct SoftminOptions { SoftminOptions(int64_t dim) : dim_(dim) {} TORCH_ARG(int64_t, dim); };

// Constructors of options whose first is the reduction.
#define RL_REDUCED(Name)                                          \
  Name(LossReduction r = torch::kMean) : reduction_(r) {}         \
  Name(enumtype::kNone r) : reduction_(r) {}                      \
  Name(enumtype::kMean r) : reduction_(r) {}                      \
  Name(enumtype::kSum r) : reduction_(r) {}
struct MSELossOptions { RL_REDUCED(MSELossOptions) TORCH_ARG(LossReduction, reduction); };
struct L1LossOptions { RL_REDUCED(L1LossOptions) TORCH_ARG(LossReduction, reduction); };
struct SmoothL1LossOptions { RL_REDUCED(SmoothL1LossOptions) TORCH_ARG(LossReduction, reduction); TORCH_ARG(double, beta) = 1.0; };
struct HuberLossOptions { RL_REDUCED(HuberLossOptions) TORCH_ARG(LossReduction, reduction); TORCH_ARG(double, delta) = 1.0; };
struct NLLLossOptions { TORCH_ARG(Tensor, weight) = Tensor(); TORCH_ARG(int64_t, ignore_index) = -100; TORCH_ARG(LossReduction, reduction) = torch::kMean; };
struct CrossEntropyLossOptions {
  TORCH_ARG(Tensor, weight) = Tensor();
  TORCH_ARG(int64_t, ignore_index) = -100;
  TORCH_ARG(LossReduction, reduction) = torch::kMean;
  TORCH_ARG(double, label_smoothing) = 0.0;
};
struct BCELossOptions { TORCH_ARG(Tensor, weight) = Tensor(); TORCH_ARG(LossReduction, reduction) = torch::kMean; };
struct BCEWithLogitsLossOptions { TORCH_ARG(Tensor, weight) = Tensor(); TORCH_ARG(LossReduction, reduction) = torch::kMean; TORCH_ARG(Tensor, pos_weight) = Tensor(); };
struct KLDivLossOptions {
  KLDivLossOptions(Word r = torch::kMean) : reduction_(r) {}
  template <class T, class = decltype(T::name)>
  KLDivLossOptions(const T& r) : reduction_(r) {}
  TORCH_ARG(Word, reduction);
  TORCH_ARG(bool, log_target) = false;
};

namespace functional {
using LeakyReLUFuncOptions = LeakyReLUOptions;
using SELUFuncOptions = SELUOptions;
using CELUFuncOptions = CELUOptions;
using ReLU6FuncOptions = ReLU6Options;
using HardtanhFuncOptions = HardtanhOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using SoftplusFuncOptions = SoftplusOptions;
using ThresholdFuncOptions = ThresholdOptions;
using GLUFuncOptions = GLUOptions;
using SoftminFuncOptions = SoftminOptions;
using ELUFuncOptions = ELUOptions;
using GELUFuncOptions = GELUOptions;
using SoftmaxFuncOptions = SoftmaxOptions;
using LogSoftmaxFuncOptions = LogSoftmaxOptions;
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
struct PadFuncOptions {
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}
  TORCH_ARG(std::vector<int64_t>, pad);
  TORCH_ARG(Word, mode) = torch::kConstant;
  TORCH_ARG(double, value) = 0;
};
struct InterpolateFuncOptions {
  TORCH_ARG(optional<std::vector<int64_t>>, size) = nullopt;
  TORCH_ARG(optional<std::vector<double>>, scale_factor) = nullopt;
  TORCH_ARG(Word, mode) = torch::kNearest;
  TORCH_ARG(optional<bool>, align_corners) = nullopt;
  TORCH_ARG(optional<bool>, recompute_scale_factor) = nullopt;
  TORCH_ARG(bool, antialias) = false;
};
}  // namespace functional

}  // namespace nn
}  // namespace torch
