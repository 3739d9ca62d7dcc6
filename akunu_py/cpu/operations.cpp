// Functions in place of some of MLX's on the CPU; replacements.c says how they are found.
//
// Each returns a lazy array, which MLX evaluates in its stream like any other. What a kernel does
// not know goes to MLX's function: other types and shapes, other devices, gradients.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "chains.h"
#include "mlx/fast.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "primitives.h"

namespace akunu {

using Maybe = std::optional<array>;
using Number = std::optional<int>;
using Where = mx::StreamOrDevice;

// Those functions that are replaced of which MLX has several with the name. The others are named:
// if MLX declared one with another signature, the definition below would make its name ambiguous.
constexpr array (*ROPE)(const array&, int, bool, std::optional<float>, float, const array&,
                        const Maybe&, Where) = &mx::fast::rope;
constexpr array (*LOG_SUM_EXP)(const array&, const std::vector<int>&, bool, Where) = &mx::logsumexp;
constexpr array (*SOFTMAX)(const array&, const std::vector<int>&, bool, Where) = &mx::softmax;

const char* linker_name(void* function) {
  Dl_info found;
  return dladdr(function, &found) ? found.dli_sname : nullptr;
}

// Calls MLX's own function: the next one that has the name of this library's.
template <auto FUNCTION, class... Arguments>
array own(Arguments&&... arguments) {
  static const auto next = [] {
    const char* name = linker_name(reinterpret_cast<void*>(FUNCTION));
    void* found = name ? dlsym(RTLD_NEXT, name) : nullptr;
    if (!found) throw std::runtime_error("akunu: a function of MLX was not found");
    return reinterpret_cast<decltype(FUNCTION)>(found);
  }();
  return next(std::forward<Arguments>(arguments)...);
}

template <class... Functions>
std::array<void*, sizeof...(Functions)> places_of(Functions*... functions) {
  return {reinterpret_cast<void*>(functions)...};
}

// Names of operations that others take in.
constexpr const char *PRODUCT = "AkunuProduct", *SIGMOID = "AkunuSigmoid";

// Calls that the kernels took, for the check that the linker did what it should.
std::atomic<uint64_t> taken{0};

// Whether all arrays are float32 and nobody traces what is done with them.
template <class... Arrays>
bool plain(const Arrays&... arrays) {
  return ((arrays.dtype() == mx::float32 && arrays.size() > 0 && !arrays.is_tracer()) && ...);
}

// Whether calls go to the kernels at all; the check compares them with MLX's own functions.
std::atomic<bool> enabled{true};

bool on_cpu(const mx::Stream& stream) { return enabled && stream.device == mx::Device::cpu; }

array lazy(const char* name, mx::Shape shape, std::vector<array> inputs, mx::Stream stream,
           Prepare prepare) {
  taken++;
  return array(std::move(shape), mx::float32,
               std::make_shared<Kernel>(stream, name, std::move(prepare)), std::move(inputs));
}

// What a kernel made of its inputs, made of one more.
array with_input(const char* name, const array& a, const array& more, mx::Stream stream) {
  auto inputs = a.inputs();
  inputs.push_back(more);
  return lazy(name, a.shape(), std::move(inputs), stream,
              static_cast<const Kernel&>(a.primitive()).prepare);
}

}  // namespace akunu

namespace mlx::core {

using namespace akunu;

// How weights are packed, if the kernels know it.
std::optional<Packing> packing_of(const array& x, const array& w, const array& scales,
                                  const Maybe& biases, Number group_size, Number bits,
                                  const std::string& mode) {
  const bool affine = mode == "affine", nvidia = mode == "nvfp4";
  const int group = group_size.value_or(affine ? 64 : nvidia ? 16 : 32), width = bits.value_or(4);
  if (!plain(x) || x.ndim() == 0 || w.is_tracer() || w.dtype() != uint32 || w.size() == 0 ||
      scales.is_tracer() || w.ndim() < 2 || group < 1 || group % (affine ? 32 : LANES) != 0 ||
      width < 1 || width > 8 || width == 7 || scales.ndim() != w.ndim() ||
      scales.shape(-2) != w.shape(-2) ||
      int64_t(scales.shape(-1)) * group * width != int64_t(w.shape(-1)) * 32)
    return {};
  if (affine ? !biases || !plain(scales, *biases) || biases->shape() != scales.shape()
             : (mode != "mxfp4" && !nvidia) || biases || width != 4 || scales.dtype() != uint8)
    return {};
  return Packing{group, width, affine, nvidia};
}

std::vector<array> inputs_of(const array& x, const array& w, const array& scales,
                             const Maybe& biases) {
  std::vector<array> inputs{x, w, scales};
  if (biases) inputs.push_back(*biases);
  return inputs;
}

// The array of which the last two axes are swapped in another; none if their order is another.
Maybe swapped(const array& a, Stream stream) {
  if (a.is_tracer()) return {};
  if (a.has_primitive()) {
    if (a.primitive().name() != std::string("Transpose")) return {};
    auto axes = static_cast<const Transpose&>(a.primitive()).state();
    std::swap(axes[axes.size() - 2], axes.back());
    return std::ranges::is_sorted(axes) ? Maybe(a.inputs()[0]) : Maybe();
  }
  // A view that was evaluated knows only the distances of its numbers.
  const bool known = a.is_available() && a.strides(-2) == 1 && a.strides(-1) == a.shape(-2);
  return known ? Maybe(swapaxes(a, -1, -2, stream)) : Maybe();
}

// Dense weights [..., rows, columns] of the kernels' form, if x is multiplied by their transposes.
Maybe dense_weights(const array& x, const array& transposed, Stream stream) {
  if (x.ndim() < 2 || transposed.ndim() < 2 || x.shape(-1) == 0 || x.shape(-1) % DENSE_GROUP != 0)
    return {};
  auto w = swapped(transposed, stream);
  return w && plain(x, *w) && w->shape(-1) == x.shape(-1) ? w : Maybe();
}

// The rows of x that follow each other and are multiplied by one matrix of w; none if the axes of
// matrices are not successive ones of x, with all of their extents.
Number rows_of_each(const array& x, const array& w) {
  if (w.ndim() == 2) return x.size() / x.shape(-1);
  if (w.ndim() > x.ndim()) return {};
  const int missing = x.ndim() - w.ndim();
  const auto extent = [&](int axis) { return axis < missing ? 1 : w.shape(axis - missing); };
  int axis = x.ndim() - 3, rows = x.shape(-2);
  for (; axis >= 0 && extent(axis) == 1; axis--) rows *= x.shape(axis);
  for (; axis >= 0 && extent(axis) == x.shape(axis);) axis--;
  for (; axis >= 0; axis--)
    if (extent(axis) != 1) return {};
  return rows;
}

array product(std::vector<array> inputs, Stream stream, Packing packing, int rows,
              bool transposed = true) {
  const array& w = inputs[1];
  auto shape = inputs[0].shape();
  shape.back() = transposed ? w.shape(-2) : packing.columns(w);
  const int matrices = w.size() / w.shape(-1) / w.shape(-2);
  // The shape of x is known; only the order of its numbers counts.
  if (made_by(inputs[0], "Reshape") && source_of(inputs[0].inputs()[0]))
    inputs[0] = array(inputs[0].inputs()[0]);
  Layout x = read_through(inputs);
  const ProductSettings settings{packing, rows, matrices, transposed, std::move(x)};
  return lazy(transposed ? PRODUCT : "AkunuWeightedSums", std::move(shape), std::move(inputs),
              stream, std::bind_front(product_work, settings));
}

array matmul(const array& x, const array& transposed, Where where) {
  const auto stream = to_stream(where);
  const auto w = dense_weights(x, transposed, stream);
  const auto rows = w ? rows_of_each(x, *w) : std::nullopt;
  if (!on_cpu(stream) || !rows) return own<matmul>(x, transposed, where);
  return product({x, *w}, stream, DENSE, *rows);
}

array addmm(array bias, array x, array transposed, const float& alpha, const float& beta,
            Where where) {
  const auto stream = to_stream(where);
  if (!on_cpu(stream) || !plain(bias, x) || alpha != 1 || beta != 1 ||
      !dense_weights(x, transposed, stream))
    return own<addmm>(std::move(bias), std::move(x), std::move(transposed), alpha, beta, where);
  return add(matmul(x, transposed, stream), bias, stream);
}

// MLX divides by the rows of x and of packed weights, so a product of none ends the process.
array unless_empty(array product, const array& x, const array& w, Stream stream) {
  if ((x.size() && w.size()) || !on_cpu(stream)) return product;
  return zeros(product.shape(), product.dtype(), stream);
}

array quantized_matmul(const array& x, const array& w, const array& scales, const Maybe& biases,
                       bool transpose, Number group_size, Number bits, const std::string& mode,
                       Where where) {
  const auto stream = to_stream(where);
  const auto packing = packing_of(x, w, scales, biases, group_size, bits, mode);
  const bool fits = packing && x.shape(-1) == (transpose ? packing->columns(w) : w.shape(-2));
  const auto rows = fits ? rows_of_each(x, w) : std::nullopt;
  if (!on_cpu(stream) || !rows)
    return unless_empty(
        own<quantized_matmul>(x, w, scales, biases, transpose, group_size, bits, mode, where), x, w,
        stream);
  return product(inputs_of(x, w, scales, biases), stream, *packing, *rows, transpose);
}

// Whether the kernels know how experts are chosen for rows of x [..., length, columns].
bool known_choice(const array& x, const array& w, const Maybe& left, const Maybe& right) {
  return w.ndim() == 3 && x.ndim() >= 2 && right && !right->is_tracer() && right->size() > 0 &&
         !(left && left->is_tracer());
}

array gathered(std::vector<array> inputs, Maybe left, const array& right, Stream stream,
               Packing packing) {
  const array& x = inputs[0];
  const int length = x.shape(-2), rows = inputs[1].shape(-2);
  if (!left) {
    const Shape batch(x.shape().begin(), x.shape().end() - 2);
    const int count = int(x.size() / x.shape(-1) / length);
    left = reshape(arange(0, count, uint32, stream), batch, stream);
  }
  const auto pairs =
      broadcast_arrays({astype(*left, uint32, stream), astype(right, uint32, stream)}, stream);
  inputs.insert(inputs.end(), pairs.begin(), pairs.end());
  auto shape = pairs[1].shape();
  shape.push_back(length);
  shape.push_back(rows);
  return lazy("AkunuGatheredProduct", std::move(shape), std::move(inputs), stream,
              std::bind_front(gathered_work, packing));
}

array gather_mm(array x, array transposed, Maybe left, Maybe right, bool sorted, Where where) {
  const auto stream = to_stream(where);
  const auto w = dense_weights(x, transposed, stream);
  if (!on_cpu(stream) || !w || !known_choice(x, *w, left, right))
    return own<gather_mm>(std::move(x), std::move(transposed), std::move(left), std::move(right),
                          sorted, where);
  return gathered({x, *w}, std::move(left), *right, stream, DENSE);
}

array gather_qmm(const array& x, const array& w, const array& scales, const Maybe& biases,
                 Maybe left, Maybe right, bool transpose, Number group_size, Number bits,
                 const std::string& mode, const Maybe& global_scale, bool sorted, Where where) {
  const auto stream = to_stream(where);
  const auto packing = packing_of(x, w, scales, biases, group_size, bits, mode);
  if (!on_cpu(stream) || !transpose || !packing || x.shape(-1) != packing->columns(w) ||
      !known_choice(x, w, left, right) || global_scale)
    return unless_empty(
        own<gather_qmm>(x, w, scales, biases, std::move(left), std::move(right), transpose,
                        group_size, bits, mode, global_scale, sorted, where),
        x, w, stream);
  return gathered(inputs_of(x, w, scales, biases), std::move(left), *right, stream, *packing);
}

array sigmoid(const array& x, Where where) {
  const auto stream = to_stream(where);
  if (!on_cpu(stream) || !plain(x)) return own<sigmoid>(x, where);
  return lazy(SIGMOID, x.shape(), {x}, stream, sigmoid_work);
}

array multiply(const array& a, const array& b, Where where) {
  const auto stream = to_stream(where);
  if (on_cpu(stream) && plain(a, b) && a.shape() == b.shape()) {
    if (made_by(a, SIGMOID)) return with_input(SIGMOID, a, b, stream);
    if (made_by(b, SIGMOID)) return with_input(SIGMOID, b, a, stream);
  }
  return own<multiply>(a, b, where);
}

// Products on the right are added to what is on the left. In sums such as x + f(x) the left is read
// twice, and a product there would be computed twice.
array add(const array& a, const array& b, Where where) {
  const auto stream = to_stream(where);
  if (on_cpu(stream) && plain(a, b) && a.shape() == b.shape() && made_by(b, PRODUCT))
    return with_input("AkunuProductSum", b, a, stream);
  return own<add>(a, b, where);
}

array logsumexp(const array& x, const std::vector<int>& axes, bool keepdims, Where where) {
  const auto stream = to_stream(where);
  // Of the last axis, and of others that have one number.
  bool last = false;
  int count = 1;
  for (int axis : axes) {
    last |= axis == -1 || axis == int(x.ndim()) - 1;
    count *= x.shape(axis);
  }
  if (!on_cpu(stream) || !plain(x) || !last || count != x.shape(-1))
    return own<LOG_SUM_EXP>(x, axes, keepdims, where);
  auto shape = x.shape();
  shape.back() = 1;
  const OfRow of{10, [](auto x, auto, int size, float* y) { *y = softmax_of_row(x, size).second; }};
  auto sums = lazy("AkunuLogSumExp", shape, {x}, stream, std::bind_front(rows_work, of));
  return keepdims ? sums : squeeze(sums, axes, stream);
}

array softmax(const array& x, const std::vector<int>& axes, bool precise, Where where) {
  const auto stream = to_stream(where);
  const bool of_last = axes.size() == 1 && (axes[0] == -1 || axes[0] == int(x.ndim()) - 1);
  if (!on_cpu(stream) || !plain(x) || x.ndim() == 0 || !of_last)
    return own<SOFTMAX>(x, axes, precise, where);
  const OfRow of{10, [](auto x, auto, int size, float* y) {
                   std::copy_n(softmax_of_row(x, size).first, size, y);
                 }};
  return lazy("AkunuSoftmax", x.shape(), {x}, stream, std::bind_front(rows_work, of));
}

namespace fast {

array rms_norm(const array& x, const Maybe& weight, float epsilon, Where where) {
  const auto stream = to_stream(where);
  if (!on_cpu(stream) || !weight || !plain(x, *weight) || weight->ndim() != 1 || x.ndim() < 1 ||
      weight->shape(0) != x.shape(-1) || x.shape(-1) % LANES != 0)
    return own<rms_norm>(x, weight, epsilon, where);
  const OfRow of{1, [epsilon](auto x, auto weight, int size, auto y) {
                   arithmetic->rms_norm(x, weight, epsilon, size, y);
                 }};
  return lazy("AkunuRmsNorm", x.shape(), {x, *weight}, stream, std::bind_front(rows_work, of));
}

array rope(const array& x, int dims, bool traditional, std::optional<float> base, float scale,
           const array& offset, const Maybe& periods, Where where) {
  const auto stream = to_stream(where);
  const bool one_each = offset.ndim() == 1 && x.ndim() == 4 && offset.shape(0) == x.shape(0);
  const bool known =
      on_cpu(stream) && plain(x) && x.ndim() == 4 && dims % 2 == 0 && dims <= x.shape(3) &&
      offset.dtype() == int32 && !offset.is_tracer() && (offset.size() == 1 || one_each) &&
      base.has_value() != periods.has_value() &&
      (!periods || (plain(*periods) && periods->ndim() == 1 && periods->shape(0) == dims / 2));
  if (!known) return own<ROPE>(x, dims, traditional, base, scale, offset, periods, where);
  std::vector<array> inputs{x, offset};
  if (periods) inputs.push_back(*periods);
  Layout layout = read_through(inputs);
  const RopeSettings settings{dims, traditional, base.value_or(1), scale};
  return lazy("AkunuRope", x.shape(), std::move(inputs), stream,
              std::bind_front(rope_work, settings, std::move(layout)));
}

array scaled_dot_product_attention(const array& q, const array& k, const array& v, float scale,
                                   const std::string& mode, Maybe mask, const Maybe& sinks,
                                   bool force_fused, Where where) {
  const auto stream = to_stream(where);
  const bool causal = mode == "causal";
  const bool known =
      on_cpu(stream) && plain(q, k, v) && q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4 &&
      k.shape(0) == q.shape(0) && v.shape(0) == q.shape(0) && v.shape(1) == k.shape(1) &&
      v.shape(2) == k.shape(2) && q.shape(1) % k.shape(1) == 0 && k.shape(3) == q.shape(3) &&
      q.shape(3) % LANES == 0 && v.shape(3) % LANES == 0 &&
      (!causal || (q.shape(2) <= k.shape(2) && !mask)) &&
      (!mask || (!mask->is_tracer() && mask->ndim() <= 4 &&
                 (mask->dtype() == bool_ || mask->dtype() == float32))) &&
      (!sinks || (plain(*sinks) && sinks->ndim() == 1 && sinks->shape(0) == q.shape(1)));
  if (!known)
    return own<scaled_dot_product_attention>(q, k, v, scale, mode, std::move(mask), sinks,
                                             force_fused, where);
  std::vector<array> inputs{q, whole_of(k), whole_of(v)};
  if (mask) {
    const Shape all{q.shape(0), q.shape(1), q.shape(2), k.shape(2)};
    inputs.push_back(broadcast_to(*mask, all, stream));
  }
  if (sinks) inputs.push_back(*sinks);
  auto shape = q.shape();
  shape.back() = v.shape(3);
  const AttentionSettings settings{scale, causal, mask.has_value(), sinks.has_value(), k.shape(2)};
  return lazy("AkunuAttention", std::move(shape), std::move(inputs), stream,
              std::bind_front(attention_work, settings));
}

}  // namespace fast
}  // namespace mlx::core

extern "C" {

#define EXPORT [[gnu::visibility("default")]]

// Writes the linker's names of the functions and where they are; returns their number.
EXPORT int akunu_replacements(const char** names, void** functions) {
  using namespace akunu;
  const auto all = places_of(mx::matmul, mx::addmm, mx::gather_mm, mx::quantized_matmul,
                             mx::gather_qmm, mx::sigmoid, mx::add, mx::multiply, mx::fast::rms_norm,
                             mx::fast::scaled_dot_product_attention, ROPE, LOG_SUM_EXP, SOFTMAX);
  for (size_t i = 0; i < std::size(all); i++) {
    names[i] = linker_name(all[i]);
    functions[i] = all[i];
  }
  return std::size(all);
}

EXPORT void akunu_compute_with(const akunu::Arithmetic* table) { akunu::arithmetic = table; }
EXPORT uint64_t akunu_taken() { return akunu::taken; }
EXPORT void akunu_enable(int whether) { akunu::enabled = whether; }
EXPORT void akunu_use_threads(int number) { akunu::Threads::all().use(number); }
}
