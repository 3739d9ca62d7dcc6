// The body of a Metal kernel on a CPU: what the Metal language has and C++
// lacks, and the lanes of a simdgroup.
//
// A lane runs from beginning to end, and then the next one does. In the first
// round `simd_sum` only notes what each lane brings; in the second it returns
// the sum of all lanes. So the kernel must bring the same numbers in both
// rounds, which is checked: its sums may not depend on earlier ones, and it has
// no barriers. A kernel with them needs a fiber for each thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define device
#define thread
#define constant
#define METAL_FUNC inline

typedef unsigned uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
struct uint3 {
  uint x, y, z;
};

template <typename T> inline T select(T no, T yes, bool which) {
  return which ? yes : no;
}
inline int clamp(int x, int low, int high) {
  return std::min(std::max(x, low), high);
}
using std::min;

// A number of 16 bits: a float32 cut to the nearest, ties to even. Sums of two
// are of its own type, as in Metal.
template <int FRACTION, int EXPONENT> struct Short {
  uint16_t bits;
  static constexpr int BIAS = (1 << (EXPONENT - 1)) - 1;
  Short() = default;
  Short(float x) {
    uint32_t word;
    std::memcpy(&word, &x, 4);
    const uint32_t sign = word >> 31 << 15;
    const int exponent = int(word >> 23 & 255) - 127;
    if (exponent == 128) { // infinite or NaN
      bits = sign | ((1u << EXPONENT) - 1) << FRACTION |
             ((word & 0x7fffff) != 0) << (FRACTION - 1);
      return;
    }
    // The fraction with its leading one, and how many of its bits are cut; more
    // of a subnormal number.
    uint64_t fraction = (word & 0x7fffff) | (word >> 23 & 255 ? 0x800000 : 0);
    const int below = std::max(0, 1 - BIAS - std::max(exponent, -126));
    const int cut = std::min(40, 23 - FRACTION + below);
    const uint64_t half = uint64_t(1) << (cut - 1),
                   rest = fraction & (2 * half - 1);
    fraction >>= cut;
    fraction += rest > half || (rest == half && fraction % 2);
    const int biased = below ? 0 : std::max(exponent, -126) + BIAS - 1;
    // The leading one adds 1 to the exponent, and so does rounding up to the
    // next power of two.
    const uint64_t whole = (uint64_t(biased) << FRACTION) + fraction;
    bits = sign | std::min(whole, uint64_t((1u << EXPONENT) - 1) << FRACTION);
  }
  Short(int x) : Short(float(x)) {}
  Short(uint x) : Short(float(x)) {}
  operator float() const {
    const int exponent = bits >> FRACTION & ((1 << EXPONENT) - 1),
              fraction = bits & ((1 << FRACTION) - 1);
    float x = fraction / float(1 << FRACTION);
    if (exponent == (1 << EXPONENT) - 1)
      x = fraction ? NAN_ : INFINITE_;
    else
      x = __builtin_ldexpf(exponent ? 1 + x : x,
                           exponent ? exponent - BIAS : 1 - BIAS);
    return bits >> 15 ? -x : x;
  }
  friend Short operator+(Short a, Short b) {
    return Short(float(a) + float(b));
  }
  static constexpr float NAN_ = __builtin_nanf(""),
                         INFINITE_ = __builtin_inff();
};
typedef Short<10, 5> half;
typedef Short<7, 8> bfloat;

namespace lanes {
inline std::vector<float> brought[32];
inline size_t place;
inline int now;
inline bool second;

inline float sum() {
  float all[32];
  for (int i = 0; i < 32; i++)
    all[i] = brought[i].at(place);
  for (int width = 16; width; width /= 2)
    for (int i = 0; i < width; i++)
      all[i] += all[i + width];
  place++;
  return all[0];
}

template <typename Body> void run(Body body) {
  for (auto &one : brought)
    one.clear();
  for (int round = 0; round < 2; round++)
    for (int lane = 0; lane < 32; lane++) {
      second = round, now = lane, place = 0;
      body(lane);
    }
}
} // namespace lanes

inline float simd_sum(float x) {
  using namespace lanes;
  if (!second)
    return brought[now].push_back(x), 0.f;
  if (std::memcmp(&x, &brought[now].at(place), 4)) {
    std::fputs("a lane brings another number to simd_sum in the second round\n",
               stderr);
    std::abort();
  }
  return sum();
}
// Of kernels that are only parsed.
float quad_sum(float);
float simd_shuffle_down(float, int);
