// What the two libraries of kernels have in common: the arithmetic, built for a kind of processor,
// and MLX's side, built for a version of MLX.
//
// The arithmetic knows nothing of MLX, and MLX's side uses no instructions that a processor may
// lack. So what depends on the kind of processor stands in neither this file nor its structs.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace akunu {

// Numbers that are computed together; rows that kernels may fill up are as long.
constexpr int LANES = 8;
constexpr int up_to_lanes(int count) { return (count + LANES - 1) / LANES * LANES; }

// Columns whose products are added up in vectors. The sums of such chunks are added as numbers, by
// all kernels; those for many rows of x keep a chunk of each in the caches.
constexpr int CHUNK_COLUMNS = 1024;

// Stands for the number of bits where codes are floats.
constexpr int E2M1 = 0;

// Columns of dense weights are a multiple of this.
constexpr int DENSE_GROUP = 16;

// Threads take a multiple of so many rows of weights of a product, and of so many columns of sums.
constexpr int PRODUCT_ROWS = 16;
constexpr int SUMMED_COLUMNS = 32;

// A matrix as MLX packs it: `rows` rows of `columns` codes of `bits` bits, the first in the lowest
// bits, and for each `group` of a row a scale and a bias: weight = scale * code + bias. Without
// biases the codes are floats of 4 bits, E2M1 (Open Compute Project, Microscaling Formats, 5.3.3).
struct Packed {
  const uint8_t* codes;
  const float* scales;
  const float* biases;
  int rows, columns, group, bits;
  int groups = columns / group, chunk_groups = std::max(1, CHUNK_COLUMNS / group);

  size_t row_bytes() const { return size_t(columns) * bits / 8; }
  int form() const { return bits == 4 && !biases ? E2M1 : bits; }
};

// Rows of queries that share keys and values. Row r sees `visible[r]` keys, `padded` at most: the
// first ones, or those that `lists[r]` names. So it has the bits of a row whose cache holds only
// these keys, wherever others lie between them.
struct Queries {
  const float* const* rows;
  const int* visible;
  int count, padded;
  const int* const* lists;

  ptrdiff_t key(int row, int place) const { return lists ? lists[row][place] : place; }
};

// The functions of one kind of processor; the headers that define them say what they do.
struct Arithmetic {
  void (*product)(const Packed& w, int begin, int end, const float* x, int num_rows, float* y);
  void (*weighted_sums)(const Packed& w, int begin, int end, const float* x, int num_rows,
                        float* y);
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int size, float* y);
  float (*softmax)(float* scores, int padded, const float* sink);
  void (*sigmoid)(const float* x, size_t size, float* y);
  void (*rotate)(const float* x, int size, const float* cosines, const float* sines, int half,
                 bool neighbours, float* y);
  void (*attention_scores)(const Queries& q, const float* keys, ptrdiff_t stride, int size,
                           float scale, float* scores);
  void (*attention_outputs)(const Queries& q, const float* values, ptrdiff_t stride, int size,
                            const float* scores, float* const* outputs);
};

}  // namespace akunu
