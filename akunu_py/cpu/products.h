// Products with matrices, packed or dense.

#pragma once

#include "attention.h"
#include "wholes.h"

namespace akunu {

// As many weights as half of a small L2 cache holds, and rows of chunks of x in a large one.
constexpr int BLOCK_NUMBERS = 1 << 15;
constexpr int X_ROWS = 192;
// With more rows of x it pays to unpack weights into a block first.
constexpr int MOST_DIRECT = 16;
// Rows of x, and of weights, whose sums stay in registers; to unpack weights takes some, too.
template <class Form>
constexpr int TILE_ROWS = REGISTERS == 32               ? 6
                          : std::is_same_v<Form, Dense> ? 3
                                                        : 4;
constexpr int MOST_SUMS = REGISTERS == 32 ? 24 : 12;

// y[0:ROWS, 0:COUNT] += x times the weights from `first` on, which are unpacked on the way. Vectors
// of x are as `in_tile_order` has them; rows of y are `stride` numbers apart.
template <class Form, int ROWS, int COUNT>
[[gnu::noinline]] void tile(const Packed& w, int first, const float* x, float* y, size_t stride) {
  using Vector = typename Form::Vector;
  const size_t row_bytes = w.row_bytes();
  const int groups = w.groups, chunk = w.chunk_groups, group = w.group;
  const size_t group_bytes = size_t(group) * w.bits / 8;
  const uint8_t* codes = w.codes + first * row_bytes;
  const size_t first_line = size_t(first) * groups;
  for (int begin = 0; begin < groups; begin += chunk) {
    Vector sums[ROWS][COUNT];
    for (auto& row : sums)
      for (Vector& one : row) one = Vector{};
    for (int g = begin; g < std::min(begin + chunk, groups); g++) {
      // Rows are too short for the processor to see where the next ones begin.
      for (int n = 0; n < COUNT; n++)
        __builtin_prefetch(codes + (n + COUNT) * row_bytes + g * group_bytes);
      typename Form::Line lines[COUNT];
      for (int n = 0; n < COUNT; n++) lines[n] = Form::line(w, first_line + n * groups + g);
      for (int k = g * group; k < (g + 1) * group; k += lanes_of<Vector>) {
        Vector weights[COUNT];
        for (int n = 0; n < COUNT; n++)
          weights[n] = Form::weights(codes + n * row_bytes, k, lines[n]);
        for (int m = 0; m < ROWS; m++) {
          const auto values = load<Vector>(x + k * ROWS + m * lanes_of<Vector>);
          for (int n = 0; n < COUNT; n++) sums[m][n] = multiply_add(weights[n], values, sums[m][n]);
        }
      }
    }
    float* to = y;
    for (int m = 0; m < ROWS; m++, to += stride) add_sums(sums[m], to);
  }
}

// Adds products of x, whose vectors are in the order of tiles, to y, whose rows are `stride`
// numbers apart.
template <class Form>
void add_products(const Packed& w, int begin, int end, const float* x, int num_rows, float* y,
                  size_t stride) {
  in_tiles<TILE_ROWS<Form>, MOST_SUMS>(
      begin, end, num_rows, [&]<int ROWS, int COUNT>(int m, int n) {
        tile<Form, ROWS, COUNT>(w, n, x + size_t(m) * w.columns, y + m * stride + n, stride);
      });
}

// Copies rows of x to where a cache line begins: the first vectors of all rows of a tile, then the
// second ones. One pointer serves all of its rows.
template <class Form>
void in_tile_order(const float* x, size_t stride, int num_rows, int columns, float* to) {
  using Vector = typename Form::Vector;
  for (int m = 0, rows; (rows = tile_rows<TILE_ROWS<Form>>(num_rows - m)); m += rows)
    for (int first = 0; first < columns; first += lanes_of<Vector>)
      for (int row = 0; row < rows; row++, to += lanes_of<Vector>)
        store(to, load<Vector>(x + (m + row) * stride + first));
}

// Unpacks columns of a row of weights, from `begin` to `end`.
template <class Form>
void unpack(const Packed& w, int row, int begin, int end, float* to) {
  constexpr int lanes = lanes_of<typename Form::Vector>;
  const uint8_t* codes = w.codes + row * w.row_bytes();
  int group = begin / w.group;
  for (int k = begin; k < end; group++) {
    const auto line = Form::line(w, size_t(row) * w.groups + group);
    __builtin_prefetch(codes + TILE_COUNT * w.row_bytes() + size_t(k) * w.bits / 8);
    for (const int stop = std::min(end, (group + 1) * w.group); k < stop; k += lanes, to += lanes)
      store(to, Form::weights(codes, k, line));
  }
}

template <class Form>
void block_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<Dense::Vector> space, x_space;
  const int chunk = w.chunk_groups * w.group;
  for (int column = 0; column < w.columns; column += chunk) {
    const int columns = std::min(chunk, w.columns - column);
    float* ordered = numbers_in(x_space, size_t(num_rows) * columns);
    in_tile_order<Dense>(x + column, w.columns, num_rows, columns, ordered);
    const int step = BLOCK_NUMBERS / columns / TILE_COUNT * TILE_COUNT;
    float* block = numbers_in(space, size_t(step) * columns);
    for (int first = begin; first < end; first += step) {
      const int count = std::min(step, end - first);
      for (int n = 0; n < count; n++)
        unpack<Form>(w, first + n, column, column + columns, block + size_t(n) * columns);
      const Packed unpacked{
          reinterpret_cast<const uint8_t*>(block), nullptr, nullptr, count, columns, columns, 32};
      for (int m = 0, rows; (rows = tile_rows<TILE_ROWS<Dense>>(num_rows - m)); m += rows)
        add_products<Dense>(unpacked, 0, count, ordered + size_t(m) * columns, rows,
                            y + size_t(m) * w.rows + first, w.rows);
    }
  }
}

template <class Form>
void float_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<Dense::Vector> space;
  if (num_rows <= MOST_DIRECT) {
    float* ordered = numbers_in(space, size_t(num_rows) * w.columns);
    in_tile_order<Form>(x, w.columns, num_rows, w.columns, ordered);
    return add_products<Form>(w, begin, end, ordered, num_rows, y, w.rows);
  }
  for (int m = 0; m < num_rows; m += X_ROWS)
    block_product<Form>(w, begin, end, x + size_t(m) * w.columns, std::min(X_ROWS, num_rows - m),
                        y + size_t(m) * w.rows);
}

// wholes.h has others for AVX2 and AVX-512.
template <int BITS>
void product_of(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  float_product<FormOf<BITS>>(w, begin, end, x, num_rows, y);
}

// Calls work with the form of packed weights as a constant.
template <class Work>
void with_form(const Packed& w, const Work& work) {
  with_constant<E2M1, 1, 2, 3, 4, 5, 6, 8>(w.form(), work);
}

// y[:, begin:end] of y = x times the transposed weights; x has `num_rows` rows without gaps.
inline void product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  for (int m = 0; m < num_rows; m++) std::fill_n(y + size_t(m) * w.rows + begin, end - begin, 0.0f);
  if (w.form() == 32) return float_product<Dense>(w, begin, end, x, num_rows, y);
  with_form(w, [&](auto bits) { product_of<bits>(w, begin, end, x, num_rows, y); });
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
    with_form(w, [&](auto bits) {
      for (int s = 0; s < count; s++)
        unpack<Codes<bits>>(w, first + s, begin, end, block + size_t(s) * size);
    });
    for (int m = 0; m < num_rows; m++) {
      const float* factors = x + size_t(m) * w.rows + first;
      add_all_values({}, 0, 0, count, factors, block, size, size,
                     y + size_t(m) * w.columns + begin);
    }
  }
}

}  // namespace akunu
