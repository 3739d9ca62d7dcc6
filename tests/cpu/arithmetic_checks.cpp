// Checks the arithmetic of the kernels on the processor that runs this, without
// MLX: against sums of doubles, and each row among others against the row
// alone, to the bit. Prints what is wrong.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "arithmetic.h"

extern "C" const akunu::Arithmetic *akunu_arithmetic();

namespace {

using akunu::Packed;
using Numbers = std::vector<float>;

constexpr int DENSE = 32;
constexpr double TOLERANCE = 3e-6;

const akunu::Arithmetic &arithmetic = *akunu_arithmetic();
std::mt19937 random_bits(1);
int num_checks = 0, num_wrong = 0;

void expect(bool right, const char *what, int a, int b, int c, int d) {
  num_checks++;
  if (!right && num_wrong++ < 20)
    std::printf("%s: %d, %d, %d, %d\n", what, a, b, c, d);
}

Numbers normal(size_t count, float size = 1) {
  std::normal_distribution<float> distribution(0, size);
  Numbers made(count);
  for (float &number : made)
    number = distribution(random_bits);
  return made;
}

bool same_bits(const float *a, const float *b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// Written so that a NaN is wrong.
bool close(double found, double expected, double size) {
  return std::fabs(found - expected) <= TOLERANCE * size;
}

// What a code stands for, and the sizes of the terms that it is the sum of.
struct Weight {
  double value, size;
};

// A packed matrix with its weights.
struct Matrix {
  Packed packed;
  std::vector<uint8_t> codes;
  Numbers scales, biases;
  std::vector<Weight> weights;

  Matrix(int form, int rows, int columns, int group)
      : packed{nullptr,
               nullptr,
               nullptr,
               rows,
               columns,
               group,
               form == akunu::E2M1 ? 4 : form},
        codes(rows * packed.row_bytes() + 64),
        scales(normal(size_t(rows) * packed.groups, 0.02f)),
        biases(normal(scales.size(), 0.1f)) {
    for (auto &byte : codes)
      byte = uint8_t(random_bits());
    if (form == DENSE)
      std::memcpy(codes.data(), normal(size_t(rows) * columns).data(),
                  rows * packed.row_bytes());
    packed.codes = codes.data();
    packed.scales = scales.data();
    if (form != akunu::E2M1 && form != DENSE)
      packed.biases = biases.data();
    for (int r = 0; r < rows; r++)
      for (int k = 0; k < columns; k++)
        weights.push_back(weight(form, r, k));
  }

  Weight weight(int form, int row, int column) const {
    static constexpr double E2M1_VALUES[] = {
        0, 0.5, 1, 1.5, 2, 3, 4, 6, -0., -0.5, -1, -1.5, -2, -3, -4, -6};
    const uint8_t *of_row = codes.data() + row * packed.row_bytes();
    if (form == DENSE) {
      float value;
      std::memcpy(&value, of_row + column * sizeof value, sizeof value);
      return {value, std::fabs(value)};
    }
    unsigned code = 0;
    for (int i = 0, bit = column * packed.bits; i < packed.bits; i++, bit++)
      code |= (of_row[bit / 8] >> bit % 8 & 1u) << i;
    const size_t line = size_t(row) * packed.groups + column / packed.group;
    const double scaled =
        scales[line] * (form == akunu::E2M1 ? E2M1_VALUES[code] : code);
    const double bias = packed.biases ? biases[line] : 0;
    return {scaled + bias, std::fabs(scaled) + std::fabs(bias)};
  }
};

// One number of a product, whose weights and what they are multiplied with are
// given by place.
void expect_sum(float found, int count,
                const std::function<const Weight &(int)> &weight,
                const std::function<double(int)> &x, const char *what, int a,
                int b, int c, int d) {
  double sum = 0, size = 0;
  for (int i = 0; i < count; i++) {
    sum += weight(i).value * x(i);
    size += weight(i).size * std::fabs(x(i));
  }
  expect(close(found, sum, size), what, a, b, c, d);
}

// What products with packed weights read of rows of x: on AVX2 and AVX-512
// whole numbers of 16 bits, with a step for each block of columns.
std::vector<double> as_read(const Numbers &x, [[maybe_unused]] int form) {
  std::vector<double> read(x.begin(), x.end());
#if defined(__AVX2__)
  constexpr size_t BLOCK = 32;
  for (size_t first = 0;
       form != DENSE && form != akunu::E2M1 && first < x.size();
       first += BLOCK) {
    float largest = 0;
    for (size_t k = first; k < first + BLOCK; k++)
      largest = std::max(largest, std::fabs(x[k]));
    for (size_t k = first; k < first + BLOCK; k++)
      read[k] =
          std::nearbyint(x[k] * (32767 / largest)) * double(largest / 32767);
  }
#endif
  return read;
}

void check_products(int form, int group, int columns, int rows) {
  const Matrix matrix(form, rows, columns, group);
  const Packed &w = matrix.packed;
  for (int count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33, 50}) {
    const Numbers x = normal(size_t(count) * columns);
    const std::vector<double> read = as_read(x, form);
    Numbers y(size_t(count) * rows, NAN), parts = y, alone(rows);
    arithmetic.product(w, 0, rows, x.data(), count, y.data());
    for (int m = 0; m < count; m++)
      for (int r = 0; r < rows; r++)
        expect_sum(
            y[m * rows + r], columns,
            [&](int k) -> const Weight & {
              return matrix.weights[r * columns + k];
            },
            [&](int k) { return read[m * columns + k]; },
            "a product is wrong: form, group, columns, rows of x", form, group,
            columns, count);
    for (int m = 0; m < count; m++) {
      arithmetic.product(w, 0, rows, x.data() + m * columns, 1, alone.data());
      expect(
          same_bits(alone.data(), &y[m * rows], rows),
          "a row differs from the row alone: form, group, columns, rows of x",
          form, group, columns, count);
    }
    const int cut = std::min(akunu::PRODUCT_ROWS, rows);
    arithmetic.product(w, 0, cut, x.data(), count, parts.data());
    if (cut < rows)
      arithmetic.product(w, cut, rows, x.data(), count, parts.data());
    expect(same_bits(parts.data(), y.data(), y.size()),
           "two threads differ from one: form, group, columns, rows of x", form,
           group, columns, count);
  }
  if (form == DENSE)
    return;
  Numbers sums(columns);
  const Numbers factors = normal(rows);
  arithmetic.weighted_sums(w, 0, columns, factors.data(), 1, sums.data());
  for (int k = 0; k < columns; k++)
    expect_sum(
        sums[k], rows,
        [&](int r) -> const Weight & {
          return matrix.weights[r * columns + k];
        },
        [&](int r) { return factors[r]; },
        "a sum of rows is wrong: form, group, columns, rows", form, group,
        columns, rows);
}

void check_rows(int size) {
  const Numbers x = normal(size, 3), weight = normal(size);
  Numbers y(size);
  double squares = 0, most = -INFINITY, total = 0;
  for (float number : x) {
    squares += double(number) * number;
    most = std::max(most, double(number));
  }
  for (float number : x)
    total += std::exp(number - most);
  const auto expect_row = [&](const char *what,
                              const std::function<double(int)> &number) {
    for (int i = 0; i < size; i++)
      expect(close(y[i], number(i), 1 + std::fabs(number(i))), what, size, i, 0,
             0);
  };
  const double factor = 1 / std::sqrt(squares / size + 1e-5);
  if (size % akunu::LANES == 0) {
    arithmetic.rms_norm(x.data(), weight.data(), 1e-5f, size, y.data());
    expect_row("a norm is wrong: size, place",
               [&](int i) { return x[i] * factor * weight[i]; });
  }
  arithmetic.sigmoid(x.data(), size, y.data());
  expect_row("a sigmoid is wrong: size, place",
             [&](int i) { return 1 / (1 + std::exp(-double(x[i]))); });
  const double logarithm = most + std::log(total);
  y = x;
  y.resize(akunu::up_to_lanes(size), -std::numeric_limits<float>::infinity());
  expect(close(arithmetic.softmax(y.data(), int(y.size()), nullptr), logarithm,
               1 + std::fabs(logarithm)),
         "a sum of exponentials is wrong: size", size, 0, 0, 0);
  expect_row("a probability is wrong: size, place",
             [&](int i) { return std::exp(x[i] - most) / total; });
}

// Attention of one query, alone and beside a query that sees fewer keys.
void check_attention(int visible, int size) {
  const int padded = akunu::up_to_lanes(visible);
  const Numbers query = normal(size), other = normal(size),
                keys = normal(size_t(visible) * size),
                values = normal(size_t(visible) * size);
  const float *const queries[] = {query.data(), other.data()};
  const int seen[] = {visible, (visible + 1) / 2};
  const float scale = 0.25f;
  Numbers found[2];
  for (int count : {1, 2}) {
    Numbers scores(size_t(count) * padded), outputs(size_t(count) * size);
    float *const places[] = {outputs.data(),
                             outputs.data() + (count - 1) * size};
    const akunu::Queries q{queries, seen, count, padded, nullptr};
    arithmetic.attention_scores(q, keys.data(), size, size, scale,
                                scores.data());
    for (int r = 0; r < count; r++)
      arithmetic.softmax(scores.data() + r * padded, padded, nullptr);
    arithmetic.attention_outputs(q, values.data(), size, size, scores.data(),
                                 places);
    found[count - 1] = outputs;
  }
  expect(same_bits(found[0].data(), found[1].data(), size),
         "attention differs beside another query: keys, size", visible, size, 0,
         0);
  std::vector<double> weights(visible);
  double total = 0;
  for (int s = 0; s < visible; s++) {
    double score = 0;
    for (int d = 0; d < size; d++)
      score += double(query[d]) * keys[s * size + d];
    total += weights[s] = std::exp(score * scale);
  }
  for (int d = 0; d < size; d++) {
    double output = 0;
    for (int s = 0; s < visible; s++)
      output += weights[s] / total * values[s * size + d];
    expect(close(found[0][d], output, 4),
           "attention is wrong: keys, size, place", visible, size, d, 0);
  }
}

} // namespace

int main() {
  for (int form : {akunu::E2M1, 1, 2, 3, 4, 5, 6, 8})
    for (int group : {16, 32, 64, 128}) {
      // MLX packs E2M1 in groups of 16 and 32, other codes in groups of 32 and
      // more.
      if (form == akunu::E2M1 ? group > 32 : group < 32)
        continue;
      const int unit = std::max(group, 32);
      for (int columns : {unit, 3 * unit, 1152})
        for (int rows : {1, 3, 4, 7, 16, 37})
          check_products(form, group, columns, rows);
    }
  for (int columns : {64, 208, 1152})
    for (int rows : {1, 3, 4, 7, 33})
      check_products(DENSE, akunu::DENSE_GROUP, columns, rows);
  for (int size = 1; size < 200; size++)
    check_rows(size);
  for (int visible : {1, 7, 8, 9, 130, 300})
    for (int size : {8, 64, 104})
      check_attention(visible, size);
  std::printf("%d checks, %d wrong\n", num_checks, num_wrong);
  return num_wrong > 0;
}
