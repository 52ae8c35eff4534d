// torch::Tensor, indexing, and calls of ops.
#pragma once

#include <torch/base.h>

#include <atomic>

namespace torch {

class Tensor;
using Variable = Tensor;

namespace detail {

// What copies of a Tensor share: a reference of the library, which set_data replaces.
struct Impl {
  std::atomic<uint32_t> refs{1};
  rl_tensor* handle;
  explicit Impl(rl_tensor* handle) : handle(handle) {}
  ~Impl() { rl_tensor_free(handle); }
};

}  // namespace detail

// A view of tensors.
using TensorList = ArrayRef<Tensor>;

namespace autograd {
// The op that made a tensor.
struct Node {
  std::string name_;
  std::string name() const { return name_; }
};
}  // namespace autograd

namespace indexing {

enum class EllipsisIndexType { Ellipsis };
inline constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
inline constexpr nullopt_t None = nullopt;

// Python's start:stop:step.
struct Slice {
  Slice(optional<int64_t> start = nullopt, optional<int64_t> stop = nullopt, optional<int64_t> step = nullopt)
      : start_(start), stop_(stop), step_(step) {}
  int64_t start() const { return start_.value_or(0); }
  int64_t stop() const { return stop_.value_or(std::numeric_limits<int64_t>::max()); }
  int64_t step() const { return step_.value_or(1); }
  optional<int64_t> start_, stop_, step_;
};

class TensorIndex;

}  // namespace indexing

template <class T, size_t N>
class TensorAccessor;

// A tensor. Copies refer to the same tensor.
class Tensor {
 public:
  Tensor() : impl_(nullptr) {}
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  ~Tensor() { reset(); }
  // Takes a reference of the library over.
  explicit Tensor(rl_tensor* handle) : impl_(handle ? new detail::Impl(handle) : nullptr) {}

  // To a name: refers to the other tensor. To a temporary, such as x[0]: copies the elements.
  Tensor& operator=(const Tensor& other) & {
    Tensor copy(other);
    std::swap(impl_, copy.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && { return copy_(other); }
  Tensor& operator=(const Scalar& value) && { return fill_(value); }

  bool defined() const { return impl_ != nullptr; }
  void reset() {
    if (impl_ && impl_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete impl_;
    impl_ = nullptr;
  }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_ || (defined() && other.defined() && rl_tensor_id(handle()) == rl_tensor_id(other.handle())); }
  size_t use_count() const { return impl_ ? impl_->refs.load() : 0; }
  // The library's reference, null if undefined; for the C interface.
  rl_tensor* handle() const { return impl_ ? impl_->handle : nullptr; }
  detail::Impl* unsafeGetTensorImpl() const { return impl_; }

  int64_t dim() const { return static_cast<int64_t>(rl_tensor_dim(need())); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return static_cast<int64_t>(rl_tensor_numel(need())); }
  IntArrayRef sizes() const { return IntArrayRef(rl_tensor_sizes(need()), rl_tensor_dim(handle())); }
  IntArrayRef strides() const { return IntArrayRef(rl_tensor_strides(need()), rl_tensor_dim(handle())); }
  int64_t size(int64_t d) const { return sizes()[wrap(d)]; }
  int64_t stride(int64_t d) const { return strides()[wrap(d)]; }
  int64_t storage_offset() const { return static_cast<int64_t>(rl_tensor_offset(need())); }
  ScalarType scalar_type() const { return static_cast<ScalarType>(rl_tensor_dtype(need())); }
  TypeMeta dtype() const { return scalar_type(); }
  Layout layout() const { return kStrided; }
  Device device() const {
    size_t index = 0;
    auto type = static_cast<DeviceType>(rl_tensor_device(need(), &index));
    return type == kCPU || type == kMeta ? Device(type) : Device(type, static_cast<DeviceIndex>(index));
  }
  int64_t get_device() const { return device().is_cpu() ? -1 : device().index(); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_xpu() const { return device().is_xpu(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_sparse() const { return false; }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_signed() const { return scalar_type() != kByte && scalar_type() != kBool; }
  size_t element_size() const { return elementSize(scalar_type()); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return element_size() * static_cast<size_t>(numel()); }
  bool has_storage() const { return defined(); }
  bool is_alias_of(const Tensor& other) const { return rl_tensor_shares_storage(need(), other.need()); }
  bool equal(const Tensor& other) const;
  bool is_nonzero() const { return item().toBool(); }
  uint32_t _version() const { return rl_tensor_version(need()); }
  std::string toString() const;
  void print() const;

  // Memory, valid while the tensor is. The type must be the dtype's.
  void* data_ptr() const { return rl_tensor_data(need()); }
  template <class T>
  T* data_ptr() const {
    using U = std::remove_const_t<T>;
    TORCH_CHECK(scalar_type() == CppTypeToScalarType<U>::value, "expected scalar type ",
                torch::toString(CppTypeToScalarType<U>::value), " but found ", torch::toString(scalar_type()));
    return static_cast<T*>(data_ptr());
  }
  template <class T>
  T* data() const { return data_ptr<T>(); }
  template <class T>
  const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  const void* const_data_ptr() const { return data_ptr(); }
  void* mutable_data_ptr() const { return data_ptr(); }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const;

  Scalar item() const {
    rl_value value;
    detail::check(rl_tensor_item(need(), &value));
    return Scalar(value);
  }
  template <class T>
  T item() const { return item().to<T>(); }

  // Copies elsewhere or to another dtype, or the tensor itself if it is there already.
  Tensor to(const TensorOptions& options, bool non_blocking = false, bool copy = false, optional<MemoryFormat> format = nullopt) const;
  Tensor to(Device device, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(device), non_blocking, copy); }
  Tensor to(DeviceType device, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(device), non_blocking, copy); }
  Tensor to(ScalarType type, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(type), non_blocking, copy); }
  Tensor to(TypeMeta type, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(type), non_blocking, copy); }
  Tensor to(Device device, ScalarType type, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(type).device(device), non_blocking, copy); }
  Tensor to(const Tensor& other, bool non_blocking = false, bool copy = false) const { return to(other.options(), non_blocking, copy); }
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor type_as(const Tensor& other) const { return to(other.options()); }
  Tensor toBackend(DeviceType device) const { return to(device); }
  Tensor cpu() const { return to(kCPU); }
  Tensor cuda() const { return to(Device(kCUDA, 0)); }

  // Autograd.
  bool requires_grad() const { return rl_tensor_requires_grad(need()); }
  const Tensor& set_requires_grad(bool requires_grad) const {
    detail::check(rl_tensor_set_requires_grad(need(), requires_grad));
    return *this;
  }
  Tensor& requires_grad_(bool requires_grad = true) { set_requires_grad(requires_grad); return *this; }
  const Tensor& requires_grad_(bool requires_grad = true) const { return set_requires_grad(requires_grad); }
  bool is_leaf() const { return rl_tensor_is_leaf(need()); }
  Tensor grad() const { return Tensor(rl_tensor_grad(need())); }
  // The gradient, to be assigned.
  struct Grad {
    const Tensor* owner;
    Grad& operator=(const Tensor& grad) {
      detail::check(rl_tensor_set_grad(owner->need(), grad.handle()));
      return *this;
    }
    operator Tensor() const { return owner->grad(); }
    bool defined() const { return owner->grad().defined(); }
    void reset() { *this = Tensor(); }
    Tensor zero_() { return owner->grad().zero_(); }
  };
  Grad mutable_grad() const { return Grad{this}; }
  std::shared_ptr<autograd::Node> grad_fn() const {
    char* text = rl_tensor_grad_fn(need());
    if (!text) return nullptr;
    std::string name = text;
    rl_string_free(text);
    // PyTorch numbers the forms of an op.
    if (name.find_last_of("0123456789") + 1 != name.size()) name += "0";
    return std::make_shared<autograd::Node>(autograd::Node{name});
  }
  void retain_grad() const { detail::check(rl_tensor_retain_grad(need())); }
  Tensor detach() const { return made([&](rl_tensor** out) { return rl_tensor_detach(need(), out); }); }
  Tensor& detach_() {
    replace(detach());
    return *this;
  }
  Tensor data() const { return made([&](rl_tensor** out) { return rl_tensor_untracked(need(), out); }); }
  Tensor variable_data() const { return data(); }
  Tensor tensor_data() const { return data(); }
  // Replaces the elements, also for copies of this Tensor, which keep gradient and requires_grad.
  void set_data(const Tensor& data) const;
  void backward(const Tensor& gradient = Tensor(), optional<bool> retain_graph = nullopt, bool create_graph = false,
                optional<TensorList> inputs = nullopt) const;
  // Calls a function with the gradient when it is computed; a returned tensor replaces it.
  template <class F>
  void register_hook(F&& hook) const;

  Tensor slice(int64_t dim = 0, optional<int64_t> start = nullopt, optional<int64_t> end = nullopt, int64_t step = 1) const;
  Tensor index(ArrayRef<indexing::TensorIndex> indices) const;
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate = false) const;
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value, bool accumulate = false) const;
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value) const;
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) const;
  Tensor operator[](int64_t at) const { return select(0, at); }
  Tensor operator[](int at) const { return select(0, at); }
  Tensor operator[](const Scalar& at) const { return select(0, at.toLong()); }
  Tensor operator[](const Tensor& at) const;

  // Ops whose signatures differ from Python's.
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, const Scalar& other) const;
  Tensor var(bool unbiased = true) const;
  Tensor var(OptionalIntArrayRef dim, bool unbiased, bool keepdim = false) const;
  Tensor std(bool unbiased = true) const;
  Tensor std(OptionalIntArrayRef dim, bool unbiased, bool keepdim = false) const;
  Tensor norm(const Scalar& p = 2) const;
  Tensor norm(const optional<Scalar>& p, IntArrayRef dim, bool keepdim = false) const;
  Tensor norm(const optional<Scalar>& p, int64_t dim, bool keepdim = false) const { return norm(p, IntArrayRef(dim), keepdim); }

  Tensor operator-() const;
  Tensor operator~() const;
  Tensor& operator+=(const Tensor& other);
  Tensor& operator+=(const Scalar& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator-=(const Scalar& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator*=(const Scalar& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator/=(const Scalar& other);
  Tensor& operator&=(const Tensor& other);
  Tensor& operator|=(const Tensor& other);
  Tensor& operator^=(const Tensor& other);

#include <torch/generated/methods.inc>

  // The reference; an error for an undefined tensor.
  rl_tensor* need() const {
    if (C10_UNLIKELY(!impl_)) throw Error("Expected a proper Tensor but got None (or an undefined Tensor in C++)");
    return impl_->handle;
  }

 private:
  size_t wrap(int64_t d) const {
    int64_t n = dim(), low = n ? -n : -1, high = n ? n - 1 : 0;
    TORCH_CHECK_INDEX(d >= low && d <= high, "Dimension out of range (expected to be in range of [", low, ", ", high,
                      "], but got ", d, ")");
    TORCH_CHECK_INDEX(n > 0, "dimension specified as ", d, " but tensor has no dimensions");
    return static_cast<size_t>(d < 0 ? d + n : d);
  }
  template <class F>
  static Tensor made(F call) {
    rl_tensor* out = nullptr;
    detail::check(call(&out));
    return Tensor(out);
  }
  void replace(const Tensor& other) const { rl_tensor_free(std::exchange(impl_->handle, rl_tensor_ref(other.need()))); }

  detail::Impl* impl_;
};

namespace indexing {

// An entry of an index.
class TensorIndex {
 public:
  TensorIndex(nullopt_t) { entry_.kind = RL_INDEX_NONE; }
  TensorIndex(EllipsisIndexType) { entry_.kind = RL_INDEX_ELLIPSIS; }
  TensorIndex(const char* text) {
    TORCH_CHECK_VALUE(std::string(text) == "...", "Expected \"...\" to represent an ellipsis index, but got \"", text, "\"");
    entry_.kind = RL_INDEX_ELLIPSIS;
  }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  TensorIndex(T value) {
    entry_.kind = std::is_same_v<T, bool> ? RL_INDEX_BOOL : RL_INDEX_INT;
    entry_.start = static_cast<int64_t>(value);
  }
  TensorIndex(const Slice& slice) {
    entry_.kind = RL_INDEX_SLICE;
    entry_.given = (slice.start_ ? 1 : 0) | (slice.stop_ ? 2 : 0);
    entry_.start = slice.start_.value_or(0);
    entry_.stop = slice.stop_.value_or(0);
    entry_.step = slice.step();
  }
  TensorIndex(Tensor tensor) : tensor_(std::move(tensor)) {
    entry_.kind = RL_INDEX_TENSOR;
    entry_.tensor = tensor_.need();
  }
  const rl_index& entry() const { return entry_; }

 private:
  Tensor tensor_;
  rl_index entry_{0, 0, 0, 0, 1, nullptr};
};

}  // namespace indexing

namespace detail {

// Values of arguments.
inline rl_value empty(rl_kind kind) {
  rl_value v;
  v.kind = kind;
  v.data.integer = 0;
  v.count = 0;
  return v;
}
inline rl_value v() { return empty(RL_DEFAULT); }
inline rl_value v(nullopt_t) { return empty(RL_NONE); }
inline rl_value v_tensor(const Tensor& tensor) {
  rl_value v;
  v.kind = tensor.defined() ? RL_TENSOR : RL_NONE;
  v.data.tensor = tensor.handle();
  v.count = 1;
  return v;
}
inline rl_value v_scalar(const Scalar& scalar) { return scalar.value(); }
inline rl_value integer(rl_kind kind, int64_t value) {
  rl_value v = empty(kind);
  v.data.integer = value;
  return v;
}
inline rl_value v_int(int64_t value) { return integer(RL_INT, value); }
inline rl_value v_bool(bool value) { return integer(RL_BOOL, value); }
inline rl_value v_float(double value) {
  rl_value v = empty(RL_FLOAT);
  v.data.number = value;
  return v;
}
inline rl_value v_ints(IntArrayRef list) {
  rl_value v = empty(RL_INTS);
  v.data.integers = list.data();
  v.count = list.size();
  return v;
}
inline rl_value v_optional_ints(const OptionalIntArrayRef& list) { return list.has_value() ? v_ints(*list) : empty(RL_NONE); }
inline rl_value v_text(string_view text) {
  rl_value v = empty(RL_STRING);
  v.data.text = text.data();
  v.count = text.size();
  return v;
}
// The same by overload, for code written by hand: choosing among overloads takes the compiler's time.
inline rl_value v(const Tensor& tensor) { return v_tensor(tensor); }
inline rl_value v(const Scalar& scalar) { return v_scalar(scalar); }
inline rl_value v(int64_t value) { return v_int(value); }
inline rl_value v(bool value) { return v_bool(value); }
inline rl_value v(double value) { return v_float(value); }
inline rl_value v(IntArrayRef list) { return v_ints(list); }
inline rl_value v(const OptionalIntArrayRef& list) { return v_optional_ints(list); }
inline rl_value v(ArrayRef<double> list) {
  rl_value v = empty(RL_FLOATS);
  v.data.numbers = list.data();
  v.count = list.size();
  return v;
}
inline rl_value v(string_view text) { return v_text(text); }
inline rl_value v(const PaddingName& padding) { return v(string_view(padding.name)); }
inline rl_value v(ScalarType type) { return integer(RL_DTYPE, static_cast<int64_t>(type)); }
inline rl_value v(MemoryFormat format) { return integer(RL_MEMORY_FORMAT, static_cast<int64_t>(format)); }
inline rl_value v(const Device& device) {
  rl_value v = integer(RL_DEVICE, static_cast<int64_t>(device.type()));
  v.count = device.has_index() ? static_cast<size_t>(device.index()) : 0;
  return v;
}
template <class T>
rl_value v_optional(const optional<T>& value) { return value ? v(*value) : empty(RL_NONE); }
template <class T>
rl_value v(const optional<T>& value) { return v_optional(value); }

inline rl_value opt_dtype(const TensorOptions& options) { return options.dtype_opt() ? v(*options.dtype_opt()) : v(); }
inline rl_value opt_device(const TensorOptions& options) { return options.device_opt() ? v(*options.device_opt()) : v(); }
inline rl_value opt_pinned(const TensorOptions& options) { return v(options.pinned_memory()); }
inline rl_value opt_grad(const TensorOptions& options) { return v(options.requires_grad()); }

// References of a list of tensors.
struct Handles {
  std::vector<rl_tensor*> list;
  explicit Handles(TensorList tensors) {
    list.reserve(tensors.size());
    for (const Tensor& tensor : tensors) list.push_back(tensor.need());
  }
};
inline rl_value v(const Handles& handles) {
  rl_value v = empty(RL_TENSORS);
  v.data.tensors = handles.list.data();
  v.count = handles.list.size();
  return v;
}

// An op, looked up when it is first called.
struct Op {
  const rl_op* op = nullptr;
  explicit Op(const char* signature) { check(rl_op_find(signature, &op)); }
};

inline rl_value call(const Op& op, const rl_value* args, size_t count) {
  rl_value out;
  check(rl_call(op.op, args, count, &out));
  return out;
}
// The tensors of a result of several.
inline std::vector<Tensor> unpack(rl_value out) {
  std::vector<Tensor> all;
  if (out.kind == RL_TENSOR) {
    all.emplace_back(out.data.tensor);
    return all;
  }
  all.reserve(out.count);
  for (size_t i = 0; i < out.count; ++i) all.emplace_back(out.data.tensors[i]);
  rl_value_free_array(&out);
  return all;
}
inline Tensor one(const Op& op, const rl_value* args, size_t count) {
  rl_value out = call(op, args, count);
  if (C10_UNLIKELY(out.kind != RL_TENSOR)) {
    rl_value_free(&out);
    throw Error("internal error: the op did not return a tensor");
  }
  return Tensor(out.data.tensor);
}
inline std::vector<Tensor> many(const Op& op, const rl_value* args, size_t count) { return unpack(call(op, args, count)); }
inline std::tuple<Tensor, Tensor> two(const Op& op, const rl_value* args, size_t count) {
  auto all = many(op, args, count);
  return {all.at(0), all.at(1)};
}
inline std::tuple<Tensor, Tensor, Tensor> three(const Op& op, const rl_value* args, size_t count) {
  auto all = many(op, args, count);
  return {all.at(0), all.at(1), all.at(2)};
}
inline std::tuple<Tensor, Tensor, Tensor, Tensor> four(const Op& op, const rl_value* args, size_t count) {
  auto all = many(op, args, count);
  return {all.at(0), all.at(1), all.at(2), all.at(3)};
}
inline Scalar number(const Op& op, const rl_value* args, size_t count) {
  rl_value out = call(op, args, count);
  if (out.kind == RL_TENSOR || out.kind == RL_TENSORS) {
    rl_value_free(&out);
    throw Error("internal error: the op returned a tensor");
  }
  return out.kind == RL_NONE ? Scalar() : Scalar(out);
}

template <size_t N>
Tensor one(const Op& op, const rl_value (&args)[N]) { return one(op, args, N); }
template <size_t N>
std::vector<Tensor> many(const Op& op, const rl_value (&args)[N]) { return many(op, args, N); }
template <size_t N>
std::tuple<Tensor, Tensor> two(const Op& op, const rl_value (&args)[N]) { return two(op, args, N); }
template <size_t N>
std::tuple<Tensor, Tensor, Tensor> three(const Op& op, const rl_value (&args)[N]) { return three(op, args, N); }
template <size_t N>
Scalar number(const Op& op, const rl_value (&args)[N]) { return number(op, args, N); }

template <class List>
std::vector<rl_index> entries(const List& indices) {
  std::vector<rl_index> all;
  all.reserve(indices.size());
  for (const auto& index : indices) all.push_back(index.entry());
  return all;
}
inline Tensor index_get(const Tensor& tensor, const std::vector<rl_index>& entries) {
  rl_tensor* out = nullptr;
  check(rl_index_get(tensor.need(), entries.data(), entries.size(), &out));
  return Tensor(out);
}
inline void index_put(const Tensor& tensor, const std::vector<rl_index>& entries, const rl_value& value, bool accumulate) {
  check(rl_index_put(tensor.need(), entries.data(), entries.size(), &value, accumulate));
}

}  // namespace detail

#include <torch/generated/definitions.inc>

inline Tensor Tensor::slice(int64_t dim, optional<int64_t> start, optional<int64_t> end, int64_t step) const {
  const int64_t rank = this->dim(), at = dim < 0 ? dim + rank : dim;
  TORCH_CHECK_INDEX(at >= 0 && at < rank, "Dimension out of range (expected to be in range of [", -rank, ", ", rank - 1, "], but got ", dim, ")");
  std::vector<indexing::TensorIndex> indices(static_cast<size_t>(at), indexing::Slice());
  indices.push_back(indexing::Slice(start, end, step));
  return index(ArrayRef<indexing::TensorIndex>(indices));
}
inline Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const { return detail::index_get(*this, detail::entries(indices)); }
inline Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const { return detail::index_get(*this, detail::entries(indices)); }
inline Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate) const {
  detail::index_put(*this, detail::entries(indices), detail::v(value), accumulate);
  return const_cast<Tensor&>(*this);
}
inline Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value, bool accumulate) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices), value, accumulate);
}
inline Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value) const {
  detail::index_put(*this, detail::entries(indices), detail::v(value), false);
  return const_cast<Tensor&>(*this);
}
inline Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices), value);
}
inline Tensor Tensor::operator[](const Tensor& at) const { return index({indexing::TensorIndex(at)}); }

// Elements of a tensor on the CPU, without checks of the indices.
template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides) : data_(data), sizes_(sizes), strides_(strides) {}
  int64_t size(int64_t d) const { return sizes_[d]; }
  int64_t stride(int64_t d) const { return strides_[d]; }
  IntArrayRef sizes() const { return IntArrayRef(sizes_, N); }
  T* data() const { return data_; }
  decltype(auto) operator[](int64_t at) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[at * strides_[0]]);
    } else {
      return TensorAccessor<T, N - 1>(data_ + at * strides_[0], sizes_ + 1, strides_ + 1);
    }
  }

 private:
  T* data_;
  const int64_t* sizes_;
  const int64_t* strides_;
};
template <class T, size_t N>
TensorAccessor<T, N> Tensor::accessor() const {
  TORCH_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
  TORCH_CHECK(is_cpu(), "accessor: the tensor is on ", device().str(), "; call .cpu() first");
  return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
}

namespace autograd {
using variable_list = std::vector<Tensor>;
using tensor_list = std::vector<Tensor>;
}  // namespace autograd

template <class F>
void Tensor::register_hook(F&& hook) const {
  using Hook = std::decay_t<F>;
  auto call = [](void* context, const rl_tensor* gradient, rl_tensor** replacement) -> rl_status {
    try {
      Tensor grad(rl_tensor_ref(gradient));
      if constexpr (std::is_void_v<std::invoke_result_t<Hook&, Tensor>>) {
        (*static_cast<Hook*>(context))(grad);
      } else {
        Tensor result = (*static_cast<Hook*>(context))(grad);
        if (result.defined()) *replacement = rl_tensor_ref(result.handle());
      }
      return RL_OK;
    } catch (...) {
      return detail::report();
    }
  };
  auto free = [](void* context) { delete static_cast<Hook*>(context); };
  detail::check(rl_tensor_register_hook(need(), call, new Hook(std::forward<F>(hook)), free));
}

}  // namespace torch
