// Foundations: errors, lists, scalars, devices, dtypes, options of new tensors.
#pragma once

#include <rushlight.h>
#include <torch/complex.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define TORCH_VERSION_MAJOR 2
#define TORCH_VERSION_MINOR 9
#define TORCH_VERSION_PATCH 0
#define TORCH_VERSION "2.9.0"

// Defined by this implementation only.
#define TORCH_RUSHLIGHT 1

#define TORCH_API
#define C10_API
#define C10_UNUSED [[maybe_unused]]
#define C10_LIKELY(e) (__builtin_expect(static_cast<bool>(e), 1))
#define C10_UNLIKELY(e) (__builtin_expect(static_cast<bool>(e), 0))

namespace torch {

using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;
template <class T>
using make_optional_t = std::optional<T>;
using std::make_optional;
using std::in_place;
using intrusive_nullptr = std::nullptr_t;

namespace detail {
// A part of a message. Lists of these are joined by one function; a template of the parts' types would be compiled for
// every message.
class Text {
 public:
  Text(const char* text) : text_(text) {}
  Text(std::string text) : text_(std::move(text)) {}
  Text(string_view text) : text_(text) {}
  Text(char value) : text_(1, value) {}
  Text(bool value) : text_(value ? "1" : "0") {}
  Text(int value) : text_(std::to_string(value)) {}
  Text(long value) : text_(std::to_string(value)) {}
  Text(long long value) : text_(std::to_string(value)) {}
  Text(unsigned value) : text_(std::to_string(value)) {}
  Text(unsigned long value) : text_(std::to_string(value)) {}
  Text(unsigned long long value) : text_(std::to_string(value)) {}
  // As streams write it.
  Text(double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%g", value);
    text_ = buffer;
  }
  Text(float value) : Text(static_cast<double>(value)) {}
  template <class T>
  Text(const T& value) {
    std::ostringstream out;
    out << value;
    text_ = out.str();
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};
inline std::string join(std::initializer_list<Text> parts) {
  std::string all;
  for (const Text& part : parts) all += part.text();
  return all;
}
}  // namespace detail

// The values of its arguments as one string.
template <class... Args>
std::string str(const Args&... args) { return detail::join({detail::Text(args)...}); }

// An error, with the text that PyTorch's has.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const noexcept { return message_; }

 private:
  std::string message_;
};

class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };
class OutOfMemoryError : public Error { using Error::Error; };
class LinAlgError : public Error { using Error::Error; };

namespace detail {

[[noreturn]] inline void raise(rl_status status) {
  std::string message = rl_last_error();
  switch (status) {
    case RL_ERROR_INDEX: throw IndexError(message);
    case RL_ERROR_OUT_OF_MEMORY: throw OutOfMemoryError(message);
    case RL_ERROR_UNSUPPORTED: throw NotImplementedError(message);
    case RL_ERROR_NUMERICAL: throw LinAlgError(message);
    default: throw Error(message);
  }
}

inline void check(rl_status status) {
  if (C10_UNLIKELY(status != RL_OK)) raise(status);
}

[[noreturn]] inline void check_failed(const char* what, const char* file, int line, std::initializer_list<Text> parts) {
  const std::string message = join(parts);
  throw Error(message.empty() ? str("Expected ", what, " to be true, but got false.  (at ", file, ":", line, ")") : message);
}

// Reports the exception in flight to the library: for callbacks, through which none may pass.
inline rl_status report() noexcept {
  try {
    throw;
  } catch (const IndexError& e) {
    rl_set_error(e.what());
    return RL_ERROR_INDEX;
  } catch (const NotImplementedError& e) {
    rl_set_error(e.what());
    return RL_ERROR_UNSUPPORTED;
  } catch (const std::exception& e) {
    rl_set_error(e.what());
  } catch (...) {
    rl_set_error("an exception that is not a std::exception");
  }
  return RL_ERROR_AUTOGRAD;
}

}  // namespace detail

#define TORCH_CHECK(condition, ...)                                                                                    \
  do {                                                                                                                 \
    if (C10_UNLIKELY(!(condition))) ::torch::detail::check_failed(#condition, __FILE__, __LINE__, {__VA_ARGS__}); \
  } while (false)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) \
  do { if (C10_UNLIKELY(!(condition))) throw ::torch::IndexError(::torch::detail::join({__VA_ARGS__})); } while (false)
#define TORCH_CHECK_VALUE(condition, ...) \
  do { if (C10_UNLIKELY(!(condition))) throw ::torch::ValueError(::torch::detail::join({__VA_ARGS__})); } while (false)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  do { if (C10_UNLIKELY(!(condition))) throw ::torch::NotImplementedError(::torch::detail::join({__VA_ARGS__})); } while (false)
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) throw ::torch::Error(::torch::detail::join({__VA_ARGS__}))
#define TORCH_WARN(...) (std::fprintf(stderr, "Warning: %s\n", ::torch::detail::join({__VA_ARGS__}).c_str()))

// A view of elements that others own; valid as long as they are. A temporary lives until the end of its expression.
template <class T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;

  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <class A>
  ArrayRef(const std::vector<T, A>& all) : data_(all.data()), size_(all.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& all) : data_(all.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&all)[N]) : data_(all), size_(N) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  constexpr ArrayRef(const std::initializer_list<T>& all) : data_(all.begin()), size_(all.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  const T& operator[](size_t at) const { return data_[at]; }
  const T& at(size_t at) const {
    TORCH_CHECK_INDEX(at < size_, "ArrayRef: invalid index Index = ", at, "; Length = ", size_);
    return data_[at];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t from, size_t count) const { return ArrayRef(data_ + from, count); }
  ArrayRef slice(size_t from) const { return slice(from, size_ - from); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  operator std::vector<T>() const { return vec(); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <class T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(b); }
template <class T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) { return b.equals(a); }
template <class T>
bool operator!=(ArrayRef<T> a, const std::vector<T>& b) { return !a.equals(b); }
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << "[";
  for (size_t i = 0; i < list.size(); ++i) out << (i ? ", " : "") << list[i];
  return out << "]";
}

using IntArrayRef = ArrayRef<int64_t>;

// Integers, or none.
class OptionalIntArrayRef {
 public:
  OptionalIntArrayRef() = default;
  OptionalIntArrayRef(nullopt_t) {}
  OptionalIntArrayRef(const int64_t& one) : list_(one), given_(true) {}
  OptionalIntArrayRef(const std::initializer_list<int64_t>& list) : list_(list), given_(true) {}
  template <class T, std::enable_if_t<!std::is_arithmetic_v<T> && std::is_convertible_v<const T&, IntArrayRef>, int> = 0>
  OptionalIntArrayRef(const T& list) : list_(list), given_(true) {}
  OptionalIntArrayRef(const optional<IntArrayRef>& list) : list_(list.value_or(IntArrayRef())), given_(list.has_value()) {}
  bool has_value() const { return given_; }
  explicit operator bool() const { return given_; }
  IntArrayRef value() const { return list_; }
  IntArrayRef operator*() const { return list_; }

 private:
  IntArrayRef list_;
  bool given_ = false;
};

// Padding by name: "same" or "valid".
struct PaddingName {
  template <size_t N>
  PaddingName(const char (&name)[N]) : name(name) {}
  PaddingName(std::string name) : name(std::move(name)) {}
  std::string name;
};

namespace detail {
template <class T>
struct is_complex : std::false_type {};
template <class T>
struct is_complex<c10::complex<T>> : std::true_type {};
template <class T>
struct is_complex<std::complex<T>> : std::true_type {};
}  // namespace detail

// A number whose kind (truth value, integer, float, complex) takes part in type promotion.
class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = RL_BOOL;
      data_.integer = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind_ = RL_INT;
      data_.integer = static_cast<int64_t>(value);
    } else {
      kind_ = RL_FLOAT;
      data_.number = static_cast<double>(value);
    }
  }
  template <class T>
  Scalar(const c10::complex<T>& value) : kind_(RL_COMPLEX), parts_{static_cast<double>(value.real()), static_cast<double>(value.imag())} { data_.integer = 0; }
  template <class T>
  Scalar(const std::complex<T>& value) : Scalar(c10::complex<T>(value)) {}
  // A result of the library, which is taken over.
  explicit Scalar(rl_value value) : kind_(value.kind), data_(value.data) {
    if (C10_UNLIKELY(kind_ == RL_COMPLEX)) {
      parts_[0] = data_.numbers[0];
      parts_[1] = data_.numbers[1];
      rl_value_free(&value);
      data_.integer = 0;
    }
  }

  bool isBoolean() const { return kind_ == RL_BOOL; }
  bool isIntegral(bool include_bool = false) const { return kind_ == RL_INT || (include_bool && isBoolean()); }
  bool isFloatingPoint() const { return kind_ == RL_FLOAT; }
  bool isComplex() const { return kind_ == RL_COMPLEX; }
  template <class T>
  T to() const {
    if constexpr (detail::is_complex<T>::value) {
      using Part = typename T::value_type;
      if (isComplex()) return T(static_cast<Part>(parts_[0]), static_cast<Part>(parts_[1]));
      return T(to<Part>());
    } else {
      if (C10_UNLIKELY(isComplex())) return static_cast<T>(real_part());
      return kind_ == RL_FLOAT ? static_cast<T>(data_.number) : static_cast<T>(data_.integer);
    }
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return isComplex() ? parts_[0] != 0 || parts_[1] != 0 : to<bool>(); }
  c10::complex<float> toComplexFloat() const { return to<c10::complex<float>>(); }
  c10::complex<double> toComplexDouble() const { return to<c10::complex<double>>(); }
  Scalar operator-() const {
    if (isComplex()) return Scalar(-toComplexDouble());
    return kind_ == RL_FLOAT ? Scalar(-data_.number) : Scalar(-data_.integer);
  }
  Scalar conj() const { return isComplex() ? Scalar(c10::complex<double>(parts_[0], -parts_[1])) : *this; }
  template <class T>
  bool equal(T other) const { return to<T>() == other; }

  // Valid while this object is.
  rl_value value() const {
    rl_value v;
    v.kind = kind_;
    v.data = data_;
    v.count = 0;
    if (C10_UNLIKELY(isComplex())) {
      v.data.numbers = parts_;
      v.count = 2;
    }
    return v;
  }

 private:
  double real_part() const {
    TORCH_CHECK(parts_[1] == 0, "value cannot be converted to a real type without overflow: its imaginary part is ", parts_[1]);
    return parts_[0];
  }
  rl_kind kind_;
  rl_data data_;
  double parts_[2] = {0, 0};
};

inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isComplex()) return out << s.toComplexDouble();
  if (s.isFloatingPoint()) return out << s.toDouble();
  if (s.isBoolean()) return out << (s.toBool() ? "true" : "false");
  return out << s.toLong();
}

// Dtypes, with PyTorch's numbers.
enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7, ComplexHalf = 8, ComplexFloat = 9, ComplexDouble = 10,
  Bool = 11, BFloat16 = 15,
  Float8_e5m2 = 23, Float8_e4m3fn = 24, UInt16 = 27, UInt32 = 28, UInt64 = 29, Undefined = -1
};
using Dtype = ScalarType;
// A dtype as `Tensor::dtype` returns it.
class TypeMeta {
 public:
  TypeMeta(ScalarType type = ScalarType::Undefined) : type_(type) {}
  operator ScalarType() const { return type_; }
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const {
    size_t bytes = 0;
    detail::check(rl_dtype_size(static_cast<int32_t>(type_), &bytes));
    return bytes;
  }
  const char* name() const {
    switch (type_) {
      case ScalarType::Float: return "float";
      case ScalarType::Double: return "double";
      case ScalarType::Long: return "long int";
      case ScalarType::Int: return "int";
      case ScalarType::Short: return "short int";
      case ScalarType::Byte: return "unsigned char";
      case ScalarType::Char: return "signed char";
      case ScalarType::Bool: return "bool";
      case ScalarType::Half: return "c10::Half";
      case ScalarType::BFloat16: return "c10::BFloat16";
      case ScalarType::ComplexHalf: return "c10::complex<c10::Half>";
      case ScalarType::ComplexFloat: return "c10::complex<float>";
      case ScalarType::ComplexDouble: return "c10::complex<double>";
      default: return "nullptr (uninitialized)";
    }
  }
  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
  friend bool operator==(TypeMeta a, ScalarType b) { return a.type_ == b; }
  friend bool operator!=(TypeMeta a, ScalarType b) { return a.type_ != b; }
  friend bool operator==(ScalarType a, TypeMeta b) { return a == b.type_; }
  friend bool operator!=(ScalarType a, TypeMeta b) { return a != b.type_; }

 private:
  ScalarType type_;
};
using caffe2_TypeMeta = TypeMeta;

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = kByte, kU8 = kByte;
constexpr ScalarType kChar = ScalarType::Char, kInt8 = kChar, kI8 = kChar;
constexpr ScalarType kShort = ScalarType::Short, kInt16 = kShort, kI16 = kShort;
constexpr ScalarType kInt = ScalarType::Int, kInt32 = kInt, kI32 = kInt;
constexpr ScalarType kLong = ScalarType::Long, kInt64 = kLong, kI64 = kLong;
constexpr ScalarType kHalf = ScalarType::Half, kFloat16 = kHalf, kF16 = kHalf;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = kFloat, kF32 = kFloat;
constexpr ScalarType kDouble = ScalarType::Double, kFloat64 = kDouble, kF64 = kDouble;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16;
constexpr ScalarType kComplexHalf = ScalarType::ComplexHalf, kComplex32 = kComplexHalf;
constexpr ScalarType kComplexFloat = ScalarType::ComplexFloat, kComplex64 = kComplexFloat;
constexpr ScalarType kComplexDouble = ScalarType::ComplexDouble, kComplex128 = kComplexDouble;
constexpr ScalarType kBool = ScalarType::Bool;
constexpr ScalarType kUInt16 = ScalarType::UInt16, kUInt32 = ScalarType::UInt32, kUInt64 = ScalarType::UInt64;
constexpr ScalarType kFloat8_e5m2 = ScalarType::Float8_e5m2, kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;

inline const char* toString(ScalarType type) {
  const char* name = rl_dtype_name(static_cast<int32_t>(type));
  return name ? name : "Undefined";
}
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
inline std::ostream& operator<<(std::ostream& out, TypeMeta type) { return out << type.name(); }
inline size_t elementSize(ScalarType type) { return TypeMeta(type).itemsize(); }
inline bool isFloatingType(ScalarType t) {
  return t == kFloat || t == kDouble || t == kHalf || t == kBFloat16 || t == kFloat8_e5m2 || t == kFloat8_e4m3fn;
}
inline bool isComplexType(ScalarType t) { return t == kComplexFloat || t == kComplexDouble || t == kComplexHalf; }
inline bool isIntegralType(ScalarType t, bool include_bool = false) {
  return t == kBool ? include_bool : t != ScalarType::Undefined && !isFloatingType(t) && !isComplexType(t);
}
inline ScalarType toComplexType(ScalarType t) {
  return t == kDouble || t == kComplexDouble ? kComplexDouble : t == kHalf || t == kComplexHalf ? kComplexHalf : kComplexFloat;
}
inline ScalarType toRealValueType(ScalarType t) {
  return t == kComplexFloat ? kFloat : t == kComplexDouble ? kDouble : t == kComplexHalf ? kHalf : t;
}

template <class T>
struct CppTypeToScalarType;
#define RL_CPP_TYPE(T, S) template <> struct CppTypeToScalarType<T> { static constexpr ScalarType value = ScalarType::S; };
RL_CPP_TYPE(uint8_t, Byte) RL_CPP_TYPE(int8_t, Char) RL_CPP_TYPE(int16_t, Short) RL_CPP_TYPE(int32_t, Int)
RL_CPP_TYPE(int64_t, Long) RL_CPP_TYPE(float, Float) RL_CPP_TYPE(double, Double) RL_CPP_TYPE(bool, Bool)
RL_CPP_TYPE(uint16_t, UInt16) RL_CPP_TYPE(uint32_t, UInt32) RL_CPP_TYPE(uint64_t, UInt64)
RL_CPP_TYPE(long long, Long) RL_CPP_TYPE(c10::complex<float>, ComplexFloat) RL_CPP_TYPE(c10::complex<double>, ComplexDouble)
RL_CPP_TYPE(std::complex<float>, ComplexFloat) RL_CPP_TYPE(std::complex<double>, ComplexDouble)
#undef RL_CPP_TYPE

inline ScalarType get_default_dtype_as_scalartype() { return static_cast<ScalarType>(rl_default_dtype()); }
inline TypeMeta get_default_dtype() { return get_default_dtype_as_scalartype(); }
inline void set_default_dtype(TypeMeta type) {
  detail::check(rl_set_default_dtype(static_cast<int32_t>(type.toScalarType())));
}

// Devices, with PyTorch's numbers.
enum class DeviceType : int8_t { CPU = 0, CUDA = 1, XPU = 12, Meta = 14, MPS = 13, HIP = 6 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kXPU = DeviceType::XPU, kMeta = DeviceType::Meta;
constexpr DeviceType kMPS = DeviceType::MPS, kHIP = DeviceType::HIP;
using DeviceIndex = int8_t;

inline std::string DeviceTypeName(DeviceType type, bool lower_case = false) {
  switch (type) {
    case kCPU: return lower_case ? "cpu" : "CPU";
    case kCUDA: return lower_case ? "cuda" : "CUDA";
    case kXPU: return lower_case ? "xpu" : "XPU";
    case kMeta: return lower_case ? "meta" : "META";
    case kMPS: return lower_case ? "mps" : "MPS";
    default: return lower_case ? "hip" : "HIP";
  }
}
inline std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << DeviceTypeName(type, true); }

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) : type_(kCPU) {
    size_t colon = text.find(':');
    std::string kind = text.substr(0, colon);
    bool known = false;
    for (DeviceType type : {kCPU, kCUDA, kXPU, kMeta, kMPS, kHIP})
      if (DeviceTypeName(type, true) == kind) type_ = type, known = true;
    TORCH_CHECK(known, "Expected one of cpu, cuda, xpu, meta device type at start of device string: ", text);
    if (colon != std::string::npos) {
      std::string digits = text.substr(colon + 1);
      TORCH_CHECK(!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos && digits.size() < 4,
                  "Invalid device string: '", text, "'");
      index_ = static_cast<DeviceIndex>(std::stoi(digits));
    }
  }
  Device(const char* text) : Device(std::string(text)) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  void set_index(DeviceIndex index) { index_ = index; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_xpu() const { return type_ == kXPU; }
  bool is_meta() const { return type_ == kMeta; }
  std::string str() const {
    std::string text = DeviceTypeName(type_, true);
    return has_index() ? text + ":" + std::to_string(static_cast<int>(index_)) : text;
  }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

enum class Layout : int8_t { Strided, Sparse };
constexpr Layout kStrided = Layout::Strided, kSparse = Layout::Sparse;
enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

// Properties of a new tensor; those not given have defaults.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(TypeMeta type) : dtype_(type.toScalarType()) {}
  TensorOptions(Layout layout) { *this = this->layout(layout); }
  TensorOptions(MemoryFormat format) : memory_format_(format) {}
  template <class T, std::enable_if_t<std::is_same_v<std::decay_t<T>, Device> || std::is_same_v<std::decay_t<T>, DeviceType> ||
                                          std::is_same_v<std::decay_t<T>, std::string>, int> = 0>
  TensorOptions(T&& device) : device_(Device(std::forward<T>(device))) {}

  [[nodiscard]] TensorOptions dtype(optional<ScalarType> type) const { auto o = *this; o.dtype_ = type; return o; }
  [[nodiscard]] TensorOptions dtype(TypeMeta type) const { return dtype(optional<ScalarType>(type.toScalarType())); }
  [[nodiscard]] TensorOptions dtype(ScalarType type) const { return dtype(optional<ScalarType>(type)); }
  template <class T>
  [[nodiscard]] TensorOptions dtype() const { return dtype(CppTypeToScalarType<T>::value); }
  [[nodiscard]] TensorOptions device(optional<Device> device) const { auto o = *this; o.device_ = device; return o; }
  [[nodiscard]] TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(optional<Device>(Device(type, index))); }
  [[nodiscard]] TensorOptions device_index(DeviceIndex index) const { return device(kCUDA, index); }
  [[nodiscard]] TensorOptions layout(optional<Layout> layout) const {
    if (layout && *layout != kStrided) throw NotImplementedError("sparse tensors are not supported; use torch::kStrided");
    return *this;
  }
  [[nodiscard]] TensorOptions requires_grad(optional<bool> requires_grad) const { auto o = *this; o.requires_grad_ = requires_grad; return o; }
  [[nodiscard]] TensorOptions pinned_memory(optional<bool> pinned) const { auto o = *this; o.pinned_memory_ = pinned; return o; }
  [[nodiscard]] TensorOptions memory_format(optional<MemoryFormat> format) const { auto o = *this; o.memory_format_ = format; return o; }

  TypeMeta dtype() const { return dtype_.value_or(get_default_dtype_as_scalartype()); }
  Device device() const { return device_.value_or(Device(kCPU)); }
  Layout layout() const { return kStrided; }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  bool pinned_memory() const { return pinned_memory_.value_or(false); }
  const optional<ScalarType>& dtype_opt() const { return dtype_; }
  const optional<Device>& device_opt() const { return device_; }
  const optional<bool>& requires_grad_opt() const { return requires_grad_; }
  const optional<MemoryFormat>& memory_format_opt() const { return memory_format_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  optional<ScalarType> dtype_;
  optional<Device> device_;
  optional<bool> requires_grad_;
  optional<bool> pinned_memory_;
  optional<MemoryFormat> memory_format_;
};

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions device_index(DeviceIndex index) { return TensorOptions().device_index(index); }
inline TensorOptions layout(Layout layout) { return TensorOptions(layout); }
inline TensorOptions requires_grad(bool requires_grad = true) { return TensorOptions().requires_grad(requires_grad); }

// A value for each of D dimensions, or one for all.
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> list) : ExpandingArray(ArrayRef<T>(list)) {}
  ExpandingArray(const std::vector<T>& list) : ExpandingArray(ArrayRef<T>(list)) {}
  ExpandingArray(ArrayRef<T> list) {
    TORCH_CHECK(list.size() == 1 || list.size() == D, "Expected ", D, " values, but instead got ", list.size());
    for (size_t i = 0; i < D; ++i) values_[i] = list[list.size() == 1 ? 0 : i];
  }
  ExpandingArray(T one) { values_.fill(one); }
  ExpandingArray(const std::array<T, D>& values) : values_(values) {}
  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>* operator->() { return &values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  operator ArrayRef<T>() const { return values_; }
  size_t size() const { return D; }

 private:
  std::array<T, D> values_;
};
template <size_t D, class T>
std::ostream& operator<<(std::ostream& out, const ExpandingArray<D, T>& array) {
  if (array.size() == 1) return out << (*array)[0];
  return out << ArrayRef<T>(*array);
}

}  // namespace torch

// LibTorch's other namespaces have the same names; c10::complex is a type, torch::complex a function.
namespace at = torch;
namespace c10 {
using namespace torch;
}
