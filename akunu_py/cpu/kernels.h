// Kernels of one thread over float32, eight numbers at a time.
//
// The vectors are those of GCC and Clang, so one source serves AVX2, AVX-512 and NEON. Each number
// of a result is a sum in an order of its own, whatever else is computed beside it: a row has the
// same bits alone and among others, in any number of threads.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace akunu {

constexpr int LANES = 8;
constexpr int up_to_lanes(int count) { return (count + LANES - 1) / LANES * LANES; }
typedef float Floats __attribute__((vector_size(4 * LANES)));
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
  float32x4_t x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  std::memcpy(z, &c, sizeof c);
  for (int half = 0; half < 2; half++) z[half] = vfmaq_f32(z[half], x[half], y[half]);
  std::memcpy(&c, z, sizeof c);
  return c;
#else
  return a * b + c;
#endif
}

inline Floats repeat(float value) { return Floats{} + value; }

inline float sum(Floats v) {
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
  return v[0] + v[1];
}

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

// ---- Products with packed weights

// A matrix as MLX packs it: `rows` rows of `columns` codes of `bits` bits, the first in the lowest
// bits, and for each `group` of a row a scale and a bias: weight = scale * code + bias. Without
// biases the codes are floats of 4 bits, E2M1 (Open Compute Project, Microscaling Formats, 5.3.3).
struct Packed {
  const uint8_t* codes;
  const float* scales;
  const float* biases;
  int rows, columns, group, bits;

  size_t row_bytes() const { return size_t(columns) * bits / 8; }
  int groups() const { return columns / group; }
};

inline uint32_t word_at(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Eight bytes as numbers; what compilers make of a conversion is ten times slower.
inline Ints widen(const uint8_t* bytes) {
#if defined(__AVX2__)
  return Ints(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__aarch64__)
  const uint16x8_t wide = vmovl_u8(vld1_u8(bytes));
  const uint32x4_t halves[2] = {vmovl_u16(vget_low_u16(wide)), vmovl_u16(vget_high_u16(wide))};
  Ints all;
  std::memcpy(&all, halves, sizeof all);
  return all;
#else
  uint8_t eight __attribute__((vector_size(LANES)));
  std::memcpy(&eight, bytes, sizeof eight);
  return __builtin_convertvector(eight, Ints);
#endif
}

// Stands for the number of bits where codes are floats.
constexpr int E2M1 = 0;

// Eight codes, which are BITS bytes.
template <int BITS>
inline Floats codes_at(const uint8_t* packed) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  Words codes;
  if constexpr (BITS == E2M1) {
    const Words all = (Words{} + word_at(packed)) >> (Words{0, 1, 2, 3, 4, 5, 6, 7} * 4);
    // 0, 0.5, 1, 1.5, and then with the exponent and the digit of a float32: 2, 3, 4, 6.
    const Ints size = Ints(all & 7);
    const Floats small = __builtin_convertvector(size, Floats) * 0.5f;
    const Floats number = size < 4 ? small : Floats((size + 252) << 22);
    return Floats(Words(number) | (all & 8) << 28);
  } else if constexpr (BITS == 8) {
    return __builtin_convertvector(widen(packed), Floats);
  } else if constexpr (BITS <= 4) {
    uint32_t all = 0;
    std::memcpy(&all, packed, BITS);
    codes = (Words{} + all) >> (Words{0, 1, 2, 3, 4, 5, 6, 7} * BITS);
  } else {
    // The last four codes end with the last byte.
    const uint32_t low = word_at(packed), high = word_at(packed + BITS - 4) >> (32 - 4 * BITS);
    codes =
        Words{low, low, low, low, high, high, high, high} >> (Words{0, 1, 2, 3, 0, 1, 2, 3} * BITS);
  }
  // Signed, since only AVX-512 converts unsigned numbers.
  return __builtin_convertvector(Ints(codes & MASK), Floats);
}

// How codes of BITS bits become weights: `Line` is what weights of a group have in common, and
// `weights` returns a vector of one row's, number `part` of the PARTS from `column` on.
template <int BITS>
struct Codes {
  using Vector = Floats;
  static constexpr int PARTS = 1;
  struct Line {
    Floats scale, bias;
  };

  static Line line(float scale, const float* bias) {
    return {repeat(scale), BITS == E2M1 ? Floats{} : repeat(*bias)};
  }

  static Floats weights(const uint8_t* codes, int column, int, const Line& line) {
    constexpr int WIDTH = BITS == E2M1 ? 4 : BITS;
    const Floats values = codes_at<BITS>(codes + size_t(column) * WIDTH / 8);
    if constexpr (BITS == E2M1) return values * line.scale;
    return multiply_add(values, line.scale, line.bias);
  }

  // Numbers of x in the order of the weights.
  static const float* in_order(const float* x, size_t) { return x; }
};

#if defined(__AVX512F__)

typedef float Wide __attribute__((vector_size(64)));

inline Wide multiply_add(Wide a, Wide b, Wide c) {
  return Wide(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
}

inline float sum(Wide v) {
  Floats halves[2];
  std::memcpy(halves, &v, sizeof v);
  return sum(halves[0] + halves[1]);
}

inline __m512i sixteen_bytes(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Codes of 8 bits, sixteen at once.
struct Bytes {
  using Vector = Wide;
  static constexpr int PARTS = 1;
  struct Line {
    Wide scale, bias;
  };

  static Line line(float scale, const float* bias) { return {Wide{} + scale, Wide{} + *bias}; }

  static Wide weights(const uint8_t* codes, int column, int, const Line& line) {
    return multiply_add(Wide(_mm512_cvtepi32_ps(sixteen_bytes(codes + column))), line.scale,
                        line.bias);
  }

  // A copy, since MLX's memory begins anywhere in a cache line.
  static const float* in_order(const float* x, size_t size) {
    static thread_local std::vector<Wide> space;
    float* ordered = numbers_in(space, size);
    std::copy_n(x, size, ordered);
    return ordered;
  }
};

// Codes of 4 bits, looked up in a table of the sixteen weights of a group. Of 32 columns those with
// even numbers come first, since their codes are the lower halves of sixteen bytes.
struct Nibbles {
  using Vector = Wide;
  static constexpr int PARTS = 2;
  using Line = Wide;

  static Wide line(float scale, const float* bias) {
    const Wide all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return multiply_add(all, Wide{} + scale, Wide{} + *bias);
  }

  static Wide weights(const uint8_t* codes, int column, int part, const Wide& table) {
    const __m512i bytes = sixteen_bytes(codes + column / 2);
    // Only the last four bits of an index count.
    const __m512i index = part ? _mm512_srli_epi32(bytes, 4) : bytes;
    return Wide(_mm512_permutexvar_ps(index, __m512(table)));
  }

  static const float* in_order(const float* x, size_t size) {
    static thread_local std::vector<Wide> space;
    float* ordered = numbers_in(space, size);
    for (size_t first = 0; first < size; first += 32)
      for (int i = 0; i < 16; i++) {
        ordered[first + i] = x[first + 2 * i];
        ordered[first + 16 + i] = x[first + 2 * i + 1];
      }
    return ordered;
  }
};

using Four = Nibbles;
using Eight = Bytes;

#else

using Four = Codes<4>;
using Eight = Codes<8>;

#endif

// Sums of ROWS rows of x and COUNT rows of weights, from `weights_at(row)`.
template <class Vector, int ROWS, int COUNT, class Weights>
inline void add_products(Vector (&sums)[ROWS][COUNT], const float* x, size_t stride, int column,
                         Weights&& weights_at) {
  Vector weights[COUNT];
  for (int n = 0; n < COUNT; n++) weights[n] = weights_at(n);
  for (int m = 0; m < ROWS; m++) {
    const auto values = load<Vector>(x + m * stride + column);
    for (int n = 0; n < COUNT; n++) sums[m][n] = multiply_add(weights[n], values, sums[m][n]);
  }
}

template <class Vector, int ROWS, int COUNT>
inline void store_sums(const Vector (&sums)[ROWS][COUNT], float* y, size_t stride) {
  for (int m = 0; m < ROWS; m++)
    for (int n = 0; n < COUNT; n++) y[m * stride + n] = sum(sums[m][n]);
}

// y[0:ROWS, 0:COUNT] = x times the weights from `first` on, which are unpacked on the way.
template <class Form, int ROWS, int COUNT>
void packed_tile(const Packed& w, int first, const float* x, float* y, size_t y_stride) {
  using Vector = typename Form::Vector;
  Vector sums[ROWS][COUNT];
  for (auto& row : sums)
    for (Vector& one : row) one = Vector{};
  const uint8_t* codes[COUNT];
  for (int n = 0; n < COUNT; n++) codes[n] = w.codes + (first + n) * w.row_bytes();
  const float* scales = w.scales + size_t(first) * w.groups();
  const float* biases = w.biases + size_t(first) * w.groups();
  for (int g = 0; g < w.groups(); g++) {
    // Rows are too short for the processor to see where the next ones begin.
    for (int n = 0; n < COUNT; n++)
      __builtin_prefetch(codes[n] + COUNT * w.row_bytes() + size_t(g) * w.group * w.bits / 8);
    typename Form::Line lines[COUNT];
    for (int n = 0; n < COUNT; n++) {
      const int at = n * w.groups() + g;
      lines[n] = Form::line(scales[at], biases + at);
    }
    for (int k = g * w.group; k < (g + 1) * w.group; k += Form::PARTS * lanes_of<Vector>)
      for (int part = 0; part < Form::PARTS; part++)
        add_products(sums, x, w.columns, k + part * lanes_of<Vector>,
                     [&](int n) { return Form::weights(codes[n], k, part, lines[n]); });
  }
  store_sums(sums, y, y_stride);
}

// y[0:ROWS, 0:COUNT] = x times dense weights, whose rows have `columns` numbers as those of x.
template <class Vector, int ROWS, int COUNT>
void dense_tile(const float* weights, int columns, const float* x, float* y, size_t y_stride) {
  Vector sums[ROWS][COUNT];
  for (auto& row : sums)
    for (Vector& one : row) one = Vector{};
  for (int k = 0; k < columns; k += lanes_of<Vector>)
    add_products(sums, x, columns, k,
                 [&](int n) { return load<Vector>(weights + n * columns + k); });
  store_sums(sums, y, y_stride);
}

template <class Form>
void unpack_row(const Packed& w, int row, float* to) {
  constexpr int lanes = lanes_of<typename Form::Vector>;
  const uint8_t* codes = w.codes + row * w.row_bytes();
  for (int g = 0; g < w.groups(); g++) {
    const size_t at = size_t(row) * w.groups() + g;
    const auto line = Form::line(w.scales[at], w.biases + at);
    for (int k = g * w.group; k < (g + 1) * w.group; k += Form::PARTS * lanes)
      for (int part = 0; part < Form::PARTS; part++)
        store(to + k + part * lanes, Form::weights(codes, k, part, line));
  }
}

// As many weights as half of a small L2 cache holds.
constexpr int BLOCK_NUMBERS = 1 << 15;
// Rows of x and of weights whose sums stay in registers.
constexpr int TILE_ROWS = REGISTERS == 32 ? 4 : 3;
constexpr int TILE_COUNT = 4;
// With more rows of x it pays to unpack weights into a block first.
constexpr int MOST_DIRECT = 16;

template <class Vector, int ROWS>
void dense_rows(const float* block, int count, int columns, const float* x, float* y,
                size_t y_stride) {
  int n = 0;
  for (; n + TILE_COUNT <= count; n += TILE_COUNT)
    dense_tile<Vector, ROWS, TILE_COUNT>(block + size_t(n) * columns, columns, x, y + n, y_stride);
  for (; n < count; n++)
    dense_tile<Vector, ROWS, 1>(block + size_t(n) * columns, columns, x, y + n, y_stride);
}

template <class Form>
void block_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  using Vector = typename Form::Vector;
  static thread_local std::vector<Vector> space;
  const int step = std::max(TILE_COUNT, BLOCK_NUMBERS / w.columns / TILE_COUNT * TILE_COUNT);
  float* block = numbers_in(space, size_t(step) * w.columns);
  for (int first = begin; first < end; first += step) {
    const int count = std::min(step, end - first);
    for (int n = 0; n < count; n++) unpack_row<Form>(w, first + n, block + size_t(n) * w.columns);
    int m = 0;
    for (; m + TILE_ROWS <= num_rows; m += TILE_ROWS)
      dense_rows<Vector, TILE_ROWS>(block, count, w.columns, x + size_t(m) * w.columns,
                                    y + size_t(m) * w.rows + first, w.rows);
    for (; m < num_rows; m++)
      dense_rows<Vector, 1>(block, count, w.columns, x + size_t(m) * w.columns,
                            y + size_t(m) * w.rows + first, w.rows);
  }
}

template <class Form, int ROWS>
void direct_product(const Packed& w, int begin, int end, const float* x, float* y) {
  // Sums that stay in registers beside weights and x; at least two rows of weights overlap.
  constexpr int MOST_SUMS = REGISTERS == 32 ? 24 : 8;
  constexpr int COUNT = 4 * ROWS <= MOST_SUMS ? 4 : 2;
  int n = begin;
  for (; n + COUNT <= end; n += COUNT) packed_tile<Form, ROWS, COUNT>(w, n, x, y + n, w.rows);
  for (; n < end; n++) packed_tile<Form, ROWS, 1>(w, n, x, y + n, w.rows);
}

template <class Form>
void packed_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  x = Form::in_order(x, size_t(num_rows) * w.columns);
  if (num_rows > MOST_DIRECT) return block_product<Form>(w, begin, end, x, num_rows, y);
  constexpr decltype(&direct_product<Form, 1>) BY_ROWS[] = {
      direct_product<Form, 1>, direct_product<Form, 2>, direct_product<Form, 3>,
      direct_product<Form, 4>, direct_product<Form, 5>, direct_product<Form, 6>,
      direct_product<Form, 7>, direct_product<Form, 8>,
  };
  constexpr int MOST = std::size(BY_ROWS);
  for (; num_rows > 0; num_rows -= MOST) {
    BY_ROWS[std::min(num_rows, MOST) - 1](w, begin, end, x, y);
    x += MOST * size_t(w.columns);
    y += MOST * size_t(w.rows);
  }
}

// y[:, begin:end] of y = x times the transposed weights; x has `num_rows` rows without gaps.
inline void product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  if (!w.biases) return packed_product<Codes<E2M1>>(w, begin, end, x, num_rows, y);
  switch (w.bits) {
    case 1: return packed_product<Codes<1>>(w, begin, end, x, num_rows, y);
    case 2: return packed_product<Codes<2>>(w, begin, end, x, num_rows, y);
    case 3: return packed_product<Codes<3>>(w, begin, end, x, num_rows, y);
    case 4: return packed_product<Four>(w, begin, end, x, num_rows, y);
    case 5: return packed_product<Codes<5>>(w, begin, end, x, num_rows, y);
    case 6: return packed_product<Codes<6>>(w, begin, end, x, num_rows, y);
    case 8: return packed_product<Eight>(w, begin, end, x, num_rows, y);
  }
}

// ---- Norms, sums of exponentials, rotations and sigmoids

inline void rms_norm(const float* x, const float* weight, float epsilon, int size, float* y) {
  Floats squares = {};
  int k = 0;
  for (; k + LANES <= size; k += LANES) squares = multiply_add(load(x + k), load(x + k), squares);
  float total = sum(squares);
  for (int rest = k; rest < size; rest++) total += x[rest] * x[rest];
  const float factor = 1 / std::sqrt(total / size + epsilon);
  for (k = 0; k + LANES <= size; k += LANES) store(y + k, load(x + k) * factor * load(weight + k));
  for (; k < size; k++) y[k] = x[k] * factor * weight[k];
}

// The logarithm of the sum of all e^x, which is the largest x where that is infinite.
inline float log_sum_exp(const float* x, size_t size) {
  constexpr float INFINITE = std::numeric_limits<float>::infinity();
  const size_t whole = size / LANES * LANES;
  float rest[LANES];
  std::fill(rest, rest + LANES, -INFINITE);
  std::copy(x + whole, x + size, rest);
  Floats most = load(rest), total = {};
  for (size_t k = 0; k < whole; k += LANES) most = load(x + k) > most ? load(x + k) : most;
  float largest = -INFINITE;
  for (int i = 0; i < LANES; i++) largest = std::max(largest, most[i]);
  if (std::isinf(largest)) return largest;
  for (size_t k = 0; k < whole; k += LANES) total += exponential(load(x + k) - largest);
  return std::log(sum(total + exponential(load(rest) - largest))) + largest;
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

// ---- Attention

// Keys that are read before the next row of queries looks at them; they fit L1 or L2.
constexpr int BLOCK_KEYS = 128;

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

// The products of a query with eight keys.
inline Floats eight_scores(const float* query, const float* const (&at)[LANES], int size) {
  Floats sums[LANES] = {};
  for (int d = 0; d < size; d += LANES) {
    const Floats values = load(query + d);
    for (int s = 0; s < LANES; s++) sums[s] = multiply_add(load(at[s] + d), values, sums[s]);
  }
  // Sums of eight vectors as one vector, pair by pair.
  for (int s = 0; s < 4; s++)
    sums[s] = __builtin_shufflevector(sums[2 * s], sums[2 * s + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
              __builtin_shufflevector(sums[2 * s], sums[2 * s + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  for (int s = 0; s < 2; s++)
    sums[s] = __builtin_shufflevector(sums[2 * s], sums[2 * s + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
              __builtin_shufflevector(sums[2 * s], sums[2 * s + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(sums[0], sums[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(sums[0], sums[1], 4, 5, 6, 7, 12, 13, 14, 15);
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

// Scores to probabilities, of which `sink`, the logit of no key, may have a part.
inline void softmax(float* scores, int padded, const float* sink) {
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

inline void attention_outputs(const Queries& q, const float* values, ptrdiff_t stride, int size,
                              const float* scores, float* const* outputs) {
  constexpr int WIDE = 64;
  for (int r = 0; r < q.count; r++) std::fill(outputs[r], outputs[r] + size, 0.0f);
  for (int block = 0; block < q.padded; block += BLOCK_KEYS) {
    for (int r = 0; r < q.count; r++) {
      const int end = std::min(block + BLOCK_KEYS, q.visible[r]);
      const float* row = scores + size_t(r) * q.padded;
      int d = 0;
      for (; d + WIDE <= size; d += WIDE)
        add_values<WIDE>(q, r, block, end, row, values + d, stride, outputs[r] + d);
      for (; d < size; d += LANES)
        add_values<LANES>(q, r, block, end, row, values + d, stride, outputs[r] + d);
    }
  }
}

}  // namespace akunu
