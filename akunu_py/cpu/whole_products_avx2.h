// Products with packed weights for AVX2: lanes are columns, of which codes become numbers of 16
// bits.

#pragma once

#include "weights.h"
#include "wholes.h"

#if defined(__AVX2__) && !(defined(__AVX512BW__) && defined(__AVX512VL__))

namespace akunu {

inline __m256i load_wholes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline __m256i widen_sixteen(const uint8_t* bytes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

// Half number NUMBER of the codes of a block: the two bytes around each, moved to the left and then
// to the right.
template <int BITS, int NUMBER>
__m256i half_of_codes(const uint8_t* block) {
  // What is read around the half is as long as a load, and ends in the block.
  constexpr int HALF = 2 * BITS, SIZE = BITS > 4 ? 16 : std::min(2 * HALF, 8);
  constexpr int SKIPPED = NUMBER * (2 * HALF - SIZE);
  struct Places {
    alignas(32) uint8_t bytes[32];
    alignas(32) uint16_t factors[16];
  };
  static constexpr Places AT = [] {
    Places at{};
    for (int i = 0; i < 16; i++) {
      at.factors[i] = 1 << (16 - BITS - i * BITS % 8);
      for (int byte = 0; byte < 2; byte++)
        at.bytes[2 * i + byte] = NUMBER * HALF - SKIPPED + std::min(i * BITS / 8 + byte, HALF - 1);
    }
    return at;
  }();
  __m256i bytes;
  if constexpr (SIZE == 16) {
    bytes = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + SKIPPED)));
  } else {
    uint64_t word = 0;
    std::memcpy(&word, block + SKIPPED, SIZE);
    bytes = _mm256_set1_epi64x(word);
  }
  const __m256i pairs = _mm256_shuffle_epi8(bytes, load_wholes(AT.bytes));
  return _mm256_srli_epi16(_mm256_mullo_epi16(pairs, load_wholes(AT.factors)), 16 - BITS);
}

// Writes the codes of a block as numbers; of those of 4 bits the ones with even numbers first.
template <int BITS>
void unpack_block(const uint8_t* from, __m256i& first, __m256i& second) {
  if constexpr (BITS == 4) {
    const __m256i bytes = widen_sixteen(from);
    first = _mm256_and_si256(bytes, _mm256_set1_epi16(15));
    second = _mm256_srli_epi16(bytes, 4);
  } else if constexpr (BITS == 8) {
    first = widen_sixteen(from);
    second = widen_sixteen(from + 16);
  } else {
    first = half_of_codes<BITS, 0>(from);
    second = half_of_codes<BITS, 1>(from);
  }
}

// Rows of x: numbers in the order of the codes, and of each block the step and the sum, of which
// `padded` is the number in a row. Those behind the last block are 0.
struct Wholes {
  const int16_t* numbers;
  const float *steps, *sums;
  size_t columns, padded;
};

// Writes the numbers of a block of x in the order of the codes, and their sum; returns their step.
template <int BITS>
float in_order_of_codes(const float* x, int16_t* to, int& total) {
  int16_t numbers[BLOCK_COLUMNS];
  const float step = to_wholes(x, numbers, total);
  for (int k = 0; k < BLOCK_COLUMNS / 2; k++) {
    to[k] = numbers[BITS == 4 ? 2 * k : k];
    to[k + 16] = numbers[BITS == 4 ? 2 * k + 1 : k + 16];
  }
  return step;
}

// y[0:ROWS, 0:COUNT] += rows of x from `row` on times the weights from `first` on.
template <int BITS, int ROWS, int COUNT>
[[gnu::noinline]] void whole_tile(const Packed& w, int first, const Wholes& x, int row, float* y) {
  constexpr int CHUNK_BLOCKS = 64;
  constexpr int BLOCK_BYTES = BLOCK_COLUMNS * BITS / 8;
  constexpr int BLOCKS_OF_LINE = std::max(1, 64 / BLOCK_BYTES);
  // Rows are too short for the processor to see where the next ones begin.
  constexpr size_t AHEAD_BYTES = 4096;
  const size_t row_bytes = w.row_bytes(), groups = w.groups;
  const uint8_t* codes = w.codes + first * row_bytes;
  const int blocks = w.columns / BLOCK_COLUMNS;
  // Of eight blocks the groups, of which each has one, two or four.
  const int shift = std::countr_zero(unsigned(w.group / BLOCK_COLUMNS));
  const Ints lanes{0, 1, 2, 3, 4, 5, 6, 7};
  Floats sums[ROWS][COUNT] = {};
  for (int begin = 0; begin < blocks; begin += CHUNK_BLOCKS) {
    const int count = std::min(CHUNK_BLOCKS, blocks - begin);
    alignas(4 * LANES) float factors[ROWS][COUNT][CHUNK_BLOCKS];
    for (int block = 0; block < count; block += LANES) {
      const size_t group = size_t(begin + block) >> shift;
      const auto of_blocks = [&](const float* of_groups) {
        const auto known = __m256i(lanes < int(groups - group));
        return Floats(_mm256_permutevar8x32_ps(_mm256_maskload_ps(of_groups + group, known),
                                               __m256i(lanes >> shift)));
      };
      for (int n = 0; n < COUNT; n++) {
        const Floats scale = of_blocks(w.scales + (first + n) * groups);
        const Floats bias = of_blocks(w.biases + (first + n) * groups);
        for (int m = 0; m < ROWS; m++) {
          const size_t at = (row + m) * x.padded + begin + block;
          store(&factors[m][n][block], scale * load(x.steps + at));
          sums[m][n] = multiply_add(bias, load(x.sums + at), sums[m][n]);
        }
      }
    }
    for (int block = 0; block < count; block++, codes += BLOCK_BYTES) {
      if (block % BLOCKS_OF_LINE == 0)
        for (int n = 0; n < COUNT; n++) __builtin_prefetch(codes + n * row_bytes + AHEAD_BYTES);
#pragma GCC unroll 4
      for (int n = 0; n < COUNT; n++) {
        __m256i codes_1, codes_2;
        unpack_block<BITS>(codes + n * row_bytes, codes_1, codes_2);
#pragma GCC unroll 4
        for (int m = 0; m < ROWS; m++) {
          const int16_t* numbers =
              x.numbers + (row + m) * x.columns + (begin + block) * BLOCK_COLUMNS;
          const Ints products = Ints(_mm256_madd_epi16(codes_1, load_wholes(numbers))) +
                                Ints(_mm256_madd_epi16(codes_2, load_wholes(numbers + 16)));
          sums[m][n] = multiply_add(__builtin_convertvector(products, Floats),
                                    repeat(factors[m][n][block]), sums[m][n]);
        }
      }
    }
  }
  for (int m = 0; m < ROWS; m++, y += w.rows) add_sums(sums[m], y);
}

template <int BITS>
  requires(BITS != E2M1)
void product_of(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<Floats> number_space, step_space, sum_space;
  // Rows of x whose numbers stay in the caches.
  constexpr int AT_ONCE = 32;
  const int blocks = w.columns / BLOCK_COLUMNS, padded = up_to_lanes(blocks);
  for (int count; num_rows > 0;
       num_rows -= count, x += size_t(count) * w.columns, y += size_t(count) * w.rows) {
    count = std::min(num_rows, AT_ONCE);
    auto* numbers = reinterpret_cast<int16_t*>(numbers_in(number_space, count * w.columns / 2));
    float* steps = numbers_in(step_space, count * padded);
    float* sums = numbers_in(sum_space, count * padded);
    std::fill_n(steps, count * padded, 0.0f);
    std::fill_n(sums, count * padded, 0.0f);
    for (int m = 0; m < count; m++) {
      for (int block = 0; block < blocks; block++) {
        const size_t column = size_t(m) * w.columns + block * BLOCK_COLUMNS;
        int total;
        const float step = in_order_of_codes<BITS>(x + column, numbers + column, total);
        steps[m * padded + block] = step;
        sums[m * padded + block] = step * total;
      }
    }
    const Wholes all{numbers, steps, sums, size_t(w.columns), size_t(padded)};
    in_tiles<4, 8>(begin, end, count, [&]<int ROWS, int COUNT>(int m, int n) {
      whole_tile<BITS, ROWS, COUNT>(w, n, all, m, y + size_t(m) * w.rows + n);
    });
  }
}

}  // namespace akunu

#endif
