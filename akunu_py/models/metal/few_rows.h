// The product of few rows with quantized weights, in the Metal language; `few_rows.py` runs it.
//
// A simdgroup computes OUTPUTS outputs of every row, and reads their weights once. Lane l of its 32
// adds up the columns l * VALUES to (l + 1) * VALUES - 1 of each block of 32 * VALUES columns, then
// the lanes' sums are added. No other simdgroup adds to an output, and nothing that is added for a
// row depends on how many rows there are or on OUTPUTS: so a row has the same bits whatever the
// number of rows.
//
// The order is that of the product of one row in MLX (qmv in
// mlx/backend/metal/kernels/quantized.h), of which only the order and the layout of codes were
// taken: a row then has the bits of MLX's own single row, where both are compiled to the same
// operations. Products of a code and a float16 or bfloat16 are exact in float32, so that leaves the
// line marked below, and the self-check decides. That a verifying product can have the single
// product's order is known from mlx-vlm, that it can be independent of the number of rows from
// mlx-dspark.

// As in MLX: with one bit, groups of activations are added in their own type.
template <int BITS, typename T>
struct GroupSum {
  typedef float type;
};

template <typename T>
struct GroupSum<1, T> {
  typedef T type;
};

// Whether code i of a thread lies in two bytes, which add a part of the product each.
template <int BITS>
constexpr bool in_two_bytes(int i) {
  return i * BITS % 8 + BITS > 8;
}

// Reads as wide words as the alignment of a thread's codes allows.
template <int BYTES>
METAL_FUNC void read_bytes(const device uchar* from, thread uchar* to) {
#pragma unroll
  for (int i = 0; i < BYTES; i += BYTES % 4 == 0 ? 4 : BYTES % 2 == 0 ? 2 : 1) {
    if (BYTES % 4 == 0) {
      const uint word = *(const device uint*)(from + i);
      to[i] = uchar(word);
      to[i + 1] = uchar(word >> 8);
      to[i + 2] = uchar(word >> 16);
      to[i + 3] = uchar(word >> 24);
    } else if (BYTES % 2 == 0) {
      const ushort word = *(const device ushort*)(from + i);
      to[i] = uchar(word);
      to[i + 1] = uchar(word >> 8);
    } else {
      to[i] = from[i];
    }
  }
}

// Cuts bytes into codes: `low` has the part of a code in its first byte, `high` that in its second.
template <int BITS, int VALUES>
METAL_FUNC void unpack(const thread uchar* bytes, thread half* low, thread half* high) {
  constexpr uint MASK = (1u << BITS) - 1;
#pragma unroll
  for (int i = 0; i < VALUES; ++i) {
    const int at = i * BITS / 8, shift = i * BITS % 8;
    low[i] = half(uint(bytes[at] >> shift) & MASK);
    if (in_two_bytes<BITS>(i)) high[i] = half((uint(bytes[at + 1]) << (8 - shift)) & MASK);
  }
}

template <int BITS, int VALUES>
METAL_FUNC float codes_times(const thread half* low, const thread half* high,
                             const thread float* x) {
  float sum = 0;
  if (BITS == 2 || BITS == 4) {
#pragma unroll
    for (int i = 0; i < VALUES; i += 4) {
      sum += x[i] * float(low[i]) + x[i + 1] * float(low[i + 1]) + x[i + 2] * float(low[i + 2]) +
             x[i + 3] * float(low[i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
      sum += x[i] * float(low[i]);
      if (in_two_bytes<BITS>(i)) sum += x[i] * float(high[i]);
    }
  }
  return sum;
}

// Reads a thread's columns of a row and returns their sum.
template <typename T, int BITS, int VALUES>
METAL_FUNC float read_row(const device T* from, thread float* x) {
  typedef typename GroupSum<BITS, T>::type Sum;
  constexpr int TERMS = BITS == 8 ? 1 : BITS % 2 == 0 ? 4 : 8;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < VALUES; i += TERMS) {
    Sum group = Sum(from[i]);
#pragma unroll
    for (int j = 0; j < TERMS; ++j) {
      x[i + j] = float(from[i + j]);
      if (j > 0) group = group + Sum(from[i + j]);
    }
    sum += float(group);
  }
  return sum;
}

METAL_FUNC float with_bias(float scale, float products, float sum, float bias) {
  // One multiplication and addition may be fused here; MLX has the same line.
  return scale * products + sum * bias;
}

// x [rows, cols], codes [outs, cols * BITS / 8], scales and biases [outs, cols / GROUP], y [rows,
// outs].
template <typename T, int BITS, int GROUP, int VALUES, int ROWS, int OUTPUTS>
METAL_FUNC void few_rows(const device T* x, const device uchar* codes, const device T* scales,
                         const device T* biases, device T* y, int rows, int cols, int outs,
                         int first, int lane) {
  if (first >= outs) return;
  constexpr int BYTES = VALUES * BITS / 8;
  float result[ROWS][OUTPUTS] = {{0}};
  const device uchar* codes_of[OUTPUTS];
  const device T* scales_of[OUTPUTS];
  const device T* biases_of[OUTPUTS];
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
    // Behind the last output its weights are read again, and nothing is written.
    const size_t out = first + o < outs ? first + o : outs - 1;
    codes_of[o] = codes + out * (cols / 8 * BITS);
    scales_of[o] = scales + out * (cols / GROUP);
    biases_of[o] = biases + out * (cols / GROUP);
  }
  for (int k = lane * VALUES; k < cols; k += 32 * VALUES) {
    half low[OUTPUTS][VALUES], high[OUTPUTS][VALUES];
    float scale[OUTPUTS], bias[OUTPUTS];
#pragma unroll
    for (int o = 0; o < OUTPUTS; ++o) {
      uchar bytes[BYTES];
      read_bytes<BYTES>(codes_of[o] + k / VALUES * BYTES, bytes);
      unpack<BITS, VALUES>(bytes, low[o], high[o]);
      scale[o] = float(scales_of[o][k / GROUP]);
      bias[o] = float(biases_of[o][k / GROUP]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (r < rows) {
        float part[VALUES];
        const float sum = read_row<T, BITS, VALUES>(x + r * cols + k, part);
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o) {
          result[r][o] +=
              with_bias(scale[o], codes_times<BITS, VALUES>(low[o], high[o], part), sum, bias[o]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (r < rows) {
#pragma unroll
      for (int o = 0; o < OUTPUTS; ++o) {
        const float total = simd_sum(result[r][o]);
        if (lane == 0 && first + o < outs) y[r * outs + first + o] = T(total);
      }
    }
  }
}
