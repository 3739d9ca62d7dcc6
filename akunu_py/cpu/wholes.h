// Rows of x as whole numbers of 16 bits, for products with packed weights on AVX2 and AVX-512.
//
// These multiply twice as many 16-bit numbers as floats at once, and codes need not become floats
// first. x[k] = step * number, with a step for each block of 32 columns of a row: so the numbers of
// a row depend on that row alone, and it has the same bits alone and among others. The idea is that
// of llama.cpp's products, whose numbers have 8 bits; those of 16 are 130 times as exact.

#pragma once

#include "vectors.h"

#if defined(__AVX2__)

namespace akunu {

constexpr int BLOCK_COLUMNS = 32;

// Writes the numbers of a block of x and their sum; returns their step.
inline float to_wholes(const float* x, int16_t* numbers, int& total) {
  // Compared as integers, so that NaN is the largest and makes the whole row NaN.
  int32_t most = 0;
  for (int k = 0; k < BLOCK_COLUMNS; k++)
    most = std::max(most, std::bit_cast<int32_t>(x[k]) & INT32_MAX);
  const float largest = std::bit_cast<float>(most);
  const float factor = largest > 1e-30f ? INT16_MAX / largest : 0;
  for (int k = 0; k < BLOCK_COLUMNS; k += 2 * LANES) {
    const __m256i low = _mm256_cvtps_epi32(__m256(load(x + k) * factor));
    const __m256i high = _mm256_cvtps_epi32(__m256(load(x + k + LANES) * factor));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
    std::memcpy(numbers + k, &both, sizeof both);
  }
  total = 0;
  for (int k = 0; k < BLOCK_COLUMNS; k++) total += numbers[k];
  return largest / INT16_MAX;
}

}  // namespace akunu

#endif
