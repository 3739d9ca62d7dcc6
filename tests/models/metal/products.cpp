// Products that a test asks for on stdin: by the kernel's body, and by MLX's
// own product of one row.

#include "one_simdgroup.h"

#define threadgroup
struct short2 {
  short x, y;
};
#include "mlx_quantized.h"

#include "few_rows.h"

// Number, FORM_BITS, FORM_GROUP, and TILES with the rows and outputs of each
// tile.
#include "form.h"

template <typename T, int BITS, int GROUP, int VALUES, int ROWS, int OUTPUTS>
void own(const T *x, const uint32_t *w, const T *scales, const T *biases, T *y,
         const int *x_shape, const int *w_shape) {
  for (int place = 0; place < (w_shape[0] + OUTPUTS - 1) / OUTPUTS; place++)
    lanes::run([=](uint thread_index_in_simdgroup) {
      const uint3 thread_position_in_grid = {thread_index_in_simdgroup,
                                             uint(place), 0};
#include "body.h"
    });
}

template <bool FAST>
void of_mlx(const Number *x, const uint32_t *w, const Number *scales,
            const Number *biases, Number *y, int rows, int cols, int outs) {
  for (uint row = 0; row < uint(rows); row++)
    for (uint block = 0; block < uint(outs + 7) / 8; block++)
      for (uint simdgroup = 0; simdgroup < 2; simdgroup++)
        lanes::run([&](uint lane) {
          const uint3 place = {row, block, 0};
          if (FAST)
            qmv_fast_impl<Number, FORM_GROUP, FORM_BITS>(
                w, scales, biases, x, y, cols, outs, place, simdgroup, lane);
          else
            qmv_impl<Number, FORM_GROUP, FORM_BITS>(
                w, scales, biases, x, y, cols, outs, place, simdgroup, lane);
        });
}

template <typename T> T *read(size_t count) {
  // As long as its numbers: the sanitizer sees whatever is read behind them.
  T *numbers = new T[count];
  if (std::fread(numbers, sizeof(T), count, stdin) != count)
    std::exit(0);
  return numbers;
}

template <int VALUES>
void own_of(int tile, const Number *x, const uint32_t *w, const Number *scales,
            const Number *biases, Number *y, const int *x_shape,
            const int *w_shape) {
#define TRY(ROWS, OUTPUTS)                                                     \
  if (tile == ROWS)                                                            \
    own<Number, FORM_BITS, FORM_GROUP, VALUES, ROWS, OUTPUTS>(                 \
        x, w, scales, biases, y, x_shape, w_shape);
  TILES(TRY)
}

int main() {
  for (;;) {
    const int *s = read<int>(5);
    const int rows = s[0], cols = s[1], outs = s[2], wide = s[3], tile = s[4];
    const Number *x = read<Number>(size_t(rows) * cols);
    const uint32_t *w = read<uint32_t>(size_t(outs) * cols * FORM_BITS / 32);
    const Number *scales = read<Number>(size_t(outs) * cols / FORM_GROUP);
    const Number *biases = read<Number>(size_t(outs) * cols / FORM_GROUP);
    Number *y = new Number[size_t(rows) * outs];
    std::memset((void *)y, 255,
                size_t(rows) * outs *
                    sizeof(Number)); // NaN where nothing writes
    const int x_shape[] = {rows, cols},
              w_shape[] = {outs, cols * FORM_BITS / 32};
    if (tile == 0)
      (wide ? of_mlx<true> : of_mlx<false>)(x, w, scales, biases, y, rows, cols,
                                            outs);
    else
      (wide ? own_of<WIDE> : own_of<NARROW>)(tile, x, w, scales, biases, y,
                                             x_shape, w_shape);
    std::fwrite(y, sizeof(Number), size_t(rows) * outs, stdout);
    std::fflush(stdout);
    delete[] s, delete[] x, delete[] w, delete[] scales, delete[] biases,
        delete[] y;
  }
}
