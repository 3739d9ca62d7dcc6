// Kernels of one thread over float32, eight numbers at a time.
//
// The vectors are those of GCC and Clang, so one source serves AVX2, AVX-512 and NEON. Each number
// of a result is a sum in an order of its own, whatever else is computed beside it: a row has the
// same bits alone and among others, in any number of threads.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
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

// The sums of four vectors, each in the order of `sum`.
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

// ---- Products with packed weights

// Columns whose products are added up in vectors. The sums of such chunks are added as numbers, by
// all kernels; those for many rows of x keep a chunk of each in the caches.
constexpr int CHUNK_COLUMNS = 1024;

// Stands for the number of bits where codes are floats.
constexpr int E2M1 = 0;

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
  int form() const { return bits == 4 && !biases ? E2M1 : bits; }
  int chunk_groups() const { return std::max(1, CHUNK_COLUMNS / group); }
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
    if constexpr (BITS == 3) {  // a word that is read where three bytes were copied waits for them
      all = packed[0] | packed[1] << 8 | packed[2] << 16;
    } else {
      std::memcpy(&all, packed, BITS);
    }
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

// A form says how codes become weights: `Line` is what weights of a group have in common, and
// `weights` returns a vector of one row's, number `part` of the PARTS from `column` on. `in_order`
// copies numbers of x in the order of the weights, to where a cache line begins.
template <int BITS>
struct Codes {
  using Vector = Floats;
  static constexpr int PARTS = 1;
  struct Line {
    Floats scale, bias;
  };

  static Line line(const Packed& w, size_t at) {
    return {repeat(w.scales[at]), BITS == E2M1 ? Floats{} : repeat(w.biases[at])};
  }

  static Floats weights(const uint8_t* codes, int column, int, const Line& line) {
    constexpr int WIDTH = BITS == E2M1 ? 4 : BITS;
    const Floats values = codes_at<BITS>(codes + size_t(column) * WIDTH / 8);
    if constexpr (BITS == E2M1) return values * line.scale;
    return multiply_add(values, line.scale, line.bias);
  }

  static void in_order(const float* x, size_t size, float* to) { std::copy_n(x, size, to); }
};

// Codes of 4 bits. Of twice COUNT columns those with even numbers come first, since their codes are
// the lower halves of COUNT bytes.
template <int COUNT>
inline void evens_first(const float* x, size_t size, float* to) {
  for (size_t first = 0; first < size; first += 2 * COUNT)
    for (int i = 0; i < COUNT; i++) {
      to[first + i] = x[first + 2 * i];
      to[first + COUNT + i] = x[first + 2 * i + 1];
    }
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)

typedef float Wide __attribute__((vector_size(64)));

inline Wide multiply_add(Wide a, Wide b, Wide c) {
  return Wide(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
}

inline Floats eight_lanes(Wide v) {
  Floats halves[2];
  std::memcpy(halves, &v, sizeof v);
  return halves[0] + halves[1];
}

inline __m512i sixteen_bytes(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// The weights that the codes from `first` on stand for.
template <int BITS>
inline Wide sixteen_weights(const Packed& w, size_t line, int first) {
  constexpr Wide E2M1_VALUES = {0,     0.5,   1,  1.5,   2,  3,  4,  6,
                                -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  if constexpr (BITS == E2M1) return E2M1_VALUES * w.scales[line];
  Wide codes;
  for (int i = 0; i < 16; i++) codes[i] = (first + i) & ((1 << BITS) - 1);
  return multiply_add(codes, Wide{} + w.scales[line], Wide{} + w.biases[line]);
}

// Sixteen codes of 1 to 6 bits. Those of up to 5 are looked up in a table of a group's weights, as
// long as one or two vectors; with fewer bits it repeats, so that bits of the next codes in an
// index do not matter.
template <int BITS>
struct Sixteens {
  using Vector = Wide;
  static constexpr int PARTS = 1;
  static constexpr int WIDTH = BITS == E2M1 ? 4 : BITS;
  struct Line {
    Wide low, high;
  };

  static Line line(const Packed& w, size_t at) {
    if constexpr (BITS == 6) return {Wide{} + w.scales[at], Wide{} + w.biases[at]};
    return {sixteen_weights<BITS>(w, at, 0), BITS == 5 ? sixteen_weights<BITS>(w, at, 16) : Wide{}};
  }

  static Wide weights(const uint8_t* codes, int column, int, const Line& line) {
    const __m512i index = indices(codes + size_t(column) * WIDTH / 8);
    if constexpr (BITS == 5)
      return Wide(_mm512_permutex2var_ps(__m512(line.low), index, __m512(line.high)));
    if constexpr (BITS == 6) {
      const __m512i code = _mm512_and_si512(index, _mm512_set1_epi32(63));
      return multiply_add(Wide(_mm512_cvtepi32_ps(code)), line.low, line.high);
    }
    return Wide(_mm512_permutexvar_ps(index, __m512(line.low)));
  }

  static void in_order(const float* x, size_t size, float* to) { std::copy_n(x, size, to); }

 private:
  // Numbers whose lowest bits are the codes: two bytes of each, moved to the right.
  static __m512i indices(const uint8_t* packed) {
    struct Bits {
      alignas(64) uint8_t bytes[64];
      alignas(64) int32_t shifts[16];
    };
    static constexpr Bits OF = [] {
      Bits bits{};
      for (int i = 0; i < 16; i++) {
        bits.shifts[i] = i * WIDTH % 8;
        for (int byte = 0; byte < 4; byte++)
          bits.bytes[4 * i + byte] = byte < 2 ? i * WIDTH / 8 + byte : 0x80;
      }
      bits.bytes[61] = std::min(2 * WIDTH - 1, int(bits.bytes[61]));
      return bits;
    }();
    const __m128i codes = _mm_maskz_loadu_epi8((1u << 2 * WIDTH) - 1, packed);
    const __m512i pairs =
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), _mm512_load_si512(OF.bytes));
    return _mm512_srlv_epi32(pairs, _mm512_load_si512(OF.shifts));
  }
};

// Codes of 8 bits, sixteen at once.
struct Bytes : Sixteens<6> {
  static Wide weights(const uint8_t* codes, int column, int, const Line& line) {
    return multiply_add(Wide(_mm512_cvtepi32_ps(sixteen_bytes(codes + column))), line.low,
                        line.high);
  }
};

struct Nibbles {
  using Vector = Wide;
  static constexpr int PARTS = 2;
  using Line = Wide;

  static Wide line(const Packed& w, size_t at) { return sixteen_weights<4>(w, at, 0); }

  static Wide weights(const uint8_t* codes, int column, int part, const Wide& table) {
    const __m512i bytes = sixteen_bytes(codes + column / 2);
    // Only the last four bits of an index count.
    const __m512i index = part ? _mm512_srli_epi32(bytes, 4) : bytes;
    return Wide(_mm512_permutexvar_ps(index, __m512(table)));
  }

  static void in_order(const float* x, size_t size, float* to) { evens_first<16>(x, size, to); }
};

template <int BITS>
using Few = Sixteens<BITS>;
using Eight = Bytes;
using Widest = Wide;

#else

struct Nibbles : Codes<4> {
  static constexpr int PARTS = 2;

  static Floats weights(const uint8_t* codes, int column, int part, const Line& line) {
    const Ints bytes = widen(codes + column / 2);
    const Ints values = part ? bytes >> 4 : bytes & 15;
    return multiply_add(__builtin_convertvector(values, Floats), line.scale, line.bias);
  }

  static void in_order(const float* x, size_t size, float* to) { evens_first<LANES>(x, size, to); }
};

template <int BITS>
using Few = Codes<BITS>;
using Eight = Codes<8>;
using Widest = Floats;

#endif

// Weights that are not packed: float32, in groups that have nothing in common.
struct Dense {
  using Vector = Widest;
  static constexpr int PARTS = 1;
  static constexpr int GROUP = 16;
  struct Line {};

  static Line line(const Packed&, size_t) { return {}; }

  static Widest weights(const uint8_t* codes, int column, int, const Line&) {
    return load<Widest>(reinterpret_cast<const float*>(codes) + column);
  }

  static void in_order(const float* x, size_t size, float* to) { std::copy_n(x, size, to); }
};

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

template <class Form, int ROWS>
void packed_rows(const Packed& w, int begin, int end, const float* x, float* y) {
  // Sums that stay in registers beside weights and x; at least two rows of weights overlap.
  constexpr int MOST_SUMS = REGISTERS == 32 ? 24 : 8;
  constexpr int COUNT = 4 * ROWS <= MOST_SUMS ? 4 : 2;
  int n = begin;
  for (; n + COUNT <= end; n += COUNT) packed_tile<Form, ROWS, COUNT>(w, n, x, y + n);
  for (; n < end; n++) packed_tile<Form, ROWS, 1>(w, n, x, y + n);
}

// As many weights as half of a small L2 cache holds, and rows of chunks of x in a large one.
constexpr int BLOCK_NUMBERS = 1 << 15;
constexpr int X_ROWS = 192;
// Rows of x and of weights whose sums stay in registers.
constexpr int TILE_ROWS = REGISTERS == 32 ? 6 : 3;
constexpr int TILE_COUNT = 4;
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
  return std::array{packed_rows<Form, LESS + 1>...};
}

template <class Vector, int... LESS>
constexpr auto dense_by_rows(std::integer_sequence<int, LESS...>) {
  return std::array{dense_rows<Vector, LESS + 1>...};
}

template <class Form>
void direct_product(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<typename Form::Vector> space;
  constexpr int MOST = 8;
  constexpr auto by_rows = packed_by_rows<Form>(std::make_integer_sequence<int, MOST>());
  const size_t size = size_t(num_rows) * w.columns;
  float* ordered = numbers_in(space, size);
  Form::in_order(x, size, ordered);
  for (int m = 0; m < num_rows; m += MOST)
    by_rows[std::min(num_rows - m, MOST) - 1](w, begin, end, ordered + size_t(m) * w.columns,
                                              y + size_t(m) * w.rows);
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
    case E2M1: return product_of<Few<E2M1>>(w, begin, end, x, num_rows, y);
    case 1: return product_of<Few<1>>(w, begin, end, x, num_rows, y);
    case 2: return product_of<Few<2>>(w, begin, end, x, num_rows, y);
    case 3: return product_of<Few<3>>(w, begin, end, x, num_rows, y);
    case 4: return product_of<Nibbles>(w, begin, end, x, num_rows, y);
    case 5: return product_of<Few<5>>(w, begin, end, x, num_rows, y);
    case 6: return product_of<Few<6>>(w, begin, end, x, num_rows, y);
    case 8: return product_of<Eight>(w, begin, end, x, num_rows, y);
    case 32: return product_of<Dense>(w, begin, end, x, num_rows, y);
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

// ---- Products with packed weights that are not transposed

// Columns that a thread takes at once.
constexpr int SUMMED_COLUMNS = 32;

// Unpacks columns of weights, from `begin` to `end`, in their order.
template <int BITS>
inline void unpack_columns(const Packed& w, int row, int begin, int end, float* to) {
  const uint8_t* codes = w.codes + row * w.row_bytes();
  for (int k = begin; k < end; k += LANES, to += LANES) {
    const auto line = Codes<BITS>::line(w, size_t(row) * w.groups() + k / w.group);
    store(to, Codes<BITS>::weights(codes, k, 0, line));
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
    for (int s = 0; s < count; s++) {
      float* to = block + size_t(s) * size;
      switch (w.form()) {
        case E2M1: unpack_columns<E2M1>(w, first + s, begin, end, to); break;
        case 1: unpack_columns<1>(w, first + s, begin, end, to); break;
        case 2: unpack_columns<2>(w, first + s, begin, end, to); break;
        case 3: unpack_columns<3>(w, first + s, begin, end, to); break;
        case 4: unpack_columns<4>(w, first + s, begin, end, to); break;
        case 5: unpack_columns<5>(w, first + s, begin, end, to); break;
        case 6: unpack_columns<6>(w, first + s, begin, end, to); break;
        case 8: unpack_columns<8>(w, first + s, begin, end, to); break;
      }
    }
    for (int m = 0; m < num_rows; m++) {
      const float* factors = x + size_t(m) * w.rows + first;
      add_all_values({}, 0, 0, count, factors, block, size, size,
                     y + size_t(m) * w.columns + begin);
    }
  }
}

}  // namespace akunu
