// Layers, activations and losses.
#pragma once

#include <torch/nn/init.h>

namespace torch {
namespace nn {

class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features) : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options_) : options(options_) { LinearImpl::reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::empty({options.out_features(), options.in_features()}));
    bias = register_parameter("bias", options.bias() ? torch::empty(options.out_features()) : Tensor());
    reset_parameters();
  }
  void reset_parameters() {
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (bias.defined()) {
      double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
      init::uniform_(bias, -bound, bound);
    }
  }
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::Linear(in_features=" << options.in_features() << ", out_features=" << options.out_features()
        << ", bias=" << options.bias() << ")";
  }
  Tensor forward(const Tensor& input) { return functional::linear(input, weight, bias); }
  LinearOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(Linear);

class IdentityImpl : public Cloneable<IdentityImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Identity()"; }
  Tensor forward(const Tensor& input) { return input; }
};
TORCH_MODULE(Identity);

class FlattenImpl : public Cloneable<FlattenImpl> {
 public:
  explicit FlattenImpl(const FlattenOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Flatten(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")"; }
  Tensor forward(const Tensor& input) { return input.flatten(options.start_dim(), options.end_dim()); }
  FlattenOptions options;
};
TORCH_MODULE(Flatten);

class UnflattenImpl : public Cloneable<UnflattenImpl> {
 public:
  explicit UnflattenImpl(UnflattenOptions options_) : options(std::move(options_)) {}
  void reset() override {}
  Tensor forward(const Tensor& input) { return input.unflatten(options.dim(), options.sizes()); }
  UnflattenOptions options;
};
TORCH_MODULE(Unflatten);

class BilinearImpl : public Cloneable<BilinearImpl> {
 public:
  BilinearImpl(int64_t a, int64_t b, int64_t out) : BilinearImpl(BilinearOptions(a, b, out)) {}
  explicit BilinearImpl(const BilinearOptions& options_) : options(options_) { BilinearImpl::reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::empty({options.out_features(), options.in1_features(), options.in2_features()}));
    bias = register_parameter("bias", options.bias() ? torch::empty(options.out_features()) : Tensor());
    double bound = 1 / std::sqrt(static_cast<double>(options.in1_features()));
    init::uniform_(weight, -bound, bound);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& a, const Tensor& b) { return functional::bilinear(a, b, weight, bias); }
  BilinearOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(Bilinear);

// Convolutions.
template <size_t D, class Derived>
class ConvImpl : public Cloneable<Derived> {
 public:
  ConvImpl(int64_t in, int64_t out, ExpandingArray<D> kernel) : ConvImpl(ConvOptions<D>(in, out, kernel)) {}
  explicit ConvImpl(const ConvOptions<D>& options_) : options(options_) { ConvImpl::reset(); }
  void reset() override {
    TORCH_CHECK(options.in_channels() > 0 && options.groups() > 0 && options.out_channels() > 0, "in_channels, groups and out_channels must be a positive integer.");
    TORCH_CHECK(options.in_channels() % options.groups() == 0, "in_channels must be divisible by groups");
    TORCH_CHECK(options.out_channels() % options.groups() == 0, "out_channels must be divisible by groups");
    std::vector<int64_t> sizes{options.out_channels(), options.in_channels() / options.groups()};
    sizes.insert(sizes.end(), options.kernel_size()->begin(), options.kernel_size()->end());
    weight = this->register_parameter("weight", torch::empty(sizes));
    bias = this->register_parameter("bias", options.bias() ? torch::empty(options.out_channels()) : Tensor());
    reset_parameters();
  }
  void reset_parameters() {
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (bias.defined()) {
      double bound = 1 / std::sqrt(static_cast<double>(init::_calculate_fan_in_and_fan_out(weight).first));
      init::uniform_(bias, -bound, bound);
    }
  }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Conv" << D << "d(" << options.in_channels() << ", " << options.out_channels() << ", kernel_size=" << options.kernel_size()
        << ", stride=" << options.stride();
    if (!options.padding().name().empty()) out << ", padding='" << options.padding().name() << "'";
    else if (*options.padding().values() != *ExpandingArray<D>(0)) out << ", padding=" << options.padding().values();
    if (*options.dilation() != *ExpandingArray<D>(1)) out << ", dilation=" << options.dilation();
    if (options.groups() != 1) out << ", groups=" << options.groups();
    if (!options.bias()) out << ", bias=" << std::boolalpha << false;
    if (options.padding_mode().name != "zeros") out << ", padding_mode=" << options.padding_mode().name;
    out << ")";
  }
  Tensor forward(const Tensor& input) {
    ConvFuncOptions<D> o;
    o.bias(bias).stride(options.stride()).dilation(options.dilation()).groups(options.groups());
    if (options.padding_mode().name == "zeros") o.padding(options.padding());
    if constexpr (D == 1) return functional::conv1d(padded(input), weight, o);
    else if constexpr (D == 2) return functional::conv2d(padded(input), weight, o);
    else return functional::conv3d(padded(input), weight, o);
  }
  ConvOptions<D> options;
  Tensor weight, bias;

 protected:
  // The input, padded where the convolution does not pad with zeros.
  Tensor padded(const Tensor& input) const {
    if (options.padding_mode().name == "zeros") return input;
    std::vector<int64_t> pad;
    for (size_t i = D; i-- > 0;) pad.insert(pad.end(), 2, (*options.padding().values())[i]);
    return torch::detail::raw::pad(input, pad, options.padding_mode().name);
  }
};
#define RL_CONV(D)                                                   \
  class Conv##D##dImpl : public ConvImpl<D, Conv##D##dImpl> {        \
   public:                                                           \
    using ConvImpl<D, Conv##D##dImpl>::ConvImpl;                     \
  };                                                                 \
  TORCH_MODULE(Conv##D##d)
RL_CONV(1);
RL_CONV(2);
RL_CONV(3);
#undef RL_CONV

template <size_t D, class Derived>
class ConvTransposeImpl : public Cloneable<Derived> {
 public:
  ConvTransposeImpl(int64_t in, int64_t out, ExpandingArray<D> kernel) : ConvTransposeImpl(ConvTransposeOptions<D>(in, out, kernel)) {}
  explicit ConvTransposeImpl(const ConvTransposeOptions<D>& options_) : options(options_) { ConvTransposeImpl::reset(); }
  void reset() override {
    TORCH_CHECK(options.in_channels() % options.groups() == 0, "in_channels must be divisible by groups");
    TORCH_CHECK(options.out_channels() % options.groups() == 0, "out_channels must be divisible by groups");
    std::vector<int64_t> sizes{options.in_channels(), options.out_channels() / options.groups()};
    sizes.insert(sizes.end(), options.kernel_size()->begin(), options.kernel_size()->end());
    weight = this->register_parameter("weight", torch::empty(sizes));
    bias = this->register_parameter("bias", options.bias() ? torch::empty(options.out_channels()) : Tensor());
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (bias.defined()) {
      double bound = 1 / std::sqrt(static_cast<double>(init::_calculate_fan_in_and_fan_out(weight).first));
      init::uniform_(bias, -bound, bound);
    }
  }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::ConvTranspose" << D << "d(" << options.in_channels() << ", " << options.out_channels() << ", kernel_size=" << options.kernel_size()
        << ", stride=" << options.stride();
    if (*options.padding() != *ExpandingArray<D>(0)) out << ", padding=" << options.padding();
    if (*options.dilation() != *ExpandingArray<D>(1)) out << ", dilation=" << options.dilation();
    if (*options.output_padding() != *ExpandingArray<D>(0)) out << ", output_padding=" << options.output_padding();
    if (options.groups() != 1) out << ", groups=" << options.groups();
    if (!options.bias()) out << ", bias=" << std::boolalpha << false;
    out << ")";
  }
  Tensor forward(const Tensor& input, const optional<IntArrayRef>& output_size = nullopt) {
    const auto more = extra(input, output_size);
    const auto& o = options;
    if constexpr (D == 1) return torch::conv_transpose1d(input, weight, bias, o.stride(), o.padding(), more, o.groups(), o.dilation());
    else if constexpr (D == 2) return torch::conv_transpose2d(input, weight, bias, o.stride(), o.padding(), more, o.groups(), o.dilation());
    else return torch::conv_transpose3d(input, weight, bias, o.stride(), o.padding(), more, o.groups(), o.dilation());
  }
  ConvTransposeOptions<D> options;
  Tensor weight, bias;

 protected:
  // The extra size on one side that gives the requested output.
  ExpandingArray<D> extra(const Tensor& input, const optional<IntArrayRef>& output_size) const {
    if (!output_size) return options.output_padding();
    IntArrayRef wanted = output_size->size() == D + 2 ? output_size->slice(2) : *output_size;
    TORCH_CHECK(wanted.size() == D, "output_size must have ", D, " or ", D + 2, " elements (got ", output_size->size(), ")");
    ExpandingArray<D> found(0);
    for (size_t i = 0; i < D; ++i) {
      int64_t stride = (*options.stride())[i];
      int64_t least = (input.size(static_cast<int64_t>(i) - static_cast<int64_t>(D)) - 1) * stride - 2 * (*options.padding())[i] +
                      (*options.dilation())[i] * ((*options.kernel_size())[i] - 1) + 1;
      (*found)[i] = wanted[i] - least;
      TORCH_CHECK((*found)[i] >= 0 && (*found)[i] < stride, "requested an output size of ", wanted, ", but valid sizes range from ", least, " to ", least + stride - 1);
    }
    return found;
  }
};
#define RL_CONV(D)                                                                        \
  class ConvTranspose##D##dImpl : public ConvTransposeImpl<D, ConvTranspose##D##dImpl> {  \
   public:                                                                                \
    using ConvTransposeImpl<D, ConvTranspose##D##dImpl>::ConvTransposeImpl;               \
  };                                                                                      \
  TORCH_MODULE(ConvTranspose##D##d)
RL_CONV(1);
RL_CONV(2);
RL_CONV(3);
#undef RL_CONV

// Pooling: a class for each number of dimensions.
template <size_t D, class Derived>
class MaxPoolImpl : public Cloneable<Derived> {
 public:
  MaxPoolImpl(ExpandingArray<D> kernel_size) : options(kernel_size) {}
  explicit MaxPoolImpl(const MaxPoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::MaxPool" << D << "d(kernel_size=" << options.kernel_size() << ", stride=" << options.stride() << ", padding="
        << options.padding() << ", dilation=" << options.dilation() << ", ceil_mode=" << options.ceil_mode() << ")";
  }
  Tensor forward(const Tensor& input) {
    if constexpr (D == 1) return functional::max_pool1d(input, options);
    else if constexpr (D == 2) return functional::max_pool2d(input, options);
    else return functional::max_pool3d(input, options);
  }
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) {
    if constexpr (D == 1) return functional::max_pool1d_with_indices(input, options);
    else if constexpr (D == 2) return functional::max_pool2d_with_indices(input, options);
    else return functional::max_pool3d_with_indices(input, options);
  }
  MaxPoolOptions<D> options;
};
template <size_t D, class Derived>
class AvgPoolImpl : public Cloneable<Derived> {
 public:
  AvgPoolImpl(ExpandingArray<D> kernel_size) : options(kernel_size) {}
  explicit AvgPoolImpl(const AvgPoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::AvgPool" << D << "d(kernel_size=" << options.kernel_size() << ", stride=" << options.stride() << ", padding=" << options.padding() << ")";
  }
  Tensor forward(const Tensor& input) {
    if constexpr (D == 1) return functional::avg_pool1d(input, options);
    else if constexpr (D == 2) return functional::avg_pool2d(input, options);
    else return functional::avg_pool3d(input, options);
  }
  AvgPoolOptions<D> options;
};
template <size_t D, class Derived>
class AdaptiveAvgPoolImpl : public Cloneable<Derived> {
 public:
  explicit AdaptiveAvgPoolImpl(const AdaptivePoolOptions<D>& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::AdaptiveAvgPool" << D << "d(output_size=" << options.output_size() << ")"; }
  Tensor forward(const Tensor& input) {
    if constexpr (D == 1) return functional::adaptive_avg_pool1d(input, options);
    else if constexpr (D == 2) return functional::adaptive_avg_pool2d(input, options);
    else return functional::adaptive_avg_pool3d(input, options);
  }
  AdaptivePoolOptions<D> options;
};
#define RL_CLASS(Name, D)                                         \
  class Name##D##dImpl : public Name##Impl<D, Name##D##dImpl> {   \
   public:                                                        \
    using Name##Impl<D, Name##D##dImpl>::Name##Impl;              \
  };                                                              \
  TORCH_MODULE(Name##D##d);
#define RL_CLASSES(Name) RL_CLASS(Name, 1) RL_CLASS(Name, 2) RL_CLASS(Name, 3)
RL_CLASSES(MaxPool)
RL_CLASSES(AvgPool)
RL_CLASSES(AdaptiveAvgPool)
#undef RL_CLASSES
#undef RL_CLASS

// Activations, and dropout below.
#define RL_ACTIVATION(Name, ...)                                                          \
  class Name##Impl : public Cloneable<Name##Impl> {                                       \
   public:                                                                                \
    explicit Name##Impl(const Name##Options& options_ = Name##Options()) : options(options_) {} \
    void reset() override {}                                                              \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name "()"; } \
    Tensor forward(const Tensor& input) { return __VA_ARGS__; }                           \
    Name##Options options;                                                                \
  };                                                                                      \
  TORCH_MODULE(Name)
#define RL_PLAIN(Name, call) struct Name##Options {}; RL_ACTIVATION(Name, call)
RL_ACTIVATION(ReLU, functional::relu(input, options.inplace()));
RL_ACTIVATION(ReLU6, functional::relu6(input, options.inplace()));
RL_ACTIVATION(LeakyReLU, functional::leaky_relu(input, options));
RL_ACTIVATION(ELU, functional::elu(input, options));
RL_ACTIVATION(SELU, functional::selu(input, options));
RL_ACTIVATION(CELU, functional::celu(input, options));
RL_ACTIVATION(GELU, functional::gelu(input, options));
RL_ACTIVATION(Hardtanh, functional::hardtanh(input, options));
RL_ACTIVATION(Hardshrink, functional::hardshrink(input, options));
RL_ACTIVATION(Softshrink, functional::softshrink(input, options));
RL_ACTIVATION(Softplus, functional::softplus(input, options));
RL_ACTIVATION(GLU, functional::glu(input, options));
RL_PLAIN(Sigmoid, torch::sigmoid(input));
RL_PLAIN(Tanh, torch::tanh(input));
RL_PLAIN(SiLU, functional::silu(input));
RL_PLAIN(Mish, functional::mish(input));
RL_PLAIN(LogSigmoid, functional::logsigmoid(input));
RL_PLAIN(Softsign, functional::softsign(input));
RL_PLAIN(Tanhshrink, functional::tanhshrink(input));
RL_ACTIVATION(Dropout, torch::detail::raw::dropout(input, options.p(), is_training(), options.inplace()));
RL_ACTIVATION(Dropout2d, torch::detail::raw::dropout2d(input, options.p(), is_training(), options.inplace()));
RL_ACTIVATION(Dropout3d, torch::detail::raw::dropout3d(input, options.p(), is_training(), options.inplace()));
RL_ACTIVATION(AlphaDropout, torch::detail::raw::alpha_dropout(input, options.p(), is_training(), options.inplace()));
RL_ACTIVATION(FeatureAlphaDropout, torch::detail::raw::feature_alpha_dropout(input, options.p(), is_training(), options.inplace()));
RL_ACTIVATION(RReLU, torch::detail::raw::rrelu(input, options.lower(), options.upper(), is_training(), options.inplace()));
#undef RL_PLAIN
#undef RL_ACTIVATION
#define RL_BY_DIM(Name, function)                                                         \
  class Name##Impl : public Cloneable<Name##Impl> {                                       \
   public:                                                                                \
    explicit Name##Impl(int64_t dim) : Name##Impl(Name##Options(dim)) {}                  \
    explicit Name##Impl(const Name##Options& options_) : options(options_) {}             \
    void reset() override {}                                                              \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name "(dim=" << options.dim() << ")"; } \
    Tensor forward(const Tensor& input) { return functional::function(input, options); }  \
    Name##Options options;                                                                \
  };                                                                                      \
  TORCH_MODULE(Name)
RL_BY_DIM(Softmax, softmax);
RL_BY_DIM(LogSoftmax, log_softmax);
RL_BY_DIM(Softmin, softmin);
#undef RL_BY_DIM
class Softmax2dImpl : public Cloneable<Softmax2dImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Softmax2d()"; }
  Tensor forward(const Tensor& input) {
    TORCH_CHECK(input.dim() == 4 || input.dim() == 3, "Softmax2d requires a 3D or 4D tensor as input");
    return torch::softmax(input, -3);
  }
};
TORCH_MODULE(Softmax2d);
class ThresholdImpl : public Cloneable<ThresholdImpl> {
 public:
  ThresholdImpl(double threshold, double value) : ThresholdImpl(ThresholdOptions(threshold, value)) {}
  explicit ThresholdImpl(const ThresholdOptions& options_) : options(options_) {}
  void reset() override {}
  Tensor forward(const Tensor& input) { return functional::threshold(input, options); }
  ThresholdOptions options;
};
TORCH_MODULE(Threshold);
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  explicit PReLUImpl(const PReLUOptions& options_ = {}) : options(options_) { PReLUImpl::reset(); }
  void reset() override { weight = register_parameter("weight", torch::full({options.num_parameters()}, options.init())); }
  Tensor forward(const Tensor& input) { return torch::prelu(input, weight); }
  PReLUOptions options;
  Tensor weight;
};
TORCH_MODULE(PReLU);

// Normalisation.
template <int64_t Least, int64_t Most, class Derived>
class BatchNormImpl : public Cloneable<Derived> {
 public:
  explicit BatchNormImpl(const BatchNormOptions& options_) : options(options_) { BatchNormImpl::reset(); }
  void reset() override {
    int64_t n = options.num_features();
    weight = this->register_parameter("weight", options.affine() ? torch::ones(n) : Tensor());
    bias = this->register_parameter("bias", options.affine() ? torch::zeros(n) : Tensor());
    bool track = options.track_running_stats();
    running_mean = this->register_buffer("running_mean", track ? torch::zeros(n) : Tensor());
    running_var = this->register_buffer("running_var", track ? torch::ones(n) : Tensor());
    num_batches_tracked = this->register_buffer("num_batches_tracked", track ? torch::tensor(0, kLong) : Tensor());
  }
  void reset_running_stats() {
    if (!options.track_running_stats()) return;
    running_mean.zero_();
    running_var.fill_(1);
    num_batches_tracked.zero_();
  }
  Tensor forward(const Tensor& input) {
    TORCH_CHECK(input.dim() >= Least && input.dim() <= Most, "expected ", Least, Least == Most ? "D" : "D or 3D", " input (got ", input.dim(), "D input)");
    double factor = options.momentum().value_or(0.0);
    if (this->is_training() && num_batches_tracked.defined()) {
      num_batches_tracked += 1;
      if (!options.momentum()) factor = 1.0 / num_batches_tracked.template item<double>();
    }
    return torch::detail::raw::batch_norm(input, running_mean, running_var, weight, bias, this->is_training() || !options.track_running_stats(), factor, options.eps());
  }
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::BatchNorm" << (Most == 3 ? 1 : Most - 2) << "d(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
    if (options.momentum()) out << *options.momentum(); else out << "None";
    out << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
  }
  BatchNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
#define RL_BATCH_NORM(Name, Least, Most)                                  \
  class Name##Impl : public BatchNormImpl<Least, Most, Name##Impl> {      \
   public:                                                                \
    using BatchNormImpl<Least, Most, Name##Impl>::BatchNormImpl;          \
  };                                                                      \
  TORCH_MODULE(Name)
RL_BATCH_NORM(BatchNorm1d, 2, 3);
RL_BATCH_NORM(BatchNorm2d, 4, 4);
RL_BATCH_NORM(BatchNorm3d, 5, 5);
#undef RL_BATCH_NORM
#define RL_INSTANCE_NORM(Name)                                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                                                   \
   public:                                                                                            \
    explicit Name##Impl(const InstanceNormOptions& options_) : options(options_) { Name##Impl::reset(); } \
    void reset() override {                                                                           \
      int64_t n = options.num_features();                                                             \
      weight = register_parameter("weight", options.affine() ? torch::ones(n) : Tensor());            \
      bias = register_parameter("bias", options.affine() ? torch::zeros(n) : Tensor());               \
      bool track = options.track_running_stats();                                                     \
      running_mean = register_buffer("running_mean", track ? torch::zeros(n) : Tensor());             \
      running_var = register_buffer("running_var", track ? torch::ones(n) : Tensor());                \
    }                                                                                                 \
    Tensor forward(const Tensor& input) {                                                             \
      return torch::detail::raw::instance_norm(input, running_mean, running_var, weight, bias,        \
                                               is_training() || !options.track_running_stats(), options.momentum(), options.eps()); \
    }                                                                                                 \
    InstanceNormOptions options;                                                                      \
    Tensor weight, bias, running_mean, running_var;                                                   \
  };                                                                                                  \
  TORCH_MODULE(Name)
RL_INSTANCE_NORM(InstanceNorm1d);
RL_INSTANCE_NORM(InstanceNorm2d);
RL_INSTANCE_NORM(InstanceNorm3d);
#undef RL_INSTANCE_NORM

class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(std::vector<int64_t> shape) : LayerNormImpl(LayerNormOptions(std::move(shape))) {}
  explicit LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) { LayerNormImpl::reset(); }
  void reset() override {
    weight = register_parameter("weight", options.elementwise_affine() ? torch::ones(options.normalized_shape()) : Tensor());
    bias = register_parameter("bias", options.elementwise_affine() ? torch::zeros(options.normalized_shape()) : Tensor());
  }
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::LayerNorm(" << IntArrayRef(options.normalized_shape()) << ", eps=" << options.eps() << ", elementwise_affine="
        << options.elementwise_affine() << ")";
  }
  Tensor forward(const Tensor& input) { return torch::layer_norm(input, options.normalized_shape(), weight, bias, options.eps()); }
  LayerNormOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  GroupNormImpl(int64_t groups, int64_t channels) : GroupNormImpl(GroupNormOptions(groups, channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& options_) : options(options_) { GroupNormImpl::reset(); }
  void reset() override {
    weight = register_parameter("weight", options.affine() ? torch::ones(options.num_channels()) : Tensor());
    bias = register_parameter("bias", options.affine() ? torch::zeros(options.num_channels()) : Tensor());
  }
  Tensor forward(const Tensor& input) { return torch::group_norm(input, options.num_groups(), weight, bias, options.eps()); }
  GroupNormOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(GroupNorm);

class EmbeddingImpl : public Cloneable<EmbeddingImpl> {
 public:
  EmbeddingImpl(int64_t num, int64_t dim) : EmbeddingImpl(EmbeddingOptions(num, dim)) {}
  explicit EmbeddingImpl(const EmbeddingOptions& options_) : options(options_) { EmbeddingImpl::reset(); }
  void reset() override {
    Tensor given = options._weight();
    weight = register_parameter("weight", given.defined() ? given : torch::empty({options.num_embeddings(), options.embedding_dim()}));
    if (given.defined()) return;
    init::normal_(weight);
    if (options.padding_idx()) {
      NoGradGuard no_grad;
      weight[*options.padding_idx()].fill_(0);
    }
  }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Embedding(num_embeddings=" << options.num_embeddings() << ", embedding_dim=" << options.embedding_dim() << ")";
  }
  Tensor forward(const Tensor& input) {
    return torch::detail::raw::embedding(input, weight, options.padding_idx(), options.max_norm(), options.norm_type(), options.scale_grad_by_freq(), options.sparse());
  }
  EmbeddingOptions options;
  Tensor weight;
};
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  template <class Options = EmbeddingFromPretrainedOptions>
  static Embedding from_pretrained(const Tensor& weights, const Options& o = {}) {
    TORCH_CHECK(weights.dim() == 2, "Embeddings parameter is expected to be 2-dimensional");
    Embedding made(EmbeddingOptions(weights.size(0), weights.size(1))._weight(weights).padding_idx(o.padding_idx()).max_norm(o.max_norm())
                       .norm_type(o.norm_type()).scale_grad_by_freq(o.scale_grad_by_freq()).sparse(o.sparse()));
    made->weight.set_requires_grad(!o.freeze());
    return made;
  }
};

// Losses.
#define RL_LOSS(Name, function)                                                                                     \
  class Name##Impl : public Cloneable<Name##Impl> {                                                                 \
   public:                                                                                                          \
    explicit Name##Impl(Name##Options options_ = {}) : options(std::move(options_)) {}                              \
    void reset() override {}                                                                                        \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name "()"; }                        \
    Tensor forward(const Tensor& input, const Tensor& target) { return functional::function(input, target, options); } \
    Name##Options options;                                                                                          \
  };                                                                                                                \
  TORCH_MODULE(Name)
RL_LOSS(MSELoss, mse_loss);
RL_LOSS(L1Loss, l1_loss);
RL_LOSS(SmoothL1Loss, smooth_l1_loss);
RL_LOSS(HuberLoss, huber_loss);
RL_LOSS(NLLLoss, nll_loss);
RL_LOSS(CrossEntropyLoss, cross_entropy);
RL_LOSS(BCELoss, binary_cross_entropy);
RL_LOSS(BCEWithLogitsLoss, binary_cross_entropy_with_logits);
RL_LOSS(KLDivLoss, kl_div);
#undef RL_LOSS

}  // namespace nn
}  // namespace torch
