// How weights are packed, and how codes become weights on each kind of processor.

#pragma once

#include <type_traits>

#include "vectors.h"

namespace akunu {

// Eight codes, which are BITS bytes. Signed, since only AVX-512 converts unsigned numbers.
template <int BITS>
inline Ints codes_at(const uint8_t* packed) {
  const Words places{0, 1, 2, 3, 4, 5, 6, 7};
  uint32_t low = 0, high;
  if constexpr (BITS == 3) {  // a number that is read where three bytes were copied waits for them
    low = packed[0] | packed[1] << 8 | packed[2] << 16;
  } else {
    std::memcpy(&low, packed, std::min(BITS, 4));
  }
  if constexpr (BITS <= 4) return Ints((Words{} + low) >> (places * BITS)) & ((1 << BITS) - 1);
  // The last four codes end with the last byte.
  std::memcpy(&high, packed + BITS - 4, sizeof high);
  high >>= 32 - 4 * BITS;
  const Words words{low, low, low, low, high, high, high, high};
  return Ints(words >> ((places & 3) * BITS)) & ((1 << BITS) - 1);
}

// A form says how codes become weights: `Line` is what weights of a group have in common, and
// `weights` returns a vector of one row's from `column` on.
template <int BITS>
struct Codes {
  using Vector = Floats;
  static constexpr int WIDTH = BITS == E2M1 ? 4 : BITS;
  struct Line {
    Floats scale, bias;
  };

  static Line line(const Packed& w, size_t at) {
    return {repeat(w.scales[at]), BITS == E2M1 ? Floats{} : repeat(w.biases[at])};
  }

  static Floats weights(const uint8_t* codes, int column, const Line& line) {
    codes += size_t(column) * WIDTH / 8;
    if constexpr (BITS != E2M1) {
      const Ints values = codes_at<BITS>(codes);
      return multiply_add(__builtin_convertvector(values, Floats), line.scale, line.bias);
    }
    // 0, 0.5, 1, 1.5, and then with the exponent and the digit of a float32: 2, 3, 4, 6.
    const Ints values = codes_at<4>(codes), size = values & 7;
    const Floats small = __builtin_convertvector(size, Floats) * 0.5f;
    const Floats number = size < 4 ? small : Floats((size + 252) << 22);
    return Floats(Ints(number) | (values & 8) << 28) * line.scale;
  }
};

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

// Sixteen codes of E2M1, looked up in a table of a group's weights.
struct SixteenE2M1 {
  using Vector = Wide;
  using Line = Wide;

  static Wide line(const Packed& w, size_t at) {
    constexpr Wide VALUES = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return VALUES * w.scales[at];
  }

  static Wide weights(const uint8_t* codes, int column, Wide line) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + column / 2));
    const __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
    // The upper bits of an index do not matter.
    const __m512i index = _mm512_srlv_epi32(twice, _mm512_set1_epi64(int64_t(4) << 32));
    return Wide(_mm512_permutexvar_ps(index, __m512(line)));
  }
};

// Codes that are whole numbers are multiplied as such (wholes.h).
template <int BITS>
using FormOf = SixteenE2M1;

#else

template <int BITS>
using FormOf = Codes<BITS>;

#endif

// Calls work with a number as a constant, which is one of VALUES.
template <int... VALUES, class Work>
void with_constant(int value, const Work& work) {
  ((value == VALUES ? work(std::integral_constant<int, VALUES>()) : void()), ...);
}

// Rows of x in the first tile of `num_rows`. All have about as many, MOST at most, since each tile
// unpacks the weights anew.
template <int MOST>
int tile_rows(int num_rows) {
  const int tiles = std::max(1, (num_rows + MOST - 1) / MOST);
  return (num_rows + tiles - 1) / tiles;
}

constexpr int TILE_COUNT = 4;

// Calls add<ROWS, COUNT>(m, n) for tiles of all rows of x and of weights: of up to MOST rows of x,
// and of TILE_COUNT rows of weights, half as many where registers hold no more than SUMS, or the
// last ones alone.
template <int MOST, int SUMS, class Add>
void in_tiles(int begin, int end, int num_rows, const Add& add) {
  // The first rows of x bring weights into the caches, where the others find them.
  for (int n = begin, count; n < end; n += count) {
    count = end - n < TILE_COUNT ? 1 : TILE_COUNT;
    for (int m = 0, size; (size = tile_rows<MOST>(num_rows - m)); m += size)
      with_constant<1, 2, 3, 4, 5, 6>(size, [&](auto rows) {
        constexpr int ROWS = std::min<int>(rows, MOST);
        constexpr int COUNT = ROWS * TILE_COUNT <= SUMS ? TILE_COUNT : TILE_COUNT / 2;
        if (count == 1) return add.template operator()<ROWS, 1>(m, n);
        for (int i = 0; i < TILE_COUNT; i += COUNT) add.template operator()<ROWS, COUNT>(m, n + i);
      });
  }
}

// Adds the sum of each vector to a number; where four are together, four at a time.
template <class Vector, int COUNT>
void add_sums(const Vector (&vectors)[COUNT], float* to) {
  if constexpr (COUNT == 4) {
    store(to, load<Quad>(to) + sums(eight_lanes(vectors[0]), eight_lanes(vectors[1]),
                                    eight_lanes(vectors[2]), eight_lanes(vectors[3])));
  } else {
    for (int n = 0; n < COUNT; n++) to[n] += sum(eight_lanes(vectors[n]));
  }
}

// Weights that are not packed: float32, in groups that have nothing in common.
struct Dense {
  using Vector = FormOf<E2M1>::Vector;
  struct Line {};

  static Line line(const Packed&, size_t) { return {}; }

  static Vector weights(const uint8_t* codes, int column, const Line&) {
    return load<Vector>(reinterpret_cast<const float*>(codes) + column);
  }
};

}  // namespace akunu
