// The library of the arithmetic: one table of its functions, and the level of
// processors it was built for.

#include "arithmetic.h"

#include "attention.h"
#include "products.h"
#include "rows.h"

extern "C" [[gnu::visibility("default")]] const char* akunu_level() { return LEVEL; }

extern "C" [[gnu::visibility("default")]] const akunu::Arithmetic* akunu_arithmetic() {
  using namespace akunu;
  static constexpr Arithmetic TABLE{product, weighted_sums, rms_norm,         softmax,
                                    sigmoid, rotate,        attention_scores, attention_outputs};
  return &TABLE;
}
