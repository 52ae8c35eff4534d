// Functions of torch::, operators, modes, devices.
#pragma once

#include <torch/tensor.h>

#include <cstdio>
#include <fstream>
#include <iostream>

namespace torch {

#include <torch/generated/functions.inc>

namespace detail::raw {
#include <torch/generated/functional.inc>
}  // namespace detail::raw

// Methods that use functions.

inline Tensor Tensor::to(const TensorOptions& options, bool non_blocking, bool copy, optional<MemoryFormat> format) const {
  if (!copy && !format && !options.memory_format_opt()) {
    bool there = !options.device_opt() || options.device() == device() ||
                 (options.device().type() == device().type() && !options.device().has_index());
    if (there && (!options.dtype_opt() || *options.dtype_opt() == scalar_type())) return *this;
  }
  using namespace detail;
  static const Op op("Tensor.to(Tensor self, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, "
                     "memory_format? memory_format=None)");
  if (!format) format = options.memory_format_opt();
  rl_value a[] = {v(*this), opt_device(options), opt_dtype(options), v(non_blocking), v(copy), v(format)};
  return one(op, a);
}
inline void Tensor::set_data(const Tensor& data) const {
  Tensor fresh = data.detach(), old = grad();
  if (fresh.is_same(data)) fresh = data.data();
  fresh.set_requires_grad(requires_grad());
  if (old.defined() && old.sizes() == fresh.sizes())
    detail::check(rl_tensor_set_grad(fresh.need(), old.to(fresh.options()).detach().need()));
  replace(fresh);
}
inline bool Tensor::equal(const Tensor& other) const {
  using namespace detail;
  static const Op op("Tensor.equal(Tensor input, Tensor other)");
  rl_value a[] = {v(*this), v(other)};
  return number(op, a).toBool();
}
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }

inline Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  using namespace detail;
  static const Op op("where(Tensor condition, Tensor|Number input, Tensor|Number other)");
  rl_value a[] = {v(condition), v(self), v(other)};
  return one(op, a);
}
inline Tensor where(const Tensor& condition, const Scalar& self, const Tensor& other) {
  using namespace detail;
  static const Op op("where(Tensor condition, Tensor|Number input, Tensor|Number other)");
  rl_value a[] = {v(condition), v(self), v(other)};
  return one(op, a);
}
inline Tensor where(const Tensor& condition, const Tensor& self, const Scalar& other) {
  using namespace detail;
  static const Op op("where(Tensor condition, Tensor|Number input, Tensor|Number other)");
  rl_value a[] = {v(condition), v(self), v(other)};
  return one(op, a);
}
inline Tensor where(const Tensor& condition, const Scalar& self, const Scalar& other) {
  using namespace detail;
  static const Op op("where(Tensor condition, Tensor|Number input, Tensor|Number other)");
  rl_value a[] = {v(condition), v(self), v(other)};
  return one(op, a);
}
inline std::vector<Tensor> where(const Tensor& condition) {
  using namespace detail;
  static const Op op("where(Tensor condition)");
  rl_value a[] = {v(condition)};
  return many(op, a);
}
inline Tensor Tensor::where(const Tensor& condition, const Tensor& other) const { return torch::where(condition, *this, other); }
inline Tensor Tensor::where(const Tensor& condition, const Scalar& other) const { return torch::where(condition, *this, other); }

inline Tensor var(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim = false) {
  using namespace detail;
  static const Op op("var(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)");
  rl_value a[] = {v(self), v(dim), v(unbiased), v(keepdim)};
  return one(op, a);
}
inline Tensor var(const Tensor& self, bool unbiased = true) { return var(self, nullopt, unbiased); }
inline Tensor std(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim = false) {
  using namespace detail;
  static const Op op("std(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)");
  rl_value a[] = {v(self), v(dim), v(unbiased), v(keepdim)};
  return one(op, a);
}
inline Tensor std(const Tensor& self, bool unbiased = true) { return torch::std(self, nullopt, unbiased); }
inline std::tuple<Tensor, Tensor> var_mean(const Tensor& self, OptionalIntArrayRef dim, bool unbiased = true, bool keepdim = false) {
  using namespace detail;
  static const Op op("var_mean(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)");
  rl_value a[] = {v(self), v(dim), v(unbiased), v(keepdim)};
  return two(op, a);
}
inline std::tuple<Tensor, Tensor> std_mean(const Tensor& self, OptionalIntArrayRef dim, bool unbiased = true, bool keepdim = false) {
  using namespace detail;
  static const Op op("std_mean(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)");
  rl_value a[] = {v(self), v(dim), v(unbiased), v(keepdim)};
  return two(op, a);
}
inline Tensor Tensor::var(bool unbiased) const { return torch::var(*this, unbiased); }
inline Tensor Tensor::var(OptionalIntArrayRef dim, bool unbiased, bool keepdim) const { return torch::var(*this, dim, unbiased, keepdim); }
inline Tensor Tensor::std(bool unbiased) const { return torch::std(*this, unbiased); }
inline Tensor Tensor::std(OptionalIntArrayRef dim, bool unbiased, bool keepdim) const { return torch::std(*this, dim, unbiased, keepdim); }
namespace detail {
inline Tensor norm(const Tensor& self, const rl_value& p, const rl_value& dim, bool keepdim) {
  static const Op op("norm(Tensor input, Number? p=2, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)");
  rl_value a[] = {v(self), p, dim, v(keepdim)};
  return one(op, a);
}
}  // namespace detail
inline Tensor Tensor::norm(const Scalar& p) const { return detail::norm(*this, detail::v(p), detail::v(), false); }
inline Tensor Tensor::norm(const optional<Scalar>& p, IntArrayRef dim, bool keepdim) const {
  return detail::norm(*this, p ? detail::v(*p) : detail::v(), detail::v(dim), keepdim);
}
inline Tensor norm(const Tensor& self, const Scalar& p = 2) { return self.norm(p); }
inline Tensor norm(const Tensor& self, const optional<Scalar>& p, IntArrayRef dim, bool keepdim = false) { return self.norm(p, dim, keepdim); }

inline Tensor normal(double mean, double std, IntArrayRef size, const TensorOptions& options = {}) {
  return torch::empty(size, options.requires_grad(nullopt)).normal_(mean, std).set_requires_grad(options.requires_grad());
}
inline std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t num_layers,
                                      double dropout, bool train, bool bidirectional, bool batch_first) {
  using namespace detail;
  static const Op op("gru");
  Handles p(params);
  rl_value a[] = {v(input), v(hx), v(p), v(has_biases), v(num_layers), v(dropout), v(train), v(bidirectional), v(batch_first)};
  return two(op, a);
}
inline std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t num_layers,
                                               double dropout, bool train, bool bidirectional, bool batch_first) {
  using namespace detail;
  static const Op op("lstm");
  Handles h(hx), p(params);
  rl_value a[] = {v(input), v(h), v(p), v(has_biases), v(num_layers), v(dropout), v(train), v(bidirectional), v(batch_first)};
  return three(op, a);
}

inline Tensor einsum(string_view equation, TensorList tensors) { return _einsum(equation, tensors); }

// Operators.

#define RL_OPERATOR(sign, name)                                                                      \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return torch::name(a, b); }        \
  inline Tensor operator sign(const Tensor& a, const Scalar& b) { return torch::name(a, b); }
RL_OPERATOR(+, add)
RL_OPERATOR(-, sub)
RL_OPERATOR(*, mul)
RL_OPERATOR(/, div)
RL_OPERATOR(%, remainder)
RL_OPERATOR(&, bitwise_and)
RL_OPERATOR(|, bitwise_or)
RL_OPERATOR(^, bitwise_xor)
RL_OPERATOR(<<, bitwise_left_shift)
RL_OPERATOR(>>, bitwise_right_shift)
RL_OPERATOR(==, eq)
RL_OPERATOR(!=, ne)
RL_OPERATOR(<, lt)
RL_OPERATOR(<=, le)
RL_OPERATOR(>, gt)
RL_OPERATOR(>=, ge)
#undef RL_OPERATOR
inline Tensor operator+(const Scalar& a, const Tensor& b) { return torch::add(b, a); }
inline Tensor operator-(const Scalar& a, const Tensor& b) { return torch::rsub(b, a); }
inline Tensor operator*(const Scalar& a, const Tensor& b) { return torch::mul(b, a); }
inline Tensor operator/(const Scalar& a, const Tensor& b) { return torch::div(a, b); }
inline Tensor operator==(const Scalar& a, const Tensor& b) { return b.eq(a); }
inline Tensor operator!=(const Scalar& a, const Tensor& b) { return b.ne(a); }
inline Tensor operator<(const Scalar& a, const Tensor& b) { return b.gt(a); }
inline Tensor operator<=(const Scalar& a, const Tensor& b) { return b.ge(a); }
inline Tensor operator>(const Scalar& a, const Tensor& b) { return b.lt(a); }
inline Tensor operator>=(const Scalar& a, const Tensor& b) { return b.le(a); }
inline Tensor Tensor::operator-() const { return neg(); }
inline Tensor Tensor::operator~() const { return bitwise_not(); }
#define RL_ASSIGNMENT(sign, name)                                                     \
  inline Tensor& Tensor::operator sign(const Tensor & other) { return name(other); }
RL_ASSIGNMENT(+=, add_) RL_ASSIGNMENT(-=, sub_) RL_ASSIGNMENT(*=, mul_) RL_ASSIGNMENT(/=, div_)
RL_ASSIGNMENT(&=, bitwise_and_) RL_ASSIGNMENT(|=, bitwise_or_) RL_ASSIGNMENT(^=, bitwise_xor_)
#undef RL_ASSIGNMENT
inline Tensor& Tensor::operator+=(const Scalar& other) { return add_(other); }
inline Tensor& Tensor::operator-=(const Scalar& other) { return sub_(other); }
inline Tensor& Tensor::operator*=(const Scalar& other) { return mul_(other); }
inline Tensor& Tensor::operator/=(const Scalar& other) { return div_(other); }

// LibTorch's text form.
inline std::ostream& print(std::ostream& out, const Tensor& tensor, int64_t linesize) {
  if (!tensor.defined()) return out << "[ Tensor (undefined) ]";
  char* text = nullptr;
  detail::check(rl_tensor_print(tensor.handle(), static_cast<size_t>(linesize), &text));
  out << text;
  rl_string_free(text);
  return out;
}
inline std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return print(out, tensor, 80); }
inline void print(const Tensor& tensor, int64_t linesize = 80) { print(std::cout, tensor, linesize); }
inline std::ostream& operator<<(std::ostream& out, TensorList list) {
  for (size_t i = 0; i < list.size(); ++i) out << (i ? "\n" : "") << list[i];
  return out;
}
inline std::string Tensor::toString() const {
  return str(DeviceTypeName(device().type()), torch::toString(scalar_type()), "Type");
}
inline void Tensor::print() const { std::cerr << "[" << toString() << " " << sizes() << "]" << std::endl; }

// Tensors from memory.

inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const std::function<void(void*)>& deleter,
                        const TensorOptions& options = {}) {
  struct Held { std::function<void(void*)> deleter; void* data; };
  rl_deleter free = nullptr;
  Held* held = nullptr;
  if (deleter) {
    held = new Held{deleter, data};
    free = [](void* context) {
      auto* held = static_cast<Held*>(context);
      held->deleter(held->data);
      delete held;
    };
  }
  TORCH_CHECK(options.device().is_cpu(), "from_blob: memory of ", options.device().str(), " is not supported; copy it from the CPU");
  rl_tensor* out = nullptr;
  detail::check(rl_tensor_from_blob(data, sizes.data(), strides.empty() ? nullptr : strides.data(), sizes.size(),
                                    static_cast<int32_t>(options.dtype().toScalarType()), free, held, &out));
  return Tensor(out).set_requires_grad(options.requires_grad());
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const std::function<void(void*)>& deleter, const TensorOptions& options = {}) {
  return from_blob(data, sizes, IntArrayRef(), deleter, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  return from_blob(data, sizes, IntArrayRef(), nullptr, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  return from_blob(data, sizes, strides, nullptr, options);
}

namespace detail {

// Numbers in nested braces, or a list of them.
class TensorData {
 public:
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  TensorData(T value) : type_(kind<T>()), list_(false) { scalar_ = Scalar(value); }
  template <class T>
  TensorData(const c10::complex<T>& value) : type_(CppTypeToScalarType<c10::complex<T>>::value), list_(false), scalar_(value) {}
  TensorData(std::initializer_list<TensorData> list) : type_(kFloat) {
    sizes_.push_back(static_cast<int64_t>(list.size()));
    for (const TensorData& item : list) {
      if (&item == list.begin()) {
        type_ = item.type_;
        sizes_.insert(sizes_.end(), item.sizes_.begin(), item.sizes_.end());
      }
      TORCH_CHECK(sizes_.size() == item.sizes_.size() + 1 && std::equal(item.sizes_.begin(), item.sizes_.end(), sizes_.begin() + 1),
                  "Expected all sub-lists to have sizes: ", IntArrayRef(sizes_).slice(1), ", but got sub-list with sizes: ", IntArrayRef(item.sizes_));
      TORCH_CHECK(item.type_ == type_ || item.sizes_.empty() , "Expected all elements of the tensor to have the same scalar type: ",
                  torch::toString(type_), ", but got element of scalar type: ", torch::toString(item.type_));
      item.append(values_);
    }
  }
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  TensorData(const std::vector<T>& list) : type_(std::is_same_v<T, double> ? kFloat : CppTypeToScalarType<T>::value) { fill(list); }
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  TensorData(ArrayRef<T> list) : type_(std::is_same_v<T, double> ? kFloat : CppTypeToScalarType<T>::value) { fill(list); }
  template <class T>
  TensorData(const std::vector<c10::complex<T>>& list) : type_(CppTypeToScalarType<c10::complex<T>>::value) { fill(list); }

  Tensor tensor(const TensorOptions& options) const {
    // C++'s floats make tensors of the default dtype, its integers int64.
    ScalarType otherwise = type_ == kFloat ? get_default_dtype_as_scalartype() : type_ == kBool || isComplexType(type_) ? type_ : kLong;
    TensorOptions made = options.dtype(options.dtype_opt().value_or(otherwise)).requires_grad(nullopt);
    std::vector<Scalar> values;
    append(values);
    Tensor out;
    rl_tensor* handle = nullptr;
    if (isComplexType(type_)) {
      std::vector<double> all;
      for (const Scalar& s : values) {
        const auto z = s.toComplexDouble();
        all.push_back(z.real());
        all.push_back(z.imag());
      }
      check(rl_tensor_from_data(all.data(), sizes_.data(), sizes_.size(), RL_DTYPE_COMPLEX128, &handle));
    } else if (isFloatingType(made.dtype()) || isComplexType(made.dtype())) {
      std::vector<double> all;
      for (const Scalar& s : values) all.push_back(s.toDouble());
      check(rl_tensor_from_data(all.data(), sizes_.data(), sizes_.size(), RL_DTYPE_FLOAT64, &handle));
    } else {
      std::vector<int64_t> all;
      for (const Scalar& s : values) all.push_back(s.toLong());
      check(rl_tensor_from_data(all.data(), sizes_.data(), sizes_.size(), RL_DTYPE_INT64, &handle));
    }
    return Tensor(handle).to(made).set_requires_grad(options.requires_grad());
  }

 private:
  template <class T>
  static constexpr ScalarType kind() {
    return std::is_same_v<T, bool> ? kBool : std::is_floating_point_v<T> ? kFloat : kLong;
  }
  template <class L>
  void fill(const L& list) {
    sizes_.push_back(static_cast<int64_t>(list.size()));
    if (type_ != kBool && type_ != kFloat && !isComplexType(type_)) type_ = kLong;
    for (auto value : list) values_.emplace_back(value);
  }
  void append(std::vector<Scalar>& out) const {
    if (list_)
      for (const Scalar& value : values_) out.push_back(value);
    else out.push_back(scalar_);
  }
  ScalarType type_;
  bool list_ = true;
  Scalar scalar_;
  std::vector<int64_t> sizes_;
  std::vector<Scalar> values_;
};

}  // namespace detail

// A tensor of a number, of nested braces of numbers, or of a vector.
inline Tensor tensor(const detail::TensorData& data, const TensorOptions& options = {}) { return data.tensor(options); }

// Losses, with ATen's signatures.
namespace Reduction {
enum Reduction { None, Mean, Sum, END };
}
namespace detail {
inline string_view reduction_name(int64_t reduction) {
  TORCH_CHECK(reduction >= 0 && reduction < Reduction::END, reduction, " is not a valid value for reduction");
  return reduction == Reduction::None ? "none" : reduction == Reduction::Mean ? "mean" : "sum";
}
}  // namespace detail
using OptTensor = optional<Tensor>;
inline Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean) {
  return detail::raw::mse_loss(self, target, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor l1_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean) {
  return detail::raw::l1_loss(self, target, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean, double beta = 1) {
  return detail::raw::smooth_l1_loss(self, target, nullopt, nullopt, detail::reduction_name(reduction), beta);
}
inline Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean, double delta = 1) {
  return detail::raw::huber_loss(self, target, detail::reduction_name(reduction), delta);
}
inline Tensor nll_loss(const Tensor& self, const Tensor& target, const OptTensor& weight = {}, int64_t reduction = Reduction::Mean,
                       int64_t ignore_index = -100) {
  return detail::raw::nll_loss(self, target, weight, nullopt, ignore_index, nullopt, detail::reduction_name(reduction));
}
inline Tensor nll_loss2d(const Tensor& self, const Tensor& target, const OptTensor& weight = {}, int64_t reduction = Reduction::Mean,
                         int64_t ignore_index = -100) {
  return nll_loss(self, target, weight, reduction, ignore_index);
}
inline Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const OptTensor& weight = {}, int64_t reduction = Reduction::Mean,
                                 int64_t ignore_index = -100, double label_smoothing = 0) {
  return detail::raw::cross_entropy(self, target, weight, nullopt, ignore_index, nullopt, detail::reduction_name(reduction), label_smoothing);
}
inline Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const OptTensor& weight = {}, int64_t reduction = Reduction::Mean) {
  return detail::raw::binary_cross_entropy(self, target, weight, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target, const OptTensor& weight = {},
                                               const OptTensor& pos_weight = {}, int64_t reduction = Reduction::Mean) {
  return detail::raw::binary_cross_entropy_with_logits(self, target, weight, nullopt, nullopt, detail::reduction_name(reduction), pos_weight);
}
inline Tensor kl_div(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean, bool log_target = false) {
  return detail::raw::kl_div(self, target, nullopt, nullopt, detail::reduction_name(reduction), log_target);
}
inline Tensor linear(const Tensor& input, const Tensor& weight, const OptTensor& bias = {}) { return detail::raw::linear(input, weight, bias); }
inline Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1, bool scale_grad_by_freq = false, bool sparse = false) {
  return detail::raw::embedding(indices, weight, padding_idx < 0 ? optional<int64_t>() : optional<int64_t>(padding_idx), nullopt, 2.0, scale_grad_by_freq, sparse);
}
inline Tensor batch_norm(const Tensor& input, const OptTensor& weight, const OptTensor& bias, const OptTensor& running_mean,
                         const OptTensor& running_var, bool training, double momentum, double eps, bool /*cudnn_enabled*/ = true) {
  return detail::raw::batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps);
}
inline Tensor leaky_relu(const Tensor& self, const Scalar& negative_slope = 0.01) { return detail::raw::leaky_relu(self, negative_slope.toDouble()); }
inline Tensor elu(const Tensor& self, const Scalar& alpha = 1) { return detail::raw::elu(self, alpha.toDouble()); }
inline Tensor gelu(const Tensor& self, string_view approximate = "none") { return detail::raw::gelu(self, approximate); }
inline Tensor silu(const Tensor& self) { return detail::raw::silu(self); }
inline Tensor mish(const Tensor& self) { return detail::raw::mish(self); }
inline Tensor softplus(const Tensor& self, const Scalar& beta = 1, const Scalar& threshold = 20) { return detail::raw::softplus(self, beta.toDouble(), threshold.toDouble()); }
inline Tensor hardtanh(const Tensor& self, const Scalar& min_val = -1, const Scalar& max_val = 1) { return detail::raw::hardtanh(self, min_val, max_val); }
inline Tensor log_sigmoid(const Tensor& self) { return detail::raw::logsigmoid(self); }
inline Tensor glu(const Tensor& self, int64_t dim = -1) { return detail::raw::glu(self, dim); }
inline Tensor one_hot(const Tensor& self, int64_t num_classes = -1) { return detail::raw::one_hot(self, num_classes); }
inline Tensor feature_dropout(const Tensor& self, double p, bool train) { return detail::raw::dropout2d(self, p, train); }
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& mask = {},
                                           double dropout_p = 0, bool is_causal = false, optional<double> scale = nullopt, bool enable_gqa = false) {
  return detail::raw::scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

// Modes, seeds, threads, devices.

class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : before_(rl_set_grad_enabled(enabled)) {}
  ~AutoGradMode() { rl_set_grad_enabled(before_); }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool before_;
};
struct NoGradGuard : AutoGradMode {
  NoGradGuard() : AutoGradMode(false) {}
};
namespace detail {
// For optimizers and modules: removes gradients, or makes them zero.
inline void clear_gradients(TensorList tensors, bool set_to_none) {
  if (set_to_none) {
    Handles handles(tensors);
    check(rl_zero_grad(handles.list.data(), handles.list.size()));
    return;
  }
  for (const Tensor& tensor : tensors)
    if (Tensor grad = tensor.grad(); grad.defined()) grad.detach().zero_();
}
}  // namespace detail
struct GradMode {
  static bool is_enabled() { return rl_grad_enabled(); }
  static void set_enabled(bool enabled) { rl_set_grad_enabled(enabled); }
};
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true) : before_(rl_set_inference_mode(enabled)) {}
  ~InferenceMode() { rl_set_inference_mode(before_); }
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  bool before_;
};
inline void manual_seed(uint64_t seed) { rl_manual_seed(seed); }
inline int get_num_threads() { return static_cast<int>(rl_num_threads()); }
inline void set_num_threads(int threads) { detail::check(rl_set_num_threads(threads > 0 ? static_cast<size_t>(threads) : 0)); }
inline bool hasCUDA() { return rl_device_count(RL_CUDA) > 0; }

namespace cuda {
inline size_t device_count() { return rl_device_count(RL_CUDA); }
inline bool is_available() { return device_count() > 0; }
inline bool cudnn_is_available() { return is_available(); }
inline void manual_seed(uint64_t seed) { rl_manual_seed(seed); }
inline void manual_seed_all(uint64_t seed) { rl_manual_seed(seed); }
inline void synchronize(int64_t index = -1) { detail::check(rl_synchronize(RL_CUDA, index < 0 ? 0 : static_cast<size_t>(index))); }
}  // namespace cuda
namespace xpu {
inline size_t device_count() { return rl_device_count(RL_XPU); }
inline bool is_available() { return device_count() > 0; }
}  // namespace xpu
namespace mps {
inline bool is_available() { return false; }
}  // namespace mps

}  // namespace torch
