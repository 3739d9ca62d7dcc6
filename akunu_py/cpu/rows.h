// Norms, sigmoids and rotations of rows.

#pragma once

#include <cmath>
#include <cstring>

#include "vectors.h"

namespace akunu {

// The size is a multiple of LANES.
inline void rms_norm(const float* x, const float* weight, float epsilon, int size, float* y) {
  Floats squares = {};
  for (int k = 0; k < size; k += LANES) squares = multiply_add(load(x + k), load(x + k), squares);
  const float factor = 1 / std::sqrt(sum(squares) / size + epsilon);
  for (int k = 0; k < size; k += LANES) store(y + k, load(x + k) * factor * load(weight + k));
}

inline void sigmoid(const float* x, size_t size, float* y) {
  size_t k = 0;
  for (; k + LANES <= size; k += LANES) store(y + k, 1 / (1 + exponential(-load(x + k))));
  if (k == size) return;
  float rest[LANES] = {};
  std::memcpy(rest, x + k, (size - k) * sizeof(float));
  store(rest, 1 / (1 + exponential(-load(rest))));
  std::memcpy(y + k, rest, (size - k) * sizeof(float));
}

// Turns pairs of the first `2 * half` numbers by angles; those behind them stay (RoFormer, 3.2.2).
// Numbers of a pair are `half` apart, or neighbours if `neighbours`.
inline void rotate(const float* x, int size, const float* cosines, const float* sines, int half,
                   bool neighbours, float* y) {
  const int first = neighbours ? 2 : 1, apart = neighbours ? 1 : half;
  for (int i = 0; i < half; i++) {
    const float a = x[i * first], b = x[i * first + apart];
    y[i * first] = a * cosines[i] - b * sines[i];
    y[i * first + apart] = a * sines[i] + b * cosines[i];
  }
  std::memmove(y + 2 * half, x + 2 * half, (size - 2 * half) * sizeof(float));
}

}  // namespace akunu
