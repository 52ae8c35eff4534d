// Code for each dtype (AT_DISPATCH_...), 16-bit floats, loops over several threads.
#pragma once

#include <torch/functions.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace torch {

// 16-bit floats of IEEE and of bfloat16, computed with as floats.
struct Half {
  uint16_t x = 0;
  Half() = default;
  Half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const int32_t exponent = static_cast<int32_t>((bits >> 23) & 0xffu) - 112;
    uint32_t mantissa = bits & 0x7fffffu;
    if (((bits >> 23) & 0xffu) == 0xffu) {
      x = static_cast<uint16_t>(sign | 0x7c00u | (mantissa ? 0x200u : 0u));
    } else if (exponent >= 31) {
      x = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (exponent <= 0) {
      if (exponent < -10) {
        x = static_cast<uint16_t>(sign);
        return;
      }
      mantissa |= 0x800000u;
      const uint32_t shift = static_cast<uint32_t>(14 - exponent), half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1);
      uint32_t rounded = mantissa >> shift;
      if (rest > half || (rest == half && (rounded & 1))) ++rounded;
      x = static_cast<uint16_t>(sign | rounded);
    } else {
      uint32_t rounded = (static_cast<uint32_t>(exponent) << 10) | (mantissa >> 13);
      const uint32_t rest = mantissa & 0x1fffu;
      if (rest > 0x1000u || (rest == 0x1000u && (rounded & 1))) ++rounded;
      x = static_cast<uint16_t>(sign | rounded);
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16, exponent = (x >> 10) & 31u, mantissa = x & 0x3ffu;
    float value;
    if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), -24);
      return sign ? -value : value;
    }
    const uint32_t bits = sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (mantissa << 13);
    std::memcpy(&value, &bits, 4);
    return value;
  }
};
struct BFloat16 {
  uint16_t x = 0;
  BFloat16() = default;
  BFloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    x = value != value ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};
template <>
struct CppTypeToScalarType<Half> { static constexpr ScalarType value = ScalarType::Half; };
template <>
struct CppTypeToScalarType<BFloat16> { static constexpr ScalarType value = ScalarType::BFloat16; };
template <>
struct CppTypeToScalarType<c10::complex<Half>> { static constexpr ScalarType value = ScalarType::ComplexHalf; };

namespace detail {
template <ScalarType T>
struct ScalarTypeToCpp;
#define RL_SCALAR_TYPE(S, T) template <> struct ScalarTypeToCpp<ScalarType::S> { using type = T; };
RL_SCALAR_TYPE(Byte, uint8_t) RL_SCALAR_TYPE(Char, int8_t) RL_SCALAR_TYPE(Short, int16_t) RL_SCALAR_TYPE(Int, int32_t) RL_SCALAR_TYPE(Long, int64_t)
RL_SCALAR_TYPE(Half, Half) RL_SCALAR_TYPE(Float, float) RL_SCALAR_TYPE(Double, double) RL_SCALAR_TYPE(Bool, bool) RL_SCALAR_TYPE(BFloat16, BFloat16)
RL_SCALAR_TYPE(ComplexHalf, c10::complex<Half>) RL_SCALAR_TYPE(ComplexFloat, c10::complex<float>) RL_SCALAR_TYPE(ComplexDouble, c10::complex<double>)
#undef RL_SCALAR_TYPE
inline ScalarType scalar_type(ScalarType type) { return type; }
inline ScalarType scalar_type(TypeMeta type) { return type.toScalarType(); }
}  // namespace detail

inline bool& in_parallel_region_flag() {
  static thread_local bool inside = false;
  return inside;
}
inline bool in_parallel_region() { return in_parallel_region_flag(); }

// Calls `body(begin, end)` for parts of a range on several threads; parts have `grain` elements or more.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& body) {
  if (begin >= end) return;
  const int64_t most = (end - begin + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1);
  const int64_t count = in_parallel_region() ? 1 : std::min<int64_t>(get_num_threads(), most);
  if (count <= 1) return body(begin, end);
  const int64_t size = (end - begin + count - 1) / count;
  const bool recorded = rl_grad_enabled();
  std::exception_ptr failed;
  std::mutex mutex;
  auto part = [&](int64_t at) {
    bool& inside = in_parallel_region_flag();
    inside = true;
    const bool before = rl_set_grad_enabled(recorded);
    try {
      const int64_t from = begin + at * size;
      if (from < end) body(from, std::min(end, from + size));
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!failed) failed = std::current_exception();
    }
    rl_set_grad_enabled(before);
    inside = false;
  };
  std::vector<std::thread> threads;
  for (int64_t at = 1; at < count; ++at) threads.emplace_back(part, at);
  part(0);
  for (auto& thread : threads) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace torch

#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                                             \
  [&] {                                                                                                                 \
    const ::torch::ScalarType rl_type = ::torch::detail::scalar_type(TYPE);                                             \
    [[maybe_unused]] constexpr const char* rl_name = NAME;                                                              \
    switch (rl_type) {                                                                                                  \
      __VA_ARGS__                                                                                                       \
      default: throw ::torch::NotImplementedError(::torch::str('"', rl_name, "\" not implemented for '", ::torch::toString(rl_type), "'")); \
    }                                                                                                                   \
  }()
#define AT_DISPATCH_CASE(ENUM, ...)                                                       \
  case ENUM: {                                                                            \
    using scalar_t [[maybe_unused]] = typename ::torch::detail::ScalarTypeToCpp<ENUM>::type; \
    return __VA_ARGS__();                                                                 \
  }
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) \
  AT_DISPATCH_CASE(::torch::ScalarType::Double, __VA_ARGS__) AT_DISPATCH_CASE(::torch::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                                                                              \
  AT_DISPATCH_CASE(::torch::ScalarType::Byte, __VA_ARGS__) AT_DISPATCH_CASE(::torch::ScalarType::Char, __VA_ARGS__)       \
  AT_DISPATCH_CASE(::torch::ScalarType::Int, __VA_ARGS__) AT_DISPATCH_CASE(::torch::ScalarType::Long, __VA_ARGS__)        \
  AT_DISPATCH_CASE(::torch::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...) AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) AT_DISPATCH_FLOATING_TYPES_AND(::torch::ScalarType::Half, TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_CASE_COMPLEX_TYPES(...) \
  AT_DISPATCH_CASE(::torch::ScalarType::ComplexDouble, __VA_ARGS__) AT_DISPATCH_CASE(::torch::ScalarType::ComplexFloat, __VA_ARGS__)
#define AT_DISPATCH_COMPLEX_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__))
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                                           \
  [&] {                                                                                                    \
    const ::torch::ScalarType rl_index_type = ::torch::detail::scalar_type(TYPE);                          \
    if (rl_index_type == ::torch::ScalarType::Int) { using index_t = int32_t; return __VA_ARGS__(); }      \
    if (rl_index_type == ::torch::ScalarType::Long) { using index_t = int64_t; return __VA_ARGS__(); }     \
    throw ::torch::NotImplementedError(::torch::str('"', NAME, "\" not implemented for '", ::torch::toString(rl_index_type), "'")); \
  }()
