// Products with packed weights in whole numbers, for AVX2 and AVX-512.
//
// These multiply twice as many 16-bit numbers as floats at once, and codes need not become floats
// first. x[k] = step * number, with a step for each block of 32 columns of a row: so the numbers of
// a row depend on that row alone, and it has the same bits alone and among others. The idea is that
// of llama.cpp's products, whose numbers have 8 bits; those of 16 are 130 times as exact.
//
// Lanes of vectors are rows of weights, a strip. A lane has the codes of two columns, and all lanes
// are multiplied by the same pair of numbers of x; the sum of a block is exact. Codes are brought
// into lanes once for all rows of x of a tile, so a further row costs little more than its
// products.

#pragma once

#include <utility>

#include "weights.h"

#if defined(__AVX2__)

namespace akunu {

constexpr int BLOCK_COLUMNS = 32;
constexpr int PAIRS = BLOCK_COLUMNS / 2;
using Pairs = std::array<int32_t, PAIRS>;

// Rows of x of a tile, whose sums stay in registers. Each size takes the compiler its time; a tile
// of a number between two sizes is filled up with rows of anything, whose sums nobody reads.
#if defined(__AVX512BW__) && defined(__AVX512VL__)

constexpr std::array TILE_SIZES{1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
using StripFloats = Wide;
typedef int32_t StripInts __attribute__((vector_size(64)));

inline StripInts add_products(StripInts sum, StripInts a, StripInts b) {
#if defined(__AVX512VNNI__)
  return StripInts(_mm512_dpwssd_epi32(__m512i(sum), __m512i(a), __m512i(b)));
#else
  sum += StripInts(_mm512_madd_epi16(__m512i(a), __m512i(b)));
  asm("" : "+v"(sum));  // as for AVX2
  return sum;
#endif
}

// The words of four rows, one behind the other.
inline StripInts join(const __m128i (&rows)[4]) {
  __m512i words = _mm512_castsi128_si512(rows[0]);
  words = _mm512_inserti32x4(words, rows[1], 1);
  words = _mm512_inserti32x4(words, rows[2], 2);
  return StripInts(_mm512_inserti32x4(words, rows[3], 3));
}

#else

constexpr std::array TILE_SIZES{1, 2, 3, 4, 5, 6};
using StripFloats = Floats;
using StripInts = Ints;

inline StripInts add_products(StripInts sum, StripInts a, StripInts b) {
  sum += StripInts(_mm256_madd_epi16(__m256i(a), __m256i(b)));
  // Else GCC adds up all products at the end, for which there are too few registers.
  asm("" : "+x"(sum));
  return sum;
}

inline StripInts join(const __m128i (&rows)[2]) {
  return StripInts(_mm256_inserti128_si256(_mm256_castsi128_si256(rows[0]), rows[1], 1));
}

#endif

typedef uint16_t StripHalves __attribute__((vector_size(sizeof(StripInts))));
constexpr int STRIP_ROWS = lanes_of<StripInts>;
constexpr int MOST_ROWS = TILE_SIZES.back();

// How the codes of a block of a row become pairs. Bytes are copied into words, so that the codes of
// both halves of a word begin at the same bits: each shift yields a pair.
template <int BITS>
struct PairsOf {
  static constexpr int BYTES = BLOCK_COLUMNS * BITS / 8;
  alignas(16) uint8_t bytes[2][16] = {};  // of the 16 bytes that words are made of, four at a time
  int words = 0;
  int word[PAIRS] = {}, shift[PAIRS] = {};
  int columns[BLOCK_COLUMNS] = {};  // of the pairs

  constexpr PairsOf() {
    int apart = 1, pair = 0;
    while (apart * BITS < 16 || apart * BITS % 8) apart++;
    for (int base = 0; base < BLOCK_COLUMNS; base += 2 * apart) {
      int start = -2;  // the byte where both halves of the word begin
      for (int column = base; column < base + apart; column++, pair++) {
        if ((column + 1) * BITS > 8 * (start + 2)) {
          start = column * BITS / 8;
          for (int byte = 0; byte < 4; byte++) {
            const int from = start + byte % 2 + byte / 2 * (apart * BITS / 8);
            bytes[words / 4][words % 4 * 4 + byte] = from - first(words / 4);
          }
          words++;
        }
        word[pair] = words - 1;
        shift[pair] = column * BITS - 8 * start;
        columns[2 * pair] = column;
        columns[2 * pair + 1] = column + apart;
      }
    }
  }

  // Where in a block the 16 bytes begin that a part of the words is made of.
  static constexpr int first(int part) { return part ? BYTES - 16 : 0; }

  constexpr bool in_place() const {
    for (int i = 0; i < 4 * words; i++)
      if (first(i / 16) + bytes[i / 16][i % 16] != i) return false;
    return true;
  }
};

template <int BITS>
constexpr PairsOf<BITS> PAIRS_OF;

inline __m128i four_words(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// The bytes of a block that a part of the words is made of, in their order.
template <int BITS>
__m128i bytes_of(const uint8_t* block, int part) {
  using Of = PairsOf<BITS>;
  __m128i bytes;
  if constexpr (Of::BYTES >= 16) {
    bytes = four_words(block + Of::first(part));
  } else {
    uint64_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, block, std::min(Of::BYTES, 8));
    if constexpr (Of::BYTES > 8) std::memcpy(&high, block + 8, sizeof high);
    bytes = _mm_set_epi64x(high, low);
  }
  if constexpr (PAIRS_OF<BITS>.in_place()) return bytes;
  return _mm_shuffle_epi8(bytes, four_words(PAIRS_OF<BITS>.bytes[part]));
}

// Of each four words the first half of a and of b, or the last one, in turns of SIZE words.
template <int SIZE, bool LAST, int... I>
StripInts interleave(StripInts a, StripInts b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(
      a, b,
      (I / SIZE % 2 * STRIP_ROWS + I / 4 * 4 + 2 * LAST + (SIZE == 2 ? I % 2 : I / 2 % 2))...);
}

template <int SIZE, bool LAST>
StripInts interleave(StripInts a, StripInts b) {
  return interleave<SIZE, LAST>(a, b, std::make_integer_sequence<int, STRIP_ROWS>());
}

// Four words of each row of a strip: `of_row` has those of one, and each vector gets one of all.
template <class OfRow>
[[gnu::always_inline]] inline void transpose(const OfRow& of_row, StripInts* to) {
  StripInts rows[4];
  for (int i = 0; i < 4; i++) {
    __m128i joined[STRIP_ROWS / 4];
    for (int quarter = 0; quarter < STRIP_ROWS / 4; quarter++)
      joined[quarter] = of_row(4 * quarter + i);
    rows[i] = join(joined);
  }
  const auto first_01 = interleave<1, false>(rows[0], rows[1]);
  const auto first_23 = interleave<1, false>(rows[2], rows[3]);
  const auto last_01 = interleave<1, true>(rows[0], rows[1]);
  const auto last_23 = interleave<1, true>(rows[2], rows[3]);
  to[0] = interleave<2, false>(first_01, first_23);
  to[1] = interleave<2, true>(first_01, first_23);
  to[2] = interleave<2, false>(last_01, last_23);
  to[3] = interleave<2, true>(last_01, last_23);
}

// Rows of weights from `first` on. Where there are too few of them, or of groups, they are
// copied and filled up with zeros.
struct Strip {
  const uint8_t* codes;
  const float *scales, *biases;
  size_t row_bytes;
  int groups, blocks_of_group;
  size_t padded_groups;

  Strip(const Packed& w, int first)
      : codes(w.codes + first * w.row_bytes()),
        row_bytes(w.row_bytes()),
        groups(w.groups),
        blocks_of_group(w.group / BLOCK_COLUMNS),
        padded_groups(std::max(4, groups)) {
    static thread_local std::vector<uint8_t> code_space;
    static thread_local std::vector<float> scale_space, bias_space;
    const size_t at = size_t(first) * groups;
    scales = w.scales + at;
    biases = w.biases + at;
    const int count = std::min(STRIP_ROWS, w.rows - first);
    if (count == STRIP_ROWS && groups >= 4) return;
    code_space.assign(codes, codes + count * row_bytes);
    code_space.resize(STRIP_ROWS * row_bytes);
    codes = code_space.data();
    for (auto [numbers, space] : {std::pair(&scales, &scale_space), {&biases, &bias_space}}) {
      space->assign(STRIP_ROWS * padded_groups, 0);
      for (int n = 0; n < count; n++)
        std::copy_n(*numbers + n * groups, groups, space->data() + n * padded_groups);
      *numbers = space->data();
    }
  }
};

// Rows of x of a tile: of each block the pairs of the first row, of the second, and so on, and of
// each row the step and the sum.
struct Tile {
  const Pairs* pairs;
  const float *steps, *sums;
};

// Rows of x times a strip of weights.
template <int BITS, int ROWS>
[[gnu::noinline]] void strip_product(const Strip w, Tile x, StripFloats (&totals)[ROWS]) {
  static constexpr const PairsOf<BITS>& OF = PAIRS_OF<BITS>;
  const StripInts mask = StripInts{} + ((1 << BITS) - 1) * 0x10001;
  // An instruction waits for the one before it that has the same sum.
  constexpr int SUMS = ROWS == 1 ? 4 : ROWS < 4 ? 2 : 1;
  std::ranges::fill(totals, StripFloats{});
  const uint8_t* codes = w.codes;
  const size_t row_bytes = w.row_bytes;
  for (int g = 0, block = 0; g < w.groups;) {
    // Scales of four groups at a time; the last four may begin before this group.
    StripInts scale[4], bias[4];
    const int first = std::min(g, int(w.padded_groups) - 4);
    transpose([&](int n) { return four_words(w.scales + n * w.padded_groups + first); }, scale);
    transpose([&](int n) { return four_words(w.biases + n * w.padded_groups + first); }, bias);
    for (const int stop = std::min(g + 4, w.groups); g < stop; g++) {
      // What is needed for the next strip: rows are too short for the processor to foresee it.
      for (const float* numbers : {w.scales, w.biases})
        __builtin_prefetch(numbers + STRIP_ROWS * (w.padded_groups + g));
      for (const int end = block + w.blocks_of_group; block < end; block++, codes += OF.BYTES) {
        if (block % std::max(1, 64 / OF.BYTES) == 0)
          for (int n = 0; n < STRIP_ROWS; n++)
            __builtin_prefetch(codes + (STRIP_ROWS + n) * row_bytes);
        StripInts words[up_to_lanes(OF.words)];
        for (int part = 0; part < (OF.words + 3) / 4; part++)
          transpose([&](int n) { return bytes_of<BITS>(codes + n * row_bytes, part); },
                    words + 4 * part);
        StripInts sums[ROWS][SUMS] = {};
#pragma GCC unroll 16
        for (int p = 0; p < PAIRS; p++) {
          StripInts pair = StripInts(StripHalves(words[OF.word[p]]) >> OF.shift[p]);
          if (OF.shift[p] + BITS < 16) pair &= mask;
#pragma GCC unroll 16
          for (int m = 0; m < ROWS; m++)
            sums[m][p % SUMS] = add_products(sums[m][p % SUMS], pair, StripInts{} + x.pairs[m][p]);
        }
        for (int m = 0; m < ROWS; m++) {
          for (int s = 1; s < SUMS; s++) sums[m][0] += sums[m][s];
          totals[m] = multiply_add(__builtin_convertvector(sums[m][0], StripFloats),
                                   StripFloats(scale[g - first]) * x.steps[m], totals[m]);
          totals[m] =
              multiply_add(StripFloats(bias[g - first]), StripFloats{} + x.sums[m], totals[m]);
        }
        x = {x.pairs + ROWS, x.steps + ROWS, x.sums + ROWS};
      }
    }
  }
}

// Writes the numbers of a block of x in pairs, and their sum; returns their step.
template <int BITS>
float to_pairs(const float* x, Pairs& pairs, float& sum) {
  // Compared as integers, so that NaN is the largest and makes the whole row NaN.
  int32_t most = 0;
  for (int k = 0; k < BLOCK_COLUMNS; k++)
    most = std::max(most, std::bit_cast<int32_t>(x[k]) & INT32_MAX);
  const float largest = std::bit_cast<float>(most), step = largest / INT16_MAX;
  const float factor = largest > 1e-30f ? INT16_MAX / largest : 0;
  int16_t numbers[BLOCK_COLUMNS], in_pairs[BLOCK_COLUMNS];
  for (int k = 0; k < BLOCK_COLUMNS; k += 2 * LANES) {
    const __m256i low = _mm256_cvtps_epi32(__m256(load(x + k) * factor));
    const __m256i high = _mm256_cvtps_epi32(__m256(load(x + k + LANES) * factor));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
    std::memcpy(numbers + k, &both, sizeof both);
  }
  int total = 0;
  for (int k = 0; k < BLOCK_COLUMNS; k++) total += numbers[k];
  sum = step * total;
  for (int k = 0; k < BLOCK_COLUMNS; k++) in_pairs[k] = numbers[PAIRS_OF<BITS>.columns[k]];
  std::memcpy(&pairs, in_pairs, sizeof pairs);
  return step;
}

template <int BITS>
  requires(BITS != E2M1)
void product_of(const Packed& w, int begin, int end, const float* x, int num_rows, float* y) {
  static thread_local std::vector<Pairs> pairs;
  static thread_local std::vector<float> steps, sums;
  // Rows of x whose pairs stay in the caches.
  constexpr int AT_ONCE = 48 / MOST_ROWS * MOST_ROWS;
  const int blocks = w.columns / BLOCK_COLUMNS;
  if (const size_t needed = size_t(AT_ONCE) * blocks; pairs.size() < needed) {
    pairs.resize(needed);
    steps.resize(needed);
    sums.resize(needed);
  }
  for (; num_rows > 0; num_rows -= AT_ONCE, x += AT_ONCE * w.columns, y += AT_ONCE * w.rows) {
    // Calls work(first, rows, size, at) for each tile, whose blocks of x begin at `at`.
    const auto for_tiles = [&](const auto& work) {
      for (int first = 0; first < std::min(num_rows, AT_ONCE); first += MOST_ROWS) {
        const int rows = std::min(num_rows - first, MOST_ROWS);
        work(first, rows, *std::ranges::lower_bound(TILE_SIZES, rows), first * blocks);
      }
    };
    for_tiles([&](int first, int rows, int size, size_t at) {
      for (int column = 0; column < w.columns; column += BLOCK_COLUMNS, at += size)
        for (int m = 0; m < rows; m++)
          steps[at + m] = to_pairs<BITS>(x + size_t(first + m) * w.columns + column, pairs[at + m],
                                         sums[at + m]);
    });
    for (int n = begin; n < end; n += STRIP_ROWS) {
      const Strip strip(w, n);
      const size_t num_bytes = std::min(STRIP_ROWS, end - n) * sizeof(float);
      for_tiles([&](int first, int rows, int size, size_t at) {
        with_constant<1, 2, 3, 4, 5, 6, 8, 10, 12, 16>(size, [&](auto SIZE) {
          StripFloats totals[std::min<int>(SIZE, MOST_ROWS)];
          strip_product<BITS>(strip, {&pairs[at], &steps[at], &sums[at]}, totals);
          for (int m = 0; m < rows; m++)
            std::memcpy(y + size_t(first + m) * w.rows + n, &totals[m], num_bytes);
        });
      });
    }
  }
}

}  // namespace akunu

#endif
