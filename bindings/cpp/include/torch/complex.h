// c10::complex<T>: a complex number in the memory layout of std::complex<T>.
#pragma once

#include <complex>
#include <ostream>

namespace c10 {

template <class T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  constexpr complex() = default;
  constexpr complex(const T& real, const T& imag = T()) : real_(real), imag_(imag) {}
  template <class U>
  constexpr complex(const complex<U>& other) : real_(static_cast<T>(other.real())), imag_(static_cast<T>(other.imag())) {}
  template <class U>
  constexpr complex(const std::complex<U>& other) : real_(static_cast<T>(other.real())), imag_(static_cast<T>(other.imag())) {}
  template <class U>
  constexpr explicit operator std::complex<U>() const { return std::complex<U>(static_cast<U>(real_), static_cast<U>(imag_)); }
  constexpr T real() const { return real_; }
  constexpr T imag() const { return imag_; }
  constexpr void real(T value) { real_ = value; }
  constexpr void imag(T value) { imag_ = value; }
  constexpr complex& operator+=(const complex& other) { return *this = *this + other; }
  constexpr complex& operator-=(const complex& other) { return *this = *this - other; }
  constexpr complex& operator*=(const complex& other) { return *this = *this * other; }
  constexpr complex& operator/=(const complex& other) { return *this = *this / other; }
  constexpr complex operator+() const { return *this; }
  constexpr complex operator-() const { return complex(-real_, -imag_); }
  friend constexpr complex operator+(const complex& a, const complex& b) { return complex(a.real_ + b.real_, a.imag_ + b.imag_); }
  friend constexpr complex operator-(const complex& a, const complex& b) { return complex(a.real_ - b.real_, a.imag_ - b.imag_); }
  friend constexpr complex operator*(const complex& a, const complex& b) {
    return complex(a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_);
  }
  // By std::complex, which scales, so that large parts do not overflow.
  friend complex operator/(const complex& a, const complex& b) { return complex(std::complex<T>(a) / std::complex<T>(b)); }
  friend constexpr bool operator==(const complex& a, const complex& b) { return a.real_ == b.real_ && a.imag_ == b.imag_; }
  friend constexpr bool operator!=(const complex& a, const complex& b) { return !(a == b); }
  friend std::ostream& operator<<(std::ostream& out, const complex& value) { return out << std::complex<T>(value); }

 private:
  T real_ = T(), imag_ = T();
};

}  // namespace c10

namespace std {

template <class T>
constexpr T real(const c10::complex<T>& z) { return z.real(); }
template <class T>
constexpr T imag(const c10::complex<T>& z) { return z.imag(); }
template <class T>
T abs(const c10::complex<T>& z) { return abs(complex<T>(z)); }
template <class T>
T arg(const c10::complex<T>& z) { return arg(complex<T>(z)); }
template <class T>
constexpr T norm(const c10::complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }
template <class T>
constexpr c10::complex<T> conj(const c10::complex<T>& z) { return c10::complex<T>(z.real(), -z.imag()); }

}  // namespace std
