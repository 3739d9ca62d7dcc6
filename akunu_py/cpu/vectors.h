// Vectors of float32 for the kernels, eight numbers at a time.
//
// The vectors are those of GCC and Clang, so one source serves AVX2, AVX-512 and NEON. Each number
// of a result is a sum in an order of its own, whatever else is computed beside it: a row has the
// same bits alone and among others, in any number of threads.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "arithmetic.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace akunu {

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef float Quad __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

#if defined(__AVX512VL__)
constexpr int REGISTERS = 32;
#else
constexpr int REGISTERS = 16;  // of AVX2; NEON's 32 hold half as many numbers each
#endif

template <class Vector = Floats>
inline Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class Vector>
inline void store(float* to, Vector v) {
  std::memcpy(to, &v, sizeof v);
}

template <class Vector>
constexpr int lanes_of = sizeof(Vector) / sizeof(float);

// Space for numbers from which each vector is loaded out of one cache line.
template <class Vector>
float* numbers_in(std::vector<Vector>& space, size_t count) {
  space.resize(std::max(space.size(), count / lanes_of<Vector> + 1));
  return reinterpret_cast<float*>(space.data());
}

// a * b + c, always rounded once where the processor can. A compiler that may choose fuses products
// and sums here and not there, and rows would differ in bits: so it may not (-ffp-contract=off).
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__FMA__)
  return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#elif defined(__aarch64__)
  using Halves = std::array<float32x4_t, 2>;
  const auto x = std::bit_cast<Halves>(a), y = std::bit_cast<Halves>(b);
  auto z = std::bit_cast<Halves>(c);
  for (int half : {0, 1}) z[half] = vfmaq_f32(z[half], x[half], y[half]);
  return std::bit_cast<Floats>(z);
#else
  return a * b + c;
#endif
}

// Not a sum with zero, which compilers may not leave out: -0 would become 0.
inline Floats repeat(float value) {
  return Floats{value, value, value, value, value, value, value, value};
}

// The sums of four vectors, each as if it were alone.
inline Quad sums(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                    __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  const Floats cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11) +
                    __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
  const Floats acbd = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
                      __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(acbd, acbd, 0, 4, 2, 6) +
         __builtin_shufflevector(acbd, acbd, 1, 5, 3, 7);
}

inline float sum(Floats v) { return sums(v, v, v, v)[0]; }

inline Floats eight_lanes(Floats v) { return v; }

// e^x within 2 units in the last place; 0 below -87, where float32 has no normal numbers left.
inline Floats exponential(Floats x) {
  const Ints is_zero = x < -87.0f;
  x = x < -87.0f ? repeat(-87.0f) : x;
  x = x > 88.0f ? repeat(88.0f) : x;
  constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: adding it leaves no digits behind the point
  const Floats power = multiply_add(x, repeat(1.44269504f), repeat(ROUND)) - ROUND;
  // ln 2 in two parts (Cody and Waite), so that the rest is exact.
  Floats rest = multiply_add(power, repeat(-0.693145752f), x);
  rest = multiply_add(power, repeat(-1.42860677e-6f), rest);
  Floats value = repeat(1.3888889e-3f);
  for (float factor : {8.3333333e-3f, 4.1666667e-2f, 1.6666667e-1f, 0.5f, 1.0f, 1.0f})
    value = multiply_add(value, rest, repeat(factor));
  const Ints exponent = (__builtin_convertvector(power, Ints) + 127) << 23;
  return is_zero ? Floats{} : value * Floats(exponent);
}

}  // namespace akunu
