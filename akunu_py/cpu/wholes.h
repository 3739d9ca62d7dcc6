// Products with rows of x as whole numbers of 16 bits, for AVX2.
//
// AVX2 multiplies twice as many 16-bit numbers as floats at once, and codes need not become floats
// first. x[k] = step * number, with a step for each block of 32 columns of a row: so the numbers of
// a row depend on that row alone, and it has the same bits alone and among others. The idea is that
// of llama.cpp's products, whose numbers have 8 bits; those of 16 are 130 times as exact.

#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "weights.h"

#if defined(__AVX2__) && !(defined(__AVX512BW__) && defined(__AVX512VL__))

namespace akunu {

constexpr int BLOCK_COLUMNS = 32;

inline __m256i load_wholes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline __m256i widen_sixteen(const uint8_t* bytes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

// A form says how the codes of a block become two vectors, and whether the columns with even
// numbers are the first of them.
template <class Form>
concept Whole = requires { Form::EVENS_FIRST; };

struct WholeNibbles {
  static constexpr int BITS = 4;
  static constexpr bool EVENS_FIRST = true;

  static void unpack(const uint8_t* from, __m256i& first, __m256i& second) {
    const __m256i bytes = widen_sixteen(from);
    first = _mm256_and_si256(bytes, _mm256_set1_epi16(15));
    second = _mm256_srli_epi16(bytes, 4);
  }
};

struct WholeBytes {
  static constexpr int BITS = 8;
  static constexpr bool EVENS_FIRST = false;

  static void unpack(const uint8_t* from, __m256i& first, __m256i& second) {
    first = widen_sixteen(from);
    second = widen_sixteen(from + 16);
  }
};

// Codes of other widths: the two bytes around each, moved to the left and then to the right.
template <int WIDTH>
struct WholeCodes {
  static constexpr int BITS = WIDTH;
  static constexpr bool EVENS_FIRST = false;

  static void unpack(const uint8_t* from, __m256i& first, __m256i& second) {
    first = half<0>(from);
    second = half<1>(from);
  }

 private:
  // Sixteen codes have HALF bytes. As many as two loads of eight bytes can bring are read, none of
  // them behind the block.
  static constexpr int HALF = 2 * BITS;
  static constexpr int SIZE = std::max(HALF, std::min(8, 2 * HALF));

  template <int NUMBER>
  static __m256i half(const uint8_t* block) {
    constexpr int BEGIN = NUMBER * (2 * HALF - SIZE), SKIPPED = NUMBER * HALF - BEGIN;
    struct Places {
      alignas(32) uint8_t bytes[32];
      alignas(32) uint16_t factors[16];
    };
    static constexpr Places AT = [] {
      Places at{};
      for (int i = 0; i < 16; i++) {
        at.factors[i] = 1 << (16 - BITS - i * BITS % 8);
        for (int byte = 0; byte < 2; byte++) {
          const int place = SKIPPED + std::min(i * BITS / 8 + byte, HALF - 1);
          // The second load ends with the last byte.
          at.bytes[2 * i + byte] = place < 8 ? place : place + 16 - SIZE;
        }
      }
      return at;
    }();
    uint64_t loads[2] = {};
    std::memcpy(loads, block + BEGIN, std::min(SIZE, 8));
    if constexpr (SIZE > 8) std::memcpy(loads + 1, block + BEGIN + SIZE - 8, 8);
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_set_epi64x(loads[1], loads[0]));
    const __m256i pairs = _mm256_shuffle_epi8(bytes, load_wholes(AT.bytes));
    return _mm256_srli_epi16(_mm256_mullo_epi16(pairs, load_wholes(AT.factors)), 16 - BITS);
  }
};

template <int BITS>
using Few = WholeCodes<BITS>;
using Four = WholeNibbles;
using Eight = WholeBytes;

// Rows of x: numbers in the order of a form, a step for each block, and a sum for each group.
struct Wholes {
  const int16_t* numbers;
  const float *steps, *sums;
  size_t columns, blocks, groups;

  Wholes from(int row) const {
    return {numbers + row * columns,
            steps + row * blocks,
            sums + row * groups,
            columns,
            blocks,
            groups};
  }
};

inline Ints largest_of(Ints a, Ints b) { return Ints(_mm256_max_epi32(__m256i(a), __m256i(b))); }

// Writes the numbers of a block of x and their sum; returns their step.
template <bool EVENS_FIRST>
inline float to_wholes(const float* x, int16_t* to, int& total) {
  // Compared as integers, so that NaN is the largest and makes the whole row NaN.
  Ints sizes{};
  for (int k = 0; k < BLOCK_COLUMNS; k += LANES)
    sizes = largest_of(sizes, Ints(load_wholes(x + k)) & INT32_MAX);
  sizes = largest_of(sizes, __builtin_shufflevector(sizes, sizes, 4, 5, 6, 7, 0, 1, 2, 3));
  sizes = largest_of(sizes, __builtin_shufflevector(sizes, sizes, 2, 3, 0, 1, 6, 7, 4, 5));
  const int32_t most = std::max(sizes[0], sizes[1]);
  float largest;
  std::memcpy(&largest, &most, sizeof most);
  const float factor = largest > 1e-30f ? INT16_MAX / largest : 0;
  __m256i halves[2];
  for (int i = 0; i < 2; i++, x += 2 * LANES) {
    const __m256i low = _mm256_cvtps_epi32(__m256(load(x) * factor));
    const __m256i high = _mm256_cvtps_epi32(__m256(load(x + LANES) * factor));
    halves[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
  }
  const __m256i ones = _mm256_set1_epi16(1);
  const Ints pairs =
      Ints(_mm256_madd_epi16(halves[0], ones)) + Ints(_mm256_madd_epi16(halves[1], ones));
  total = int(sum(__builtin_convertvector(pairs, Floats)));  // exact: of 21 bits at most
  if constexpr (EVENS_FIRST) {
    const Ints first = Ints(halves[0]), second = Ints(halves[1]);
    const __m256i evens =
        _mm256_packs_epi32(__m256i(first << 16 >> 16), __m256i(second << 16 >> 16));
    const __m256i odds = _mm256_packs_epi32(__m256i(first >> 16), __m256i(second >> 16));
    halves[0] = _mm256_permute4x64_epi64(evens, 0b11011000);
    halves[1] = _mm256_permute4x64_epi64(odds, 0b11011000);
  }
  std::memcpy(to, halves, sizeof halves);
  return largest / INT16_MAX;
}

// y[0:ROWS, 0:COUNT] = x times the weights from `first` on.
template <class Form, int ROWS, int COUNT>
void whole_tile(const Packed& w, int first, const Wholes& x, float* y) {
  constexpr size_t BLOCK_BYTES = BLOCK_COLUMNS * Form::BITS / 8;
  constexpr size_t BLOCKS_OF_LINE = std::max<size_t>(1, 64 / BLOCK_BYTES);
  // Rows are too short for the processor to see where the next ones begin.
  constexpr size_t AHEAD_BYTES = 4096;
  const size_t row_bytes = w.row_bytes();
  const uint8_t* codes = w.codes + first * row_bytes;
  const float *scales = w.scales + first * x.groups, *biases = w.biases + first * x.groups;
  Floats sums[ROWS][COUNT] = {};
  // A bias is a factor of the sum of a group's numbers.
  for (size_t g = 0; g < x.groups; g += LANES) {
    const Ints known = Ints{0, 1, 2, 3, 4, 5, 6, 7} < int(x.groups - g);
    for (int n = 0; n < COUNT; n++) {
      const Floats bias(_mm256_maskload_ps(biases + n * x.groups + g, __m256i(known)));
      for (int m = 0; m < ROWS; m++) {
        const Floats of_x(_mm256_maskload_ps(x.sums + m * x.groups + g, __m256i(known)));
        sums[m][n] = multiply_add(bias, of_x, sums[m][n]);
      }
    }
  }
  const int blocks_of_group = w.group / BLOCK_COLUMNS;
  int in_group = blocks_of_group;
  for (size_t block = 0; block < x.blocks; block++, codes += BLOCK_BYTES) {
    if (block % BLOCKS_OF_LINE == 0)
      for (int n = 0; n < COUNT; n++) __builtin_prefetch(codes + n * row_bytes + AHEAD_BYTES);
#pragma GCC unroll 4
    for (int n = 0; n < COUNT; n++) {
      __m256i codes_1, codes_2;
      Form::unpack(codes + n * row_bytes, codes_1, codes_2);
      const Floats scale = repeat(scales[n * x.groups]);
#pragma GCC unroll 4
      for (int m = 0; m < ROWS; m++) {
        const int16_t* numbers = x.numbers + m * x.columns + block * BLOCK_COLUMNS;
        const Ints products = Ints(_mm256_madd_epi16(codes_1, load_wholes(numbers))) +
                              Ints(_mm256_madd_epi16(codes_2, load_wholes(numbers + 16)));
        sums[m][n] = multiply_add(__builtin_convertvector(products, Floats),
                                  scale * repeat(x.steps[m * x.blocks + block]), sums[m][n]);
      }
    }
    if (--in_group == 0) {
      scales++;
      in_group = blocks_of_group;
    }
  }
  for (int m = 0; m < ROWS; m++, y += w.rows) {
    if constexpr (COUNT == 4) {
      store(y, akunu::sums(sums[m][0], sums[m][1], sums[m][2], sums[m][3]));
    } else {
      for (int n = 0; n < COUNT; n++) y[n] = sum(sums[m][n]);
    }
  }
}

// Four rows of weights and up to four of x, with as many sums at once as the registers hold.
template <class Form, int ROWS>
void whole_tiles(const Packed& w, int first, const Wholes& x, float* y) {
  constexpr int COUNT = ROWS < 3 ? 4 : 2;
  for (int n = 0; n < 4; n += COUNT) whole_tile<Form, ROWS, COUNT>(w, first + n, x, y + n);
}

template <Whole Form>
void product_of(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<Floats> number_space, step_space, sum_space;
  constexpr auto by_rows = std::array{whole_tiles<Form, 1>, whole_tiles<Form, 2>,
                                      whole_tiles<Form, 3>, whole_tiles<Form, 4>};
  constexpr int MOST = by_rows.size();
  // Rows of x whose numbers stay in the caches.
  constexpr int AT_ONCE = 32;
  const size_t blocks = w.columns / BLOCK_COLUMNS, groups = w.groups();
  for (int count; num_rows > 0;
       num_rows -= count, x += size_t(count) * w.columns, y += size_t(count) * w.rows) {
    count = std::min(num_rows, AT_ONCE);
    auto* numbers = reinterpret_cast<int16_t*>(numbers_in(number_space, count * w.columns / 2));
    float* steps = numbers_in(step_space, count * blocks);
    float* sums = numbers_in(sum_space, count * groups);
    std::fill_n(sums, count * groups, 0.0f);
    for (size_t block = 0; block < count * blocks; block++) {
      const size_t column = block * BLOCK_COLUMNS;
      int total;
      steps[block] = to_wholes<Form::EVENS_FIRST>(x + column, numbers + column, total);
      sums[column / w.group] += steps[block] * total;
    }
    const Wholes all{numbers, steps, sums, size_t(w.columns), blocks, groups};
    int n = begin;
    for (; n + 4 <= end; n += 4)
      for (int m = 0; m < count; m += MOST)
        by_rows[std::min(count - m, MOST) - 1](w, n, all.from(m), y + size_t(m) * w.rows + n);
    for (; n < end; n++)
      for (int m = 0; m < count; m++)
        whole_tile<Form, 1, 1>(w, n, all.from(m), y + size_t(m) * w.rows + n);
  }
}

}  // namespace akunu

#endif
