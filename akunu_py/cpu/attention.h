// Softmax, and attention of queries to keys and values.

#pragma once

#include <cmath>
#include <limits>

#include "vectors.h"

namespace akunu {

// Keys that are read before the next row of queries looks at them; they fit L1 or L2.
constexpr int BLOCK_KEYS = 128;

// The products of a query with eight keys.
inline Floats eight_scores(const float* query, const float* const (&at)[LANES], int size) {
  Floats products[LANES] = {};
  for (int d = 0; d < size; d += LANES) {
    const Floats values = load(query + d);
    for (int s = 0; s < LANES; s++)
      products[s] = multiply_add(load(at[s] + d), values, products[s]);
  }
  const Quad low = sums(products[0], products[1], products[2], products[3]);
  const Quad high = sums(products[4], products[5], products[6], products[7]);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

// scores[row, place] of the visible keys, in rows of `padded` numbers; those behind them are -inf.
inline void attention_scores(const Queries& q, const float* keys, ptrdiff_t stride, int size,
                             float scale, float* scores) {
  for (int block = 0; block < q.padded; block += BLOCK_KEYS) {
    for (int r = 0; r < q.count; r++) {
      float* row = scores + size_t(r) * q.padded;
      for (int s = block; s < std::min(block + BLOCK_KEYS, q.padded); s += LANES) {
        const int last = q.visible[r] - 1;
        const float* at[LANES];
        for (int i = 0; i < LANES; i++)
          at[i] = keys + q.key(r, std::clamp(s + i, 0, std::max(last, 0))) * stride;
        if (s <= last) store(row + s, eight_scores(q.rows[r], at, size) * scale);
        for (int hidden = std::max(last + 1, s); hidden < s + LANES; hidden++)
          row[hidden] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// Scores to probabilities, of which `sink`, the logit of no key, may have a part. Returns the
// logarithm of the sum of all e^score, which is the largest score where that is infinite.
inline float softmax(float* scores, int padded, const float* sink) {
  float most = sink ? *sink : -std::numeric_limits<float>::infinity();
  for (int s = 0; s < padded; s++) most = std::max(most, scores[s]);
  Floats total = {};
  for (int s = 0; s < padded; s += LANES) {
    const Floats weight = exponential(load(scores + s) - most);
    store(scores + s, weight);
    total += weight;
  }
  const float all = sum(total) + (sink ? std::exp(*sink - most) : 0.0f);
  for (int s = 0; s < padded; s += LANES) store(scores + s, load(scores + s) / all);
  return std::isinf(most) ? most : std::log(all) + most;
}

// SIZE numbers of the output of a row: values weighted by probabilities, from one place to another.
template <int SIZE>
inline void add_values(const Queries& q, int row, int from, int to, const float* weights,
                       const float* values, ptrdiff_t stride, float* output) {
  Floats sums[SIZE / LANES];
  for (int d = 0; d < SIZE / LANES; d++) sums[d] = load(output + d * LANES);
  for (int s = from; s < to; s++) {
    const float* value = values + q.key(row, s) * stride;
    for (int d = 0; d < SIZE / LANES; d++)
      sums[d] = multiply_add(repeat(weights[s]), load(value + d * LANES), sums[d]);
  }
  for (int d = 0; d < SIZE / LANES; d++) store(output + d * LANES, sums[d]);
}

inline void add_all_values(const Queries& q, int row, int from, int to, const float* weights,
                           const float* values, ptrdiff_t stride, int size, float* output) {
  constexpr int WIDE = 64, LESS = 32;
  int d = 0;
  for (; d + WIDE <= size; d += WIDE)
    add_values<WIDE>(q, row, from, to, weights, values + d, stride, output + d);
  for (; d + LESS <= size; d += LESS)
    add_values<LESS>(q, row, from, to, weights, values + d, stride, output + d);
  for (; d < size; d += LANES)
    add_values<LANES>(q, row, from, to, weights, values + d, stride, output + d);
}

inline void attention_outputs(const Queries& q, const float* values, ptrdiff_t stride, int size,
                              const float* scores, float* const* outputs) {
  for (int r = 0; r < q.count; r++) std::fill(outputs[r], outputs[r] + size, 0.0f);
  for (int block = 0; block < q.padded; block += BLOCK_KEYS)
    for (int r = 0; r < q.count; r++)
      add_all_values(q, r, block, std::min(block + BLOCK_KEYS, q.visible[r]),
                     scores + size_t(r) * q.padded, values, stride, size, outputs[r]);
}

}  // namespace akunu
