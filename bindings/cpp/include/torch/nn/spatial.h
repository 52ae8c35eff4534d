// Padding, resizing, sampling, folding and the rarer forms of pooling: options, functions, modules.
#pragma once

#include <torch/nn/layers.h>

namespace torch {
namespace nn {

template <size_t D>
struct PadOptions {
  PadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}
  TORCH_ARG(ExpandingArray<D * 2>, padding);
};
template <size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(ExpandingArray<D * 2> padding, double value) : padding_(padding), value_(value) {}
  TORCH_ARG(ExpandingArray<D * 2>, padding);
  TORCH_ARG(double, value);
};
struct PixelShuffleOptions { PixelShuffleOptions(int64_t factor) : upscale_factor_(factor) {} TORCH_ARG(int64_t, upscale_factor); };
struct PixelUnshuffleOptions { PixelUnshuffleOptions(int64_t factor) : downscale_factor_(factor) {} TORCH_ARG(int64_t, downscale_factor); };
struct UpsampleOptions {
  TORCH_ARG(optional<std::vector<int64_t>>, size) = nullopt;
  TORCH_ARG(optional<std::vector<double>>, scale_factor) = nullopt;
  TORCH_ARG(Word, mode) = torch::kNearest;
  TORCH_ARG(optional<bool>, align_corners) = nullopt;
};
struct FoldOptions {
  FoldOptions(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size) : output_size_(output_size), kernel_size_(kernel_size) {}
  TORCH_ARG(ExpandingArray<2>, output_size);
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  TORCH_ARG(ExpandingArray<2>, dilation) = 1;
  TORCH_ARG(ExpandingArray<2>, padding) = 0;
  TORCH_ARG(ExpandingArray<2>, stride) = 1;
};
struct UnfoldOptions {
  UnfoldOptions(ExpandingArray<2> kernel_size) : kernel_size_(kernel_size) {}
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  TORCH_ARG(ExpandingArray<2>, dilation) = 1;
  TORCH_ARG(ExpandingArray<2>, padding) = 0;
  TORCH_ARG(ExpandingArray<2>, stride) = 1;
};
template <size_t D>
struct MaxUnpoolOptions {
  MaxUnpoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
};
template <size_t D>
struct FractionalMaxPoolOptions {
  using Ratio = ExpandingArray<D, double>;
  FractionalMaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(optional<ExpandingArray<D>>, output_size) = nullopt;
  TORCH_ARG(optional<Ratio>, output_ratio) = nullopt;
  TORCH_ARG(Tensor, _random_samples) = Tensor();
};
template <size_t D>
struct LPPoolOptions {
  LPPoolOptions(double norm_type, ExpandingArray<D> kernel_size) : norm_type_(norm_type), kernel_size_(kernel_size), stride_(kernel_size) {}
  TORCH_ARG(double, norm_type);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(bool, ceil_mode) = false;
};
struct LocalResponseNormOptions {
  LocalResponseNormOptions(int64_t size) : size_(size) {}
  TORCH_ARG(int64_t, size);
  TORCH_ARG(double, alpha) = 1e-4;
  TORCH_ARG(double, beta) = 0.75;
  TORCH_ARG(double, k) = 1.0;
};
struct CrossMapLRN2dOptions {
  CrossMapLRN2dOptions(int64_t size) : size_(size) {}
  TORCH_ARG(int64_t, size);
  TORCH_ARG(double, alpha) = 1e-4;
  TORCH_ARG(double, beta) = 0.75;
  TORCH_ARG(int64_t, k) = 1;
};
#define RL_DIMENSIONS(D)                                      \
  using ReflectionPad##D##dOptions = PadOptions<D>;           \
  using ReplicationPad##D##dOptions = PadOptions<D>;          \
  using ZeroPad##D##dOptions = PadOptions<D>;                 \
  using ConstantPad##D##dOptions = ConstantPadOptions<D>;     \
  using MaxUnpool##D##dOptions = MaxUnpoolOptions<D>;         \
  using LPPool##D##dOptions = LPPoolOptions<D>;
RL_DIMENSIONS(1)
RL_DIMENSIONS(2)
RL_DIMENSIONS(3)
#undef RL_DIMENSIONS
using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<3>;

namespace functional {

using PixelShuffleFuncOptions = PixelShuffleOptions;
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
using FoldFuncOptions = FoldOptions;
using UnfoldFuncOptions = UnfoldOptions;
using LPPool1dFuncOptions = LPPoolOptions<1>;
using LPPool2dFuncOptions = LPPoolOptions<2>;
using LPPool3dFuncOptions = LPPoolOptions<3>;
using FractionalMaxPool2dFuncOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dFuncOptions = FractionalMaxPoolOptions<3>;
using LocalResponseNormFuncOptions = LocalResponseNormOptions;

inline Tensor pixel_shuffle(const Tensor& input, const PixelShuffleOptions& o) { return torch::pixel_shuffle(input, o.upscale_factor()); }
inline Tensor pixel_unshuffle(const Tensor& input, const PixelUnshuffleOptions& o) { return torch::pixel_unshuffle(input, o.downscale_factor()); }
inline Tensor fold(const Tensor& input, const FoldOptions& o) {
  return raw::fold(input, o.output_size(), o.kernel_size(), o.dilation(), o.padding(), o.stride());
}
inline Tensor unfold(const Tensor& input, const UnfoldOptions& o) { return raw::unfold(input, o.kernel_size(), o.dilation(), o.padding(), o.stride()); }

struct GridSampleFuncOptions {
  TORCH_ARG(Word, mode) = torch::kBilinear;
  TORCH_ARG(Word, padding_mode) = torch::kZeros;
  TORCH_ARG(optional<bool>, align_corners) = nullopt;
};
inline Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleFuncOptions& o = {}) {
  return raw::_grid_sample(input, grid, o.mode().name, o.padding_mode().name, o.align_corners().value_or(false));
}
inline Tensor affine_grid(const Tensor& theta, IntArrayRef size, bool align_corners = false) {
  TORCH_CHECK(theta.is_floating_point(), "Expected theta to have floating point type, but got ", theta.dtype());
  for (int64_t n : size) TORCH_CHECK(n > 0, "Expected non-zero, positive output size. Got ", size);
  return raw::_affine_grid(theta, size, align_corners);
}

inline Tensor local_response_norm(const Tensor& input, const LocalResponseNormOptions& o) {
  return raw::local_response_norm(input, o.size(), o.alpha(), o.beta(), o.k());
}

namespace detail {
// The response norm of older models: the first channel stays in the sums of all that follow.
inline Tensor cross_map_lrn2d(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  TORCH_CHECK(input.dim() == 4, "CrossMapLRN2d: Expected input to be 4D, got ", input.dim(), "D instead.");
  const int64_t half = (size - 1) / 2, channels = input.size(1);
  std::vector<int64_t> ends;
  for (int64_t c = 0; c < channels; ++c) ends.push_back(std::min(c + half, channels - 1));
  const Tensor squares = input.square(), sums = squares.cumsum(1);
  Tensor total = sums.index_select(1, torch::tensor(ends, kLong).to(input.device()));
  if (channels > half + 2) {
    // The channels that left the window, except the first.
    const Tensor left = sums.narrow(1, 0, channels - half - 1) - squares.narrow(1, 0, 1);
    total = total - raw::pad(left, {0, 0, 0, 0, half + 1, 0});
  }
  return input * (total * (alpha / static_cast<double>(size)) + k).pow(-beta);
}
}  // namespace detail

template <size_t D>
struct MaxUnpoolFuncOptions {
  MaxUnpoolFuncOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(optional<std::vector<int64_t>>, output_size) = nullopt;
};
#define RL_MAX_UNPOOL(D)                                                                                                           \
  using MaxUnpool##D##dFuncOptions = MaxUnpoolFuncOptions<D>;                                                                      \
  inline Tensor max_unpool##D##d(const Tensor& input, const Tensor& indices, const MaxUnpool##D##dFuncOptions& o) {                \
    return raw::max_unpool##D##d(input, indices, o.kernel_size(), o.stride(), o.padding(),                                         \
                                 o.output_size() ? OptionalIntArrayRef(*o.output_size()) : OptionalIntArrayRef());                 \
  }
RL_MAX_UNPOOL(1)
RL_MAX_UNPOOL(2)
RL_MAX_UNPOOL(3)
#undef RL_MAX_UNPOOL

inline Tensor lp_pool1d(const Tensor& input, const LPPool1dFuncOptions& o) {
  return raw::lp_pool1d(input, o.norm_type(), o.kernel_size(), IntArrayRef(*o.stride()), o.ceil_mode());
}
inline Tensor lp_pool2d(const Tensor& input, const LPPool2dFuncOptions& o) {
  return raw::lp_pool2d(input, o.norm_type(), o.kernel_size(), IntArrayRef(*o.stride()), o.ceil_mode());
}
inline Tensor lp_pool3d(const Tensor& input, const LPPool3dFuncOptions& o) {
  const auto& k = *o.kernel_size();
  Tensor total = torch::avg_pool3d(input.pow(o.norm_type()), o.kernel_size(), IntArrayRef(*o.stride()), 0, o.ceil_mode()) * (k[0] * k[1] * k[2]);
  return (total.sign() * torch::relu(total.abs())).pow(1.0 / o.norm_type());
}

namespace detail {
// Random windows: `wanted` of them, or a fraction of the input's size.
inline std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& input, IntArrayRef kernel, OptionalIntArrayRef output_size, ArrayRef<double> ratio,
                                                      Tensor samples) {
  const int64_t dims = static_cast<int64_t>(kernel.size());
  TORCH_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, "fractional_max_pool", dims, "d: expected input of ", dims + 1, " or ", dims + 2,
              " dimensions, got ", input.sizes());
  TORCH_CHECK(output_size.has_value() == ratio.empty(), "fractional_max_pool", dims, "d requires specifying either an output_size or an output_ratio");
  std::vector<int64_t> wanted;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t n = input.size(d - dims);
    const auto at = static_cast<size_t>(d);
    wanted.push_back(output_size ? output_size.value()[at] : static_cast<int64_t>(static_cast<double>(n) * ratio[at]));
    TORCH_CHECK(wanted[at] >= 1 && wanted[at] + kernel[at] - 1 <= n, "fractional_max_pool", dims, "d: ", wanted[at], " windows of ", kernel[at],
                " do not fit in an input of ", n);
  }
  const bool batched = input.dim() == dims + 2;
  if (!samples.defined()) samples = torch::rand({batched ? input.size(0) : 1, input.size(batched ? 1 : 0), dims}, input.options());
  using namespace torch::detail;
  static const Op op("nn.functional._fractional_max_pool");
  rl_value a[] = {v(input), v(kernel), v(IntArrayRef(wanted)), v(samples)};
  return two(op, a);
}
template <size_t D>
std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& input, const FractionalMaxPoolOptions<D>& o) {
  const auto& size = o.output_size();
  return fractional_max_pool(input, *o.kernel_size(), size ? OptionalIntArrayRef(IntArrayRef(**size)) : OptionalIntArrayRef(),
                             o.output_ratio() ? ArrayRef<double>(**o.output_ratio()) : ArrayRef<double>(), o._random_samples());
}
}  // namespace detail
inline std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input, const FractionalMaxPool2dFuncOptions& o) {
  return detail::fractional_max_pool<2>(input, o);
}
inline std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input, const FractionalMaxPool3dFuncOptions& o) {
  return detail::fractional_max_pool<3>(input, o);
}
inline Tensor fractional_max_pool2d(const Tensor& input, const FractionalMaxPool2dFuncOptions& o) { return std::get<0>(detail::fractional_max_pool<2>(input, o)); }
inline Tensor fractional_max_pool3d(const Tensor& input, const FractionalMaxPool3dFuncOptions& o) { return std::get<0>(detail::fractional_max_pool<3>(input, o)); }

inline std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& input, const AdaptiveMaxPool1dOptions& o) {
  return raw::adaptive_max_pool1d_with_indices(input, o.output_size());
}
inline std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& input, const AdaptiveMaxPool2dOptions& o) {
  return raw::adaptive_max_pool2d_with_indices(input, o.output_size());
}
// Windows of one length: a shorter one repeats its last element, which changes no maximum.
inline std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& input, const AdaptiveMaxPool3dOptions& o) {
  TORCH_CHECK((input.dim() == 4 || input.dim() == 5) && (input.numel() > 0 || input.size(0) == 0),
              "adaptive_max_pool3d(): Expected 4D or 5D tensor with non-zero size for non-batch dimensions, but input has sizes ", input.sizes());
  const auto& wanted = *o.output_size();
  std::vector<int64_t> lead(input.sizes().begin(), input.sizes().end() - 3), out = lead;
  const TensorOptions whole = TensorOptions(kLong).device(input.device());
  Tensor index;
  for (int64_t d = 0; d < 3; ++d) {
    const int64_t n = input.size(d - 3), given = wanted[static_cast<size_t>(d)], w = given == -1 ? n : given, step = d == 0 ? input.size(-2) * input.size(-1) : d == 1 ? input.size(-1) : 1;
    out.push_back(w);
    TORCH_CHECK(w > 0, "adaptive_max_pool3d: output sizes must be positive, got ", w);
    int64_t extent = 0;
    for (int64_t i = 0; i < w; ++i) extent = std::max(extent, ((i + 1) * n + w - 1) / w - i * n / w);
    std::vector<int64_t> places;
    for (int64_t i = 0; i < w; ++i)
      for (int64_t j = 0; j < extent; ++j) places.push_back(std::min(i * n / w + j, ((i + 1) * n + w - 1) / w - 1) * step);
    Tensor part = torch::tensor(places, kLong).to(whole).reshape({w, extent});
    if (!index.defined()) {
      index = part;
      continue;
    }
    const int64_t rows = index.size(0) * w;
    index = (index.unsqueeze(1).unsqueeze(3) + part.unsqueeze(0).unsqueeze(2)).reshape({rows, -1});
  }
  const int64_t outputs = index.size(0), elements = index.size(1);
  std::vector<int64_t> windows = lead, flat = lead;
  windows.insert(windows.end(), {outputs, elements});
  flat.push_back(outputs * elements);
  const Tensor places = index.expand(windows);
  auto [found, at] = input.flatten(-3).gather(-1, places.reshape(flat)).reshape(windows).max(-1);
  return {found.reshape(out), places.gather(-1, at.unsqueeze(-1)).squeeze(-1).reshape(out)};
}
inline Tensor adaptive_max_pool3d(const Tensor& input, const AdaptiveMaxPool3dOptions& o) { return std::get<0>(adaptive_max_pool3d_with_indices(input, o)); }

}  // namespace functional

// Padding.
#define RL_PAD(Name, word)                                                                                                  \
  template <size_t D, class Derived>                                                                                        \
  class Name##Impl : public Cloneable<Derived> {                                                                            \
   public:                                                                                                                  \
    Name##Impl(ExpandingArray<D * 2> padding) : options(padding) {}                                                         \
    explicit Name##Impl(const PadOptions<D>& options_) : options(options_) {}                                               \
    void reset() override {}                                                                                                \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name << D << "d(padding=" << options.padding() << ")"; } \
    Tensor forward(const Tensor& input) { return torch::detail::raw::pad(input, options.padding(), word); }                 \
    PadOptions<D> options;                                                                                                  \
  }
RL_PAD(ReflectionPad, "reflect");
RL_PAD(ReplicationPad, "replicate");
RL_PAD(ZeroPad, "constant");
#undef RL_PAD
template <size_t D, class Derived>
class ConstantPadImpl : public Cloneable<Derived> {
 public:
  ConstantPadImpl(ExpandingArray<D * 2> padding, double value) : options(padding, value) {}
  explicit ConstantPadImpl(const ConstantPadOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::ConstantPad" << D << "d(padding=" << options.padding() << ", value=" << options.value() << ")";
  }
  Tensor forward(const Tensor& input) { return torch::detail::raw::pad(input, options.padding(), "constant", Scalar(options.value())); }
  ConstantPadOptions<D> options;
};

// Pooling.
template <size_t D, class Derived>
class MaxUnpoolImpl : public Cloneable<Derived> {
 public:
  MaxUnpoolImpl(ExpandingArray<D> kernel_size) : options(kernel_size) {}
  explicit MaxUnpoolImpl(const MaxUnpoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::MaxUnpool" << D << "d(kernel_size=" << options.kernel_size() << ", stride=" << options.stride() << ", padding=" << options.padding() << ")";
  }
  Tensor forward(const Tensor& input, const Tensor& indices, const optional<std::vector<int64_t>>& output_size = nullopt) {
    functional::MaxUnpoolFuncOptions<D> o(options.kernel_size());
    o.stride(options.stride()).padding(options.padding()).output_size(output_size);
    if constexpr (D == 1) return functional::max_unpool1d(input, indices, o);
    else if constexpr (D == 2) return functional::max_unpool2d(input, indices, o);
    else return functional::max_unpool3d(input, indices, o);
  }
  MaxUnpoolOptions<D> options;
};
template <size_t D, class Derived>
class FractionalMaxPoolImpl : public Cloneable<Derived> {
 public:
  FractionalMaxPoolImpl(ExpandingArray<D> kernel_size) : options(kernel_size) {}
  explicit FractionalMaxPoolImpl(FractionalMaxPoolOptions<D> options_) : options(std::move(options_)) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::FractionalMaxPool" << D << "d()"; }
  Tensor forward(const Tensor& input) { return std::get<0>(forward_with_indices(input)); }
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) { return functional::detail::fractional_max_pool<D>(input, options); }
  FractionalMaxPoolOptions<D> options;
};
template <size_t D, class Derived>
class LPPoolImpl : public Cloneable<Derived> {
 public:
  LPPoolImpl(double norm_type, ExpandingArray<D> kernel_size) : LPPoolImpl(LPPoolOptions<D>(norm_type, kernel_size)) {}
  explicit LPPoolImpl(const LPPoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::LPPool" << D << "d(norm_type=" << options.norm_type() << ", kernel_size=" << options.kernel_size()
        << ", stride=" << options.stride() << ", ceil_mode=" << options.ceil_mode() << ")";
  }
  Tensor forward(const Tensor& input) {
    if constexpr (D == 1) return functional::lp_pool1d(input, options);
    else if constexpr (D == 2) return functional::lp_pool2d(input, options);
    else return functional::lp_pool3d(input, options);
  }
  LPPoolOptions<D> options;
};

template <size_t D, class Derived>
class AdaptiveMaxPoolImpl : public Cloneable<Derived> {
 public:
  explicit AdaptiveMaxPoolImpl(const AdaptivePoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::AdaptiveMaxPool" << D << "d(output_size=" << options.output_size() << ")"; }
  Tensor forward(const Tensor& input) { return std::get<0>(forward_with_indices(input)); }
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) {
    if constexpr (D == 1) return functional::adaptive_max_pool1d_with_indices(input, options);
    else if constexpr (D == 2) return functional::adaptive_max_pool2d_with_indices(input, options);
    else return functional::adaptive_max_pool3d_with_indices(input, options);
  }
  AdaptivePoolOptions<D> options;
};

// The classes of each number of dimensions.
#define RL_CLASS(Name, D)                                                     \
  class Name##D##dImpl : public Name##Impl<D, Name##D##dImpl> {               \
   public:                                                                    \
    using Name##Impl<D, Name##D##dImpl>::Name##Impl;                          \
  };                                                                          \
  TORCH_MODULE(Name##D##d);
#define RL_CLASSES(Name) RL_CLASS(Name, 1) RL_CLASS(Name, 2) RL_CLASS(Name, 3)
RL_CLASSES(ReflectionPad)
RL_CLASSES(ReplicationPad)
RL_CLASSES(ZeroPad)
RL_CLASSES(ConstantPad)
RL_CLASSES(MaxUnpool)
RL_CLASSES(LPPool)
RL_CLASSES(AdaptiveMaxPool)
RL_CLASS(FractionalMaxPool, 2)
RL_CLASS(FractionalMaxPool, 3)
#undef RL_CLASSES
#undef RL_CLASS

// Modules of one class.
#define RL_MODULE(Name, call, shown)                                                                  \
  class Name##Impl : public Cloneable<Name##Impl> {                                                   \
   public:                                                                                            \
    explicit Name##Impl(const Name##Options& options_) : options(options_) {}                         \
    void reset() override {}                                                                          \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name "(" << shown << ")"; } \
    Tensor forward(const Tensor& input) { return call; }                                              \
    Name##Options options;                                                                            \
  };                                                                                                  \
  TORCH_MODULE(Name)
RL_MODULE(PixelShuffle, torch::pixel_shuffle(input, options.upscale_factor()), "upscale_factor=" << options.upscale_factor());
RL_MODULE(PixelUnshuffle, torch::pixel_unshuffle(input, options.downscale_factor()), "downscale_factor=" << options.downscale_factor());
RL_MODULE(LocalResponseNorm, functional::local_response_norm(input, options),
          options.size() << ", alpha=" << options.alpha() << ", beta=" << options.beta() << ", k=" << options.k());
RL_MODULE(CrossMapLRN2d, functional::detail::cross_map_lrn2d(input, options.size(), options.alpha(), options.beta(), static_cast<double>(options.k())),
          options.size() << ", alpha=" << options.alpha() << ", beta=" << options.beta() << ", k=" << options.k());
#undef RL_MODULE

class FoldImpl : public Cloneable<FoldImpl> {
 public:
  FoldImpl(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size) : FoldImpl(FoldOptions(output_size, kernel_size)) {}
  explicit FoldImpl(const FoldOptions& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Fold(output_size=" << options.output_size() << ", kernel_size=" << options.kernel_size() << ", dilation=" << options.dilation()
        << ", padding=" << options.padding() << ", stride=" << options.stride() << ")";
  }
  Tensor forward(const Tensor& input) { return functional::fold(input, options); }
  FoldOptions options;
};
TORCH_MODULE(Fold);
class UnfoldImpl : public Cloneable<UnfoldImpl> {
 public:
  UnfoldImpl(ExpandingArray<2> kernel_size) : UnfoldImpl(UnfoldOptions(kernel_size)) {}
  explicit UnfoldImpl(const UnfoldOptions& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Unfold(kernel_size=" << options.kernel_size() << ", dilation=" << options.dilation() << ", padding=" << options.padding()
        << ", stride=" << options.stride() << ")";
  }
  Tensor forward(const Tensor& input) { return functional::unfold(input, options); }
  UnfoldOptions options;
};
TORCH_MODULE(Unfold);
class UpsampleImpl : public Cloneable<UpsampleImpl> {
 public:
  explicit UpsampleImpl(UpsampleOptions options_ = {}) : options(std::move(options_)) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Upsample(";
    if (options.scale_factor()) out << "scale_factor=" << ArrayRef<double>(*options.scale_factor());
    else if (options.size()) out << "size=" << IntArrayRef(*options.size());
    out << ", mode=" << options.mode().shown() << ")";
  }
  Tensor forward(const Tensor& input) {
    functional::InterpolateFuncOptions o;
    o.size(options.size()).scale_factor(options.scale_factor()).mode(options.mode()).align_corners(options.align_corners());
    return functional::interpolate(input, o);
  }
  UpsampleOptions options;
};
TORCH_MODULE(Upsample);

}  // namespace nn
}  // namespace torch
