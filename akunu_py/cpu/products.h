// Products with matrices, packed or dense.

#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "attention.h"
#include "weights.h"
#include "wholes.h"

namespace akunu {

// Adds products of ROWS rows of x and COUNT rows of weights, a vector of each.
template <class Vector, int ROWS, int COUNT, class Weights>
inline void add_products(Vector (&sums)[ROWS][COUNT], const float* x, size_t stride,
                         Weights&& weights_at) {
  Vector weights[COUNT];
  for (int n = 0; n < COUNT; n++) weights[n] = weights_at(n);
  for (int m = 0; m < ROWS; m++) {
    const auto values = load<Vector>(x + m * stride);
    for (int n = 0; n < COUNT; n++) sums[m][n] = multiply_add(weights[n], values, sums[m][n]);
  }
}

template <class Vector, int ROWS, int COUNT>
inline void add_sums(const Vector (&products)[ROWS][COUNT], float* y, size_t stride) {
  for (int m = 0; m < ROWS; m++, y += stride) {
    Floats each[COUNT];
    for (int n = 0; n < COUNT; n++) each[n] = eight_lanes(products[m][n]);
    if constexpr (COUNT == 4) {
      store(y, load<Quad>(y) + sums(each[0], each[1], each[2], each[3]));
    } else {
      for (int n = 0; n < COUNT; n++) y[n] += sum(each[n]);
    }
  }
}

// y[0:ROWS, 0:COUNT] += x times the weights from `first` on, which are unpacked on the way.
template <class Form, int ROWS, int COUNT>
void packed_tile(const Packed& w, int first, const float* x, float* y) {
  using Vector = typename Form::Vector;
  const uint8_t* codes[COUNT];
  for (int n = 0; n < COUNT; n++) codes[n] = w.codes + (first + n) * w.row_bytes();
  const int groups = w.groups(), chunk = w.chunk_groups();
  const size_t first_line = size_t(first) * groups;
  for (int begin = 0; begin < groups; begin += chunk) {
    Vector sums[ROWS][COUNT];
    for (auto& row : sums)
      for (Vector& one : row) one = Vector{};
    for (int g = begin; g < std::min(begin + chunk, groups); g++) {
      // Rows are too short for the processor to see where the next ones begin.
      for (int n = 0; n < COUNT; n++)
        __builtin_prefetch(codes[n] + COUNT * w.row_bytes() + size_t(g) * w.group * w.bits / 8);
      typename Form::Line lines[COUNT];
      for (int n = 0; n < COUNT; n++) lines[n] = Form::line(w, first_line + n * groups + g);
      for (int k = g * w.group; k < (g + 1) * w.group; k += Form::PARTS * lanes_of<Vector>)
        for (int part = 0; part < Form::PARTS; part++)
          add_products(sums, x + k + part * lanes_of<Vector>, w.columns,
                       [&](int n) { return Form::weights(codes[n], k, part, lines[n]); });
    }
    add_sums(sums, y, w.rows);
  }
}

// Four rows of weights, with as many sums at once as stay in registers beside weights and x.
template <class Form, int ROWS>
void packed_tiles(const Packed& w, int first, const float* x, float* y) {
  constexpr int MOST_SUMS = REGISTERS == 32 ? 24 : 8;
  constexpr int COUNT = 4 * ROWS <= MOST_SUMS ? 4 : 2;
  for (int n = 0; n < 4; n += COUNT) packed_tile<Form, ROWS, COUNT>(w, first + n, x, y + n);
}

// As many weights as half of a small L2 cache holds, and rows of chunks of x in a large one.
constexpr int BLOCK_NUMBERS = 1 << 15;
constexpr int X_ROWS = 192;
// Rows of x whose sums with TILE_COUNT rows of weights stay in registers.
constexpr int TILE_ROWS = REGISTERS == 32 ? 6 : 3;
// With more rows of x it pays to unpack weights into a block first.
constexpr int MOST_DIRECT = 16;

template <class Vector, int ROWS, int COUNT>
void dense_tile(const float* block, int columns, const float* x, float* y, size_t y_stride) {
  Vector sums[ROWS][COUNT];
  for (auto& row : sums)
    for (Vector& one : row) one = Vector{};
  for (int k = 0; k < columns; k += lanes_of<Vector>)
    add_products(sums, x + k, columns,
                 [&](int n) { return load<Vector>(block + n * columns + k); });
  add_sums(sums, y, y_stride);
}

// y[0:ROWS, 0:count] += x times a block of `count` rows of weights.
template <class Vector, int ROWS>
void dense_rows(const float* block, int count, int columns, const float* x, float* y,
                size_t y_stride) {
  int n = 0;
  for (; n + TILE_COUNT <= count; n += TILE_COUNT)
    dense_tile<Vector, ROWS, TILE_COUNT>(block + size_t(n) * columns, columns, x, y + n, y_stride);
  for (; n < count; n++)
    dense_tile<Vector, ROWS, 1>(block + size_t(n) * columns, columns, x, y + n, y_stride);
}

// Unpacks weights of a row, those of the groups from `begin` to `end`.
template <class Form>
void unpack(const Packed& w, int row, int begin, int end, float* to) {
  constexpr int lanes = lanes_of<typename Form::Vector>;
  const uint8_t* codes = w.codes + row * w.row_bytes();
  for (int g = begin; g < end; g++) {
    const auto line = Form::line(w, size_t(row) * w.groups() + g);
    for (int k = g * w.group; k < (g + 1) * w.group; k += Form::PARTS * lanes)
      for (int part = 0; part < Form::PARTS; part++, to += lanes)
        store(to, Form::weights(codes, k, part, line));
  }
}

// The functions for 1, 2, ... rows of x.
template <class Form, int... LESS>
constexpr auto packed_by_rows(std::integer_sequence<int, LESS...>) {
  return std::array{packed_tiles<Form, LESS + 1>...};
}

template <class Vector, int... LESS>
constexpr auto dense_by_rows(std::integer_sequence<int, LESS...>) {
  return std::array{dense_rows<Vector, LESS + 1>...};
}

template <class Form>
void direct_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<typename Form::Vector> space;
  constexpr int MOST = REGISTERS == 32 ? 6 : 4;
  constexpr auto by_rows = packed_by_rows<Form>(std::make_integer_sequence<int, MOST>());
  const size_t size = size_t(num_rows) * w.columns;
  float* ordered = numbers_in(space, size);
  Form::in_order(x, size, ordered);
  const auto x_at = [&](int m) { return ordered + size_t(m) * w.columns; };
  const auto y_at = [&](int m, int n) { return y + size_t(m) * w.rows + n; };
  // The first rows of x bring weights into the caches, where the others find them.
  int n = begin;
  for (; n + 4 <= end; n += 4)
    for (int m = 0; m < num_rows; m += MOST)
      by_rows[std::min(num_rows - m, MOST) - 1](w, n, x_at(m), y_at(m, n));
  for (; n < end; n++)
    for (int m = 0; m < num_rows; m++) packed_tile<Form, 1, 1>(w, n, x_at(m), y_at(m, n));
}

template <class Form>
void block_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  using Vector = typename Form::Vector;
  static thread_local std::vector<Vector> space, x_space;
  constexpr auto by_rows = dense_by_rows<Vector>(std::make_integer_sequence<int, TILE_ROWS>());
  for (int group = 0; group < w.groups(); group += w.chunk_groups()) {
    const int past = std::min(group + w.chunk_groups(), w.groups());
    const int columns = (past - group) * w.group;
    float* ordered = numbers_in(x_space, size_t(num_rows) * columns);
    for (int m = 0; m < num_rows; m++)
      Form::in_order(x + size_t(m) * w.columns + group * w.group, columns,
                     ordered + size_t(m) * columns);
    const int step = BLOCK_NUMBERS / columns / TILE_COUNT * TILE_COUNT;
    float* block = numbers_in(space, size_t(step) * columns);
    for (int first = begin; first < end; first += step) {
      const int count = std::min(step, end - first);
      for (int n = 0; n < count; n++)
        unpack<Form>(w, first + n, group, past, block + size_t(n) * columns);
      for (int m = 0; m < num_rows; m += TILE_ROWS)
        by_rows[std::min(num_rows - m, TILE_ROWS) - 1](block, count, columns,
                                                       ordered + size_t(m) * columns,
                                                       y + size_t(m) * w.rows + first, w.rows);
    }
  }
}

template <class Form>
void product_of(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  for (int m = 0; m < num_rows; m++)
    std::fill(y + size_t(m) * w.rows + begin, y + size_t(m) * w.rows + end, 0.0f);
  if (num_rows <= MOST_DIRECT) return direct_product<Form>(w, begin, end, x, num_rows, y);
  constexpr int step = X_ROWS / TILE_ROWS * TILE_ROWS;
  for (int m = 0; m < num_rows; m += step)
    block_product<Form>(w, begin, end, x + size_t(m) * w.columns, std::min(step, num_rows - m),
                        y + size_t(m) * w.rows);
}

// y[:, begin:end] of y = x times the transposed weights; x has `num_rows` rows without gaps.
inline void product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  switch (w.form()) {
    case E2M1: return product_of<SmallFloats>(w, begin, end, x, num_rows, y);
    case 1: return product_of<Few<1>>(w, begin, end, x, num_rows, y);
    case 2: return product_of<Few<2>>(w, begin, end, x, num_rows, y);
    case 3: return product_of<Few<3>>(w, begin, end, x, num_rows, y);
    case 4: return product_of<Four>(w, begin, end, x, num_rows, y);
    case 5: return product_of<Few<5>>(w, begin, end, x, num_rows, y);
    case 6: return product_of<Few<6>>(w, begin, end, x, num_rows, y);
    case 8: return product_of<Eight>(w, begin, end, x, num_rows, y);
    case 32: return product_of<Dense>(w, begin, end, x, num_rows, y);
  }
}

// Unpacks columns of weights, from `begin` to `end`, in their order.
template <int BITS>
inline void unpack_columns(const Packed& w, int row, int begin, int end, float* to) {
  const uint8_t* codes = w.codes + row * w.row_bytes();
  for (int k = begin; k < end; k += LANES, to += LANES) {
    const auto line = Codes<BITS>::line(w, size_t(row) * w.groups() + k / w.group);
    store(to, Codes<BITS>::weights(codes, k, 0, line));
  }
}

// The same for weights of any packed form.
inline void unpack_part(const Packed& w, int row, int begin, int end, float* to) {
  switch (w.form()) {
    case E2M1: return unpack_columns<E2M1>(w, row, begin, end, to);
    case 1: return unpack_columns<1>(w, row, begin, end, to);
    case 2: return unpack_columns<2>(w, row, begin, end, to);
    case 3: return unpack_columns<3>(w, row, begin, end, to);
    case 4: return unpack_columns<4>(w, row, begin, end, to);
    case 5: return unpack_columns<5>(w, row, begin, end, to);
    case 6: return unpack_columns<6>(w, row, begin, end, to);
    case 8: return unpack_columns<8>(w, row, begin, end, to);
  }
}

// y[:, begin:end] of y = x times the weights: sums of their rows, for which x has the factors.
inline void weighted_sums(const Packed& w, int begin, int end, const float* x, int num_rows,
                          float* y) {
  static thread_local std::vector<Floats> space;
  const int size = end - begin;
  float* block = numbers_in(space, size_t(BLOCK_KEYS) * size);
  for (int m = 0; m < num_rows; m++) std::fill_n(y + size_t(m) * w.columns + begin, size, 0.0f);
  for (int first = 0; first < w.rows; first += BLOCK_KEYS) {
    const int count = std::min(BLOCK_KEYS, w.rows - first);
    for (int s = 0; s < count; s++) unpack_part(w, first + s, begin, end, block + size_t(s) * size);
    for (int m = 0; m < num_rows; m++) {
      const float* factors = x + size_t(m) * w.rows + first;
      add_all_values({}, 0, 0, count, factors, block, size, size,
                     y + size_t(m) * w.columns + begin);
    }
  }
}

}  // namespace akunu
