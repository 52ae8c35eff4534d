// TORCH_LIBRARY: ops of a library by name, which Python has as torch.ops.namespace.name and exported models may call.
#pragma once

#include <torch/serialize.h>

namespace torch {

enum class DispatchKey {
  Undefined, CPU, CUDA, XPU, Meta, Autograd, AutogradCPU, AutogradCUDA, AutogradXPU, CompositeImplicitAutograd, CompositeExplicitAutograd, CatchAll
};

namespace detail {

// Conversions between C++ types and boxed values. `Stored` holds what a view of an argument refers to.
template <class T, class = void>
struct Boxed;

inline rl_value plain(const rl_object* object) {
  rl_value value;
  check(rl_object_value(object, &value));
  return value;
}
inline Object entry(const rl_object* object, size_t at) {
  rl_object* out = nullptr;
  check(rl_object_entry(object, at, &out));
  return Object(out);
}

template <>
struct Boxed<Tensor> {
  using Stored = Tensor;
  static std::string name() { return "Tensor"; }
  static Tensor from(const rl_object* object) {
    rl_value value = plain(object);
    TORCH_CHECK(value.kind == RL_TENSOR || value.kind == RL_NONE, "expected a tensor");
    return value.kind == RL_TENSOR ? Tensor(value.data.tensor) : Tensor();
  }
  static Object to(const Tensor& tensor) { return Object::of(v(tensor)); }
};
template <>
struct Boxed<int64_t> {
  using Stored = int64_t;
  static std::string name() { return "int"; }
  static int64_t from(const rl_object* object) { return Scalar(plain(object)).toLong(); }
  static Object to(int64_t value) { return Object::of(v(value)); }
};
template <>
struct Boxed<double> {
  using Stored = double;
  static std::string name() { return "float"; }
  static double from(const rl_object* object) { return Scalar(plain(object)).toDouble(); }
  static Object to(double value) { return Object::of(v(value)); }
};
template <>
struct Boxed<bool> {
  using Stored = bool;
  static std::string name() { return "bool"; }
  static bool from(const rl_object* object) { return plain(object).data.integer != 0; }
  static Object to(bool value) { return Object::of(v(value)); }
};
template <>
struct Boxed<Scalar> {
  using Stored = Scalar;
  static std::string name() { return "Scalar"; }
  static Scalar from(const rl_object* object) { return Scalar(plain(object)); }
  static Object to(const Scalar& value) { return Object::of(v(value)); }
};
template <>
struct Boxed<std::string> {
  using Stored = std::string;
  static std::string name() { return "str"; }
  static std::string from(const rl_object* object) {
    rl_value value = plain(object);
    TORCH_CHECK(value.kind == RL_STRING, "expected text");
    return std::string(value.data.text, value.count);
  }
  static Object to(const std::string& value) { return Object::of(v(string_view(value))); }
};
template <>
struct Boxed<string_view> {
  using Stored = std::string;
  static std::string name() { return "str"; }
  static std::string from(const rl_object* object) { return Boxed<std::string>::from(object); }
};
template <>
struct Boxed<ScalarType> {
  using Stored = ScalarType;
  static std::string name() { return "ScalarType"; }
  static ScalarType from(const rl_object* object) { return static_cast<ScalarType>(Boxed<int64_t>::from(object)); }
  static Object to(ScalarType value) { return Object::of(v(static_cast<int64_t>(value))); }
};
template <>
struct Boxed<Device> {
  using Stored = Device;
  static std::string name() { return "Device"; }
  static Device from(const rl_object* object) { return Device(Boxed<std::string>::from(object)); }
  static Object to(const Device& value) { return Boxed<std::string>::to(value.str()); }
};
template <class T>
struct Boxed<optional<T>> {
  using Stored = optional<typename Boxed<T>::Stored>;
  static std::string name() { return Boxed<T>::name() + "?"; }
  static Stored from(const rl_object* object) {
    if (!rl_object_is_list(object) && !rl_object_is_tuple(object) && !rl_object_is_dict(object)) {
      rl_value value = plain(object);
      const bool none = value.kind == RL_NONE;
      if (value.kind == RL_TENSOR) rl_tensor_free(value.data.tensor);
      if (none) return nullopt;
    }
    return Boxed<T>::from(object);
  }
  static Object to(const optional<T>& value) { return value ? Boxed<T>::to(*value) : Object::of(v(nullopt)); }
};
template <class T>
struct Boxed<std::vector<T>> {
  using Stored = std::vector<T>;
  static std::string name() { return Boxed<T>::name() + "[]"; }
  static std::vector<T> from(const rl_object* object) {
    TORCH_CHECK(rl_object_is_list(object) || rl_object_is_tuple(object), "expected a list");
    std::vector<T> all;
    const size_t count = rl_object_count(object);
    all.reserve(count);
    for (size_t i = 0; i < count; ++i) all.push_back(Boxed<T>::from(entry(object, i).get()));
    return all;
  }
  static Object to(const std::vector<T>& all) {
    Object list = Object::list();
    for (const auto& one : all) list.add(nullptr, Boxed<T>::to(one));
    return list;
  }
};
template <class T>
struct Boxed<ArrayRef<T>> : Boxed<std::vector<T>> {};
template <class... T>
struct Boxed<std::tuple<T...>> {
  using Stored = std::tuple<T...>;
  static std::string name() {
    std::string text, separator;
    ((text += separator + Boxed<T>::name(), separator = ", "), ...);
    return "(" + text + ")";
  }
  static Stored from(const rl_object* object) { return from(object, std::index_sequence_for<T...>()); }
  static Object to(const Stored& all) {
    Object tuple(rl_object_tuple());
    std::apply([&](const T&... each) { (tuple.add(nullptr, Boxed<T>::to(each)), ...); }, all);
    return tuple;
  }

 private:
  template <size_t... I>
  static Stored from(const rl_object* object, std::index_sequence<I...>) {
    TORCH_CHECK(rl_object_count(object) == sizeof...(T), "expected ", sizeof...(T), " values, got ", rl_object_count(object));
    return Stored{Boxed<T>::from(entry(object, I).get())...};
  }
};

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// A function as a kernel over boxed values.
template <class R, class... Args>
struct BoxedFunction {
  std::function<R(Args...)> function;

  static std::string schema() {
    std::string text, separator;
    size_t at = 0;
    ((text += separator + Boxed<Plain<Args>>::name() + " _" + std::to_string(at++), separator = ", "), ...);
    std::string result = "()";
    if constexpr (!std::is_void_v<R>) result = Boxed<Plain<R>>::name();
    return "(" + text + ") -> " + result;
  }
  static rl_status call(void* context, rl_object* const* arguments, size_t count, rl_object** out) {
    try {
      TORCH_CHECK(count == sizeof...(Args), "the kernel takes ", sizeof...(Args), " arguments, its schema has ", count);
      *out = static_cast<BoxedFunction*>(context)->run(arguments, std::index_sequence_for<Args...>()).release();
      return RL_OK;
    } catch (...) {
      return report();
    }
  }
  static void free(void* context) { delete static_cast<BoxedFunction*>(context); }

 private:
  template <size_t... I>
  Object run([[maybe_unused]] rl_object* const* arguments, std::index_sequence<I...>) {
    std::tuple<typename Boxed<Plain<Args>>::Stored...> stored{Boxed<Plain<Args>>::from(arguments[I])...};
    if constexpr (std::is_void_v<R>) {
      function(pass<Args>(std::get<I>(stored))...);
      return Object::of(v(nullopt));
    } else {
      return Boxed<Plain<R>>::to(function(pass<Args>(std::get<I>(stored))...));
    }
  }
  template <class P, class S>
  static decltype(auto) pass(S& stored) {
    if constexpr (std::is_same_v<Plain<P>, S>) return static_cast<S&>(stored);
    else return Plain<P>(stored);
  }
};

// The types of a function, a pointer to one or an object with operator().
template <class F>
struct Callable : Callable<decltype(&F::operator())> {};
template <class R, class... Args>
struct Callable<R (*)(Args...)> { using Function = BoxedFunction<R, Args...>; };
template <class R, class... Args>
struct Callable<R(Args...)> { using Function = BoxedFunction<R, Args...>; };
template <class C, class R, class... Args>
struct Callable<R (C::*)(Args...) const> { using Function = BoxedFunction<R, Args...>; };
template <class C, class R, class... Args>
struct Callable<R (C::*)(Args...)> { using Function = BoxedFunction<R, Args...>; };

inline const char* key_name(DispatchKey key) {
  switch (key) {
    case DispatchKey::CPU: return "CPU";
    case DispatchKey::CUDA: return "CUDA";
    case DispatchKey::XPU: return "XPU";
    case DispatchKey::Meta: return "Meta";
    case DispatchKey::Autograd: return "Autograd";
    case DispatchKey::AutogradCPU: return "AutogradCPU";
    case DispatchKey::AutogradCUDA: return "AutogradCUDA";
    case DispatchKey::AutogradXPU: return "AutogradXPU";
    case DispatchKey::CompositeExplicitAutograd: return "CompositeExplicitAutograd";
    default: return "CompositeImplicitAutograd";
  }
}

}  // namespace detail

// A function with the key of its kernel.
class CppFunction {
 public:
  template <class F, std::enable_if_t<!std::is_same_v<std::decay_t<F>, CppFunction>, int> = 0>
  CppFunction(F&& function) {
    using Boxed = typename detail::Callable<std::decay_t<F>>::Function;
    schema_ = Boxed::schema();
    register_ = [function = std::decay_t<F>(std::forward<F>(function))](const std::string& name, const char* key) {
      detail::check(rl_library_implement(name.c_str(), key, Boxed::call, new Boxed{function}, Boxed::free));
    };
  }
  CppFunction& key(DispatchKey key) { key_ = key; return *this; }
  const std::string& schema() const { return schema_; }
  void implement(const std::string& name, DispatchKey otherwise) const {
    register_(name, detail::key_name(key_ == DispatchKey::Undefined ? otherwise : key_));
  }

 private:
  std::string schema_;
  std::function<void(const std::string&, const char*)> register_;
  DispatchKey key_ = DispatchKey::Undefined;
};

template <class F>
CppFunction dispatch(DispatchKey key, F&& function) { return std::move(CppFunction(std::forward<F>(function)).key(key)); }
template <class F>
CppFunction dispatch(DeviceType type, F&& function) {
  const DispatchKey key = type == kCUDA ? DispatchKey::CUDA : type == kXPU ? DispatchKey::XPU : type == kMeta ? DispatchKey::Meta : DispatchKey::CPU;
  return dispatch(key, std::forward<F>(function));
}

// The ops of one namespace.
class Library {
 public:
  enum Kind { DEF, IMPL, FRAGMENT };
  Library(Kind kind, std::string ns, DispatchKey key = DispatchKey::Undefined) : kind_(kind), ns_(std::move(ns)), key_(key) {}

  // Names an op by its schema.
  Library& def(const std::string& schema) & {
    detail::check(rl_library_define(qualified(schema).c_str()));
    return *this;
  }
  // Names an op, by its schema or by a name whose schema is that of the function, and implements it for all devices.
  Library& def(const std::string& schema, CppFunction function) & {
    const bool bare = schema.find('(') == std::string::npos;
    def(bare ? schema + function.schema() : schema);
    function.implement(qualified(schema.substr(0, schema.find('('))), DispatchKey::CompositeImplicitAutograd);
    return *this;
  }
  // Implements an op for the library's key.
  Library& impl(const std::string& name, CppFunction function) & {
    function.implement(qualified(name), key_);
    return *this;
  }

 private:
  std::string qualified(const std::string& text) const { return text.find("::") < text.find('(') ? text : ns_ + "::" + text; }
  Kind kind_;
  std::string ns_;
  DispatchKey key_;
};

namespace detail {

struct TorchLibraryInit {
  TorchLibraryInit(Library::Kind kind, void (*fill)(Library&), const char* ns, DispatchKey key = DispatchKey::Undefined) {
    Library library(kind, ns, key);
    fill(library);
  }
};

}  // namespace detail

// An op of a library, called by name.
template <class F>
class TypedOperatorHandle;
template <class R, class... Args>
class TypedOperatorHandle<R(Args...)> {
 public:
  explicit TypedOperatorHandle(std::string name) : name_(std::move(name)) {}
  R call(Args... args) const {
    detail::Object list = detail::Object::list();
    (list.add(nullptr, detail::Boxed<detail::Plain<Args>>::to(args)), ...);
    rl_object* out = nullptr;
    detail::check(rl_library_call(name_.c_str(), list.get(), &out));
    detail::Object result(out);
    if constexpr (!std::is_void_v<R>) return detail::Boxed<detail::Plain<R>>::from(result.get());
  }
  R operator()(Args... args) const { return call(args...); }

 private:
  std::string name_;
};

class OperatorHandle {
 public:
  explicit OperatorHandle(std::string name) : name_(std::move(name)) {}
  template <class F>
  TypedOperatorHandle<F> typed() const { return TypedOperatorHandle<F>(name_); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class Dispatcher {
 public:
  static Dispatcher& singleton() {
    static Dispatcher one;
    return one;
  }
  optional<OperatorHandle> findSchema(const std::string& name, const std::string& overload) const {
    const std::string full = overload.empty() ? name : name + "." + overload;
    char* schema = rl_library_schema(full.c_str());
    if (!schema) return nullopt;
    rl_string_free(schema);
    return OperatorHandle(full);
  }
  OperatorHandle findSchemaOrThrow(const char* name, const char* overload) const {
    auto found = findSchema(name, overload);
    TORCH_CHECK(found, "Could not find schema for ", name, ".", overload, "; the library that defines it is not loaded");
    return *found;
  }
};

// While it lives, ops of this thread are not recorded and calls of libraries' ops skip kernels of Autograd.
class AutoDispatchBelowAutograd {
 public:
  AutoDispatchBelowAutograd() : below_(rl_library_below_autograd(true)), recorded_(rl_set_grad_enabled(false)) {}
  ~AutoDispatchBelowAutograd() {
    rl_library_below_autograd(below_);
    rl_set_grad_enabled(recorded_);
  }
  AutoDispatchBelowAutograd(const AutoDispatchBelowAutograd&) = delete;

 private:
  bool below_, recorded_;
};
using AutoDispatchBelowADInplaceOrView = AutoDispatchBelowAutograd;
using AutoNonVariableTypeMode = AutoDispatchBelowAutograd;

}  // namespace torch

#define TORCH_FN(function) (&function)
#define RL_JOIN2(a, b) a##b
#define RL_JOIN(a, b) RL_JOIN2(a, b)
#define RL_LIBRARY(kind, ns, key, m, id)                                                                            \
  static void RL_JOIN(torch_library_fill_, id)(::torch::Library&);                                                  \
  static const ::torch::detail::TorchLibraryInit RL_JOIN(torch_library_init_, id)(                                  \
      ::torch::Library::kind, &RL_JOIN(torch_library_fill_, id), #ns, ::torch::DispatchKey::key);                   \
  void RL_JOIN(torch_library_fill_, id)([[maybe_unused]] ::torch::Library& m)
#define TORCH_LIBRARY(ns, m) RL_LIBRARY(DEF, ns, Undefined, m, ns)
#define TORCH_LIBRARY_FRAGMENT(ns, m) RL_LIBRARY(FRAGMENT, ns, Undefined, m, RL_JOIN(ns##_fragment_, __COUNTER__))
#define TORCH_LIBRARY_IMPL(ns, k, m) RL_LIBRARY(IMPL, ns, k, m, RL_JOIN(ns##_##k##_, __COUNTER__))
