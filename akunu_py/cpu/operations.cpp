// Functions in place of some of MLX's on the CPU; replacements.c says how they are found.
//
// Each returns a lazy array, which MLX evaluates in its stream like any other. What a kernel does
// not know goes to MLX's function: other types and shapes, other devices, gradients.

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/fast.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"
#include "threads.h"

namespace mx = mlx::core;

namespace akunu {

using mx::array;
using Maybe = std::optional<array>;
using Number = std::optional<int>;
using Where = mx::StreamOrDevice;

// The functions that are replaced. That MLX declares each so is checked here: with another
// signature the definitions below would be functions that nobody calls.
constexpr array (*MATMUL)(const array&, const array&, Where) = &mx::matmul;
constexpr array (*ADDMM)(array, array, array, const float&, const float&, Where) = &mx::addmm;
constexpr array (*GATHER)(array, array, Maybe, Maybe, bool, Where) = &mx::gather_mm;
constexpr array (*PACKED_MATMUL)(const array&, const array&, const array&, const Maybe&, bool,
                                 Number, Number, const std::string&, Where) = &mx::quantized_matmul;
constexpr array (*PACKED_GATHER)(const array&, const array&, const array&, const Maybe&, Maybe,
                                 Maybe, bool, Number, Number, const std::string&, const Maybe&,
                                 bool, Where) = &mx::gather_qmm;
constexpr array (*NORM)(const array&, const Maybe&, float, Where) = &mx::fast::rms_norm;
constexpr array (*ROPE)(const array&, int, bool, std::optional<float>, float, const array&,
                        const Maybe&, Where) = &mx::fast::rope;
constexpr array (*ATTENTION)(const array&, const array&, const array&, float, const std::string&,
                             Maybe, const Maybe&, bool,
                             Where) = &mx::fast::scaled_dot_product_attention;
constexpr array (*SIGMOID)(const array&, Where) = &mx::sigmoid;
constexpr array (*LOG_SUM_EXP)(const array&, const std::vector<int>&, bool, Where) = &mx::logsumexp;
constexpr array (*SOFTMAX)(const array&, const std::vector<int>&, bool, Where) = &mx::softmax;

const char* linker_name(void* function) {
  Dl_info found;
  return dladdr(function, &found) ? found.dli_sname : nullptr;
}

// MLX's own function: the next one that has the name of this library's.
template <class Function>
Function* replaced(Function* own) {
  const char* name = linker_name(reinterpret_cast<void*>(own));
  void* next = name ? dlsym(RTLD_NEXT, name) : nullptr;
  if (!next) throw std::runtime_error("akunu: a function of MLX was not found");
  return reinterpret_cast<Function*>(next);
}

// Calls that the kernels took, for the check that the linker did what it should.
std::atomic<uint64_t> taken{0};

// Less work than so many multiplications is not worth a second thread.
constexpr double LEAST_WORK = 1e5;
// Parts for each thread, so that one which is late leaves little to wait for.
constexpr int PARTS = 4;

// Calls work(begin, end) for parts of `count` things, which together are `amount` of work; all
// parts but the last have a multiple of `multiple` things.
template <class Work>
void in_parts(int count, int multiple, double amount, const Work& work) {
  Threads& threads = Threads::all();
  if (threads.number() == 1 || amount < LEAST_WORK) return work(0, count);
  const double most = std::min(amount / LEAST_WORK + 1, double(threads.number() * PARTS));
  const int size = (count / int(most) + multiple) / multiple * multiple;
  threads.run((count + size - 1) / size,
              [&](int part) { work(part * size, std::min(count, (part + 1) * size)); });
}

// The numbers of an array as kernels read them. MLX keeps an array's memory until queued work is
// done, but not the array.
template <class T>
struct View {
  const T* data;
  mx::Shape shape;
  mx::Strides strides;
  bool ordered;

  explicit View(const array& a)
      : data(a.data<T>()),
        shape(a.shape()),
        strides(a.strides()),
        ordered(a.flags().row_contiguous) {}

  // The numbers without gaps and in order; copied to `space` if they are not so already.
  const T* in_order(std::vector<T>& space) const {
    if (ordered) return data;
    space.clear();
    copy(data, 0, space);
    return space.data();
  }

  // Matrix number i of the last two axes, without gaps and in order; copied to `space` if it is
  // not so already.
  const T* matrix(size_t i, std::vector<T>& space) const {
    const T* from = data;
    const int rows = int(shape.size()) - 2;
    for (int axis = rows - 1; axis >= 0; i /= shape[axis--])
      from += i % shape[axis] * strides[axis];
    if (strides.back() == 1 && strides[rows] == shape.back()) return from;
    space.clear();
    copy(from, rows, space);
    return space.data();
  }

  size_t size() const {
    size_t count = 1;
    for (int extent : shape) count *= extent;
    return count;
  }

  // The same array with the numbers of its last axis side by side.
  View in_rows(std::vector<T>& space) const {
    if (strides.back() == 1) return *this;
    View other = *this;
    other.data = in_order(space);
    for (int axis = int(shape.size()) - 1, step = 1; axis >= 0; step *= shape[axis--])
      other.strides[axis] = step;
    return other;
  }

 private:
  void copy(const T* from, size_t axis, std::vector<T>& to) const {
    for (int i = 0; i < shape[axis]; i++, from += strides[axis]) {
      if (axis + 1 == shape.size()) {
        to.push_back(*from);
      } else {
        copy(from, axis + 1, to);
      }
    }
  }
};

class Operation : public mx::UnaryPrimitive {
 public:
  using UnaryPrimitive::UnaryPrimitive;

  void eval_gpu(const std::vector<array>&, array&) override {
    throw std::runtime_error("akunu: a kernel of the CPU was queued on a GPU");
  }

 protected:
  float* memory(array& out) const {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    return out.data<float>();
  }

  // The memory of an input of the same size that nobody else needs, for kernels that read each
  // number before they write in its place.
  float* memory_of(const array& in, array& out) const {
    if (!in.is_donatable() || !in.flags().row_contiguous || in.nbytes() != out.nbytes())
      return memory(out);
    out.copy_shared_buffer(in);
    return out.data<float>();
  }

  template <class Work>
  void queue(Work work) {
    mx::cpu::get_command_encoder(stream()).dispatch(std::move(work));
  }
};

// An operation with settings beside its inputs.
template <class Settings>
class With : public Operation {
 public:
  With(mx::Stream stream, Settings settings) : Operation(stream), settings_(settings) {}

 protected:
  const Settings settings_;
};

// How weights are packed; MLX's modes other than "affine" have scales of a byte and no biases.
struct Packing {
  int group, bits;
  bool affine, nvidia;

  bool dense() const { return bits == DENSE.bits; }
  static const Packing DENSE;
};

constexpr Packing Packing::DENSE{Dense::GROUP, 32, false, false};

// The numbers that bytes stand for: powers of two (E8M0), or E4M3 as in NVIDIA's format.
const float* small_floats(bool nvidia) {
  static const auto both = [] {
    std::array<std::array<float, 256>, 2> numbers;
    for (int byte = 0; byte < 256; byte++) {
      const int exponent = byte >> 3 & 15, digits = byte & 7;
      const float size =
          exponent ? std::ldexp(8.0f + digits, exponent - 10) : std::ldexp(float(digits), -9);
      numbers[0][byte] = std::ldexp(1.0f, byte - 127);
      numbers[1][byte] = byte & 128 ? -size : size;
    }
    return numbers;
  }();
  return both[nvidia].data();
}

// Packed or dense matrices, one behind the other.
struct Matrices {
  Matrices(const std::vector<array>& in, Packing packing)
      : codes(in[1]),
        packing(packing),
        rows(in[1].shape(-2)),
        columns(int(int64_t(in[1].shape(-1)) * 32 / packing.bits)) {
    if (packing.affine) {
      scales.emplace(in[2]);
      biases.emplace(in[3]);
    } else if (!packing.dense()) {
      bytes.emplace(in[2]);
    }
  }

  // Matrix number i, as it is until this thread asks for the next.
  Packed at(size_t i) const {
    static thread_local std::vector<uint32_t> code_space;
    static thread_local std::vector<float> scale_space, bias_space;
    static thread_local std::vector<uint8_t> byte_space;
    const auto* own_codes = reinterpret_cast<const uint8_t*>(codes.matrix(i, code_space));
    Packed matrix{own_codes, nullptr, nullptr, rows, columns, packing.group, packing.bits};
    if (packing.affine) {
      matrix.scales = scales->matrix(i, scale_space);
      matrix.biases = biases->matrix(i, bias_space);
    } else if (!packing.dense()) {
      const uint8_t* own_bytes = bytes->matrix(i, byte_space);
      const float* numbers = small_floats(packing.nvidia);
      scale_space.resize(size_t(rows) * matrix.groups());
      for (size_t group = 0; group < scale_space.size(); group++)
        scale_space[group] = numbers[own_bytes[group]];
      matrix.scales = scale_space.data();
    }
    return matrix;
  }

  View<uint32_t> codes;
  std::optional<View<float>> scales, biases;
  std::optional<View<uint8_t>> bytes;
  Packing packing;
  int rows, columns;
};

void product_in_parts(const Packed& w, const float* x, int count, float* y) {
  in_parts(w.rows, TILE_COUNT, double(w.rows) * w.columns * count,
           [&](int begin, int end) { product(w, begin, end, x, count, y); });
}

// Each matrix is multiplied by `rows` rows of x; behind the last comes the first again.
struct ProductSettings {
  Packing packing;
  int rows, matrices;
  bool transposed;
};

class Product : public With<ProductSettings> {
 public:
  using With::With;

  const char* name() const override { return "AkunuProduct"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    queue([x = View<float>(in[0]), matrices = Matrices(in, settings_.packing), of = settings_,
           rows = out.size() / out.shape(-1), y = memory(out)]() mutable {
      static thread_local std::vector<float> space;
      const float* from = x.in_order(space);
      for (size_t row = 0; row < rows; row += of.rows) {
        const Packed w = matrices.at(row / of.rows % of.matrices);
        if (of.transposed) {
          product_in_parts(w, from, of.rows, y);
        } else {
          in_parts(w.columns, SUMMED_COLUMNS, double(w.rows) * w.columns * of.rows,
                   [&](int begin, int end) { weighted_sums(w, begin, end, from, of.rows, y); });
        }
        from += size_t(of.rows) * (of.transposed ? w.columns : w.rows);
        y += size_t(of.rows) * (of.transposed ? w.rows : w.columns);
      }
    });
  }
};

// Rows of x times matrices, of which indices choose: of x [batch, length, columns] and w.
class GatheredProduct : public With<Packing> {
 public:
  using With::With;

  const char* name() const override { return "AkunuGatheredProduct"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    queue([x = View<float>(in[0]), matrices = Matrices(in, settings_), length = in[0].shape(-2),
           left = View<uint32_t>(in[in.size() - 2]), right = View<uint32_t>(in.back()),
           y = memory(out)] {
      static thread_local std::vector<float> space, chosen, products;
      static thread_local std::vector<uint32_t> lefts, rights, order;
      const float* values = x.in_order(space);
      const uint32_t *from = left.in_order(lefts), *by = right.in_order(rights);
      const size_t in_size = size_t(length) * matrices.columns;
      const size_t out_size = size_t(length) * matrices.rows;
      order.resize(right.size());
      for (size_t i = 0; i < order.size(); i++) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return by[a] < by[b]; });
      // Each matrix is read once, for all rows that it is chosen for.
      for (size_t first = 0, end; first < order.size(); first = end) {
        for (end = first; end < order.size() && by[order[end]] == by[order[first]];) end++;
        const size_t count = end - first;
        chosen.resize(count * in_size);
        products.resize(count * out_size);
        for (size_t i = 0; i < count; i++)
          std::copy_n(values + from[order[first + i]] * in_size, in_size, &chosen[i * in_size]);
        product_in_parts(matrices.at(by[order[first]]), chosen.data(), int(count) * length,
                         products.data());
        for (size_t i = 0; i < count; i++)
          std::copy_n(&products[i * out_size], out_size, y + order[first + i] * out_size);
      }
    });
  }
};

// Its setting is what is added to the mean square.
class RmsNorm : public With<float> {
 public:
  using With::With;

  const char* name() const override { return "AkunuRmsNorm"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    const int size = out.shape(-1), count = out.size() / size;
    queue([x = View<float>(in[0]), weight = View<float>(in[1]), epsilon = settings_, size, count,
           y = memory_of(in[0], out)] {
      static thread_local std::vector<float> space, weights;
      const float *values = x.in_order(space), *factors = weight.in_order(weights);
      in_parts(count, 1, double(size) * count, [&](int begin, int end) {
        for (size_t m = begin; m < size_t(end); m++)
          rms_norm(values + m * size, factors, epsilon, size, y + m * size);
      });
    });
  }
};

// Of the last axis.
class LogSumExp : public Operation {
 public:
  using Operation::Operation;

  const char* name() const override { return "AkunuLogSumExp"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    queue([x = View<float>(in[0]), count = int(out.size()), size = size_t(in[0].shape(-1)),
           y = memory(out)] {
      static thread_local std::vector<float> space;
      const float* values = x.in_order(space);
      in_parts(count, 1, double(size) * count * 10, [&](int begin, int end) {
        for (int m = begin; m < end; m++) y[m] = log_sum_exp(values + m * size, size);
      });
    });
  }
};

// Of the last axis.
class Softmax : public Operation {
 public:
  using Operation::Operation;

  const char* name() const override { return "AkunuSoftmax"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    const int size = out.shape(-1), count = out.size() / size;
    queue([x = View<float>(in[0]), size, count, y = memory_of(in[0], out)] {
      static thread_local std::vector<float> space;
      const float* values = x.in_order(space);
      in_parts(count, 1, double(size) * count * 10, [&](int begin, int end) {
        static thread_local std::vector<float> row;
        row.assign(up_to_lanes(size), -std::numeric_limits<float>::infinity());
        for (size_t m = begin; m < size_t(end); m++) {
          std::copy_n(values + m * size, size, row.data());
          std::fill(row.begin() + size, row.end(), -std::numeric_limits<float>::infinity());
          softmax(row.data(), int(row.size()), nullptr);
          std::copy_n(row.data(), size, y + m * size);
        }
      });
    });
  }
};

class Sigmoid : public Operation {
 public:
  using Operation::Operation;

  const char* name() const override { return "AkunuSigmoid"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    constexpr int AT_ONCE = 4096;
    queue([x = View<float>(in[0]), size = out.size(), y = memory_of(in[0], out)] {
      static thread_local std::vector<float> space;
      const float* values = x.in_order(space);
      const int count = (size + AT_ONCE - 1) / AT_ONCE;
      in_parts(count, 1, double(size) * 10, [&](int begin, int end) {
        const size_t first = size_t(begin) * AT_ONCE;
        sigmoid(values + first, std::min(size, size_t(end) * AT_ONCE) - first, y + first);
      });
    });
  }
};

struct RopeSettings {
  int dims;
  bool neighbours;
  float base, scale;

  bool operator==(const RopeSettings&) const = default;
};

// Rotary positions (Su et al., RoFormer, 3.2.2) of x [batch, heads, length, size].
class Rope : public With<RopeSettings> {
 public:
  using With::With;

  const char* name() const override { return "AkunuRope"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    std::optional<View<float>> periods;
    if (in.size() > 2) periods.emplace(in[2]);
    queue([settings = settings_, x = View<float>(in[0]), offset = View<int>(in[1]),
           several = in[1].size() > 1, periods, y = memory_of(in[0], out)] {
      static thread_local std::vector<float> space, given;
      const float* values = x.in_order(space);
      const float* period = periods ? periods->in_order(given) : nullptr;
      const int batch = x.shape[0], heads = x.shape[1], length = x.shape[2], size = x.shape[3];
      for (int b = 0; b < batch; b++) {
        const int first = offset.data[several ? b * offset.strides[0] : 0];
        const Angles& angles = angles_of(settings, first, length, period);
        in_parts(heads * length, 1, double(heads) * length * size, [&](int begin, int end) {
          for (int row = begin; row < end; row++) {
            const size_t at = (size_t(b) * heads * length + row) * size;
            const size_t angle = size_t(row % length) * (settings.dims / 2);
            rotate(values + at, size, &angles.cosines[angle], &angles.sines[angle],
                   settings.dims / 2, settings.neighbours, y + at);
          }
        });
      }
    });
  }

 private:
  struct Angles {
    RopeSettings of{};
    int first = 0, length = 0;
    std::vector<float> cosines, sines;
  };

  // All layers of a pass ask for the same angles, so the last ones are kept.
  static const Angles& angles_of(const RopeSettings& settings, int first, int length,
                                 const float* period) {
    static thread_local Angles last;
    if (!period && last.of == settings && last.first == first && last.length == length) return last;
    const int half = settings.dims / 2;
    last.of = period ? RopeSettings{} : settings;
    last.first = first;
    last.length = length;
    last.cosines.resize(size_t(length) * half);
    last.sines.resize(size_t(length) * half);
    for (int i = 0; i < half; i++) {
      const float turn = period ? 1 / period[i] : std::exp(-i * (std::log(settings.base) / half));
      for (int l = 0; l < length; l++) {
        const float angle = float(first + l) * settings.scale * turn;
        last.cosines[size_t(l) * half + i] = std::cos(angle);
        last.sines[size_t(l) * half + i] = std::sin(angle);
      }
    }
    return last;
  }
};

struct AttentionSettings {
  float scale;
  bool causal, masked, sinks;
};

// Softmax(scale * q k^T + mask) v of q [batch, heads, length, size] and fewer heads of k and v; a
// mask has the shape [batch, heads, length, keys], and sinks, of each head, are logits of no key.
class Attention : public With<AttentionSettings> {
 public:
  using With::With;

  const char* name() const override { return "AkunuAttention"; }

  void eval_cpu(const std::vector<array>& in, array& out) override {
    std::optional<View<float>> sinks;
    std::optional<Mask> mask;
    if (settings_.masked) mask.emplace(in[3]);
    if (settings_.sinks) sinks.emplace(in.back());
    queue([q_ = View<float>(in[0]), k_ = View<float>(in[1]), v_ = View<float>(in[2]), mask, sinks,
           settings = settings_, y = memory(out)] {
      static thread_local std::vector<float> space[4];
      const auto q = q_.in_rows(space[0]), k = k_.in_rows(space[1]), v = v_.in_rows(space[2]);
      const float* sink = sinks ? sinks->in_order(space[3]) : nullptr;
      const int batch = q.shape[0], heads = q.shape[1], length = q.shape[2];
      const int kv_heads = k.shape[1], keys = k.shape[2], size = v.shape[3];
      const int shared = heads / kv_heads, rows = shared * length;
      const int at_once = std::min(rows, AT_ONCE), chunks = (rows + at_once - 1) / at_once;
      const double work = double(batch) * heads * length * keys * (q.shape[3] + size);
      in_parts(batch * kv_heads * chunks, 1, work, [&](int begin, int end) {
        static thread_local std::vector<float> scores;
        static thread_local std::vector<int> places;
        scores.resize(std::max(scores.size(), size_t(at_once) * up_to_lanes(keys)));
        if (mask) places.resize(std::max(places.size(), size_t(at_once) * keys));
        for (int part = begin; part < end; part++) {
          const int b = part / chunks / kv_heads, kv = part / chunks % kv_heads;
          const int first = part % chunks * at_once, count = std::min(rows - first, at_once);
          const float* queries[AT_ONCE];
          float* outputs[AT_ONCE];
          int* lists[AT_ONCE];
          int visible[AT_ONCE];
          int most = 0;
          for (int r = 0; r < count; r++) {
            const int h = kv * shared + (first + r) / length, l = (first + r) % length;
            queries[r] = q.data + b * q.strides[0] + h * q.strides[1] + l * q.strides[2];
            outputs[r] = y + ((size_t(b) * heads + h) * length + l) * size;
            visible[r] = settings.causal ? keys - length + l + 1 : keys;
            if (mask) visible[r] = mask->list(b, h, l, keys, lists[r] = &places[size_t(r) * keys]);
            most = std::max(most, visible[r]);
          }
          const int padded = up_to_lanes(most);
          const Queries shown{queries, visible, count, padded, mask ? lists : nullptr};
          attention_scores(shown, k.data + b * k.strides[0] + kv * k.strides[1], k.strides[2],
                           q.shape[3], settings.scale, scores.data());
          for (int r = 0; r < count; r++) {
            const int h = kv * shared + (first + r) / length, l = (first + r) % length;
            float* row = scores.data() + size_t(r) * padded;
            if (mask) mask->add(b, h, l, visible[r], lists[r], row);
            softmax(row, padded, sink ? sink + h : nullptr);
          }
          attention_outputs(shown, v.data + b * v.strides[0] + kv * v.strides[1], v.strides[2],
                            size, scores.data(), outputs);
        }
      });
    });
  }

 private:
  // Rows of queries that look at a block of keys before the next is read.
  static constexpr int AT_ONCE = 32;

  // Which keys may be seen, or what is added to scores: -inf hides a key.
  struct Mask {
    explicit Mask(const array& a) {
      if (a.dtype() == mx::bool_) {
        seen.emplace(a);
      } else {
        added.emplace(a);
      }
    }

    ptrdiff_t at(int b, int h, int l, int key) const {
      const auto& strides = seen ? seen->strides : added->strides;
      return b * strides[0] + h * strides[1] + l * strides[2] + key * strides[3];
    }

    bool hides(ptrdiff_t place) const {
      return seen ? !seen->data[place] : added->data[place] == -INFINITY;
    }

    // Lists the keys that a row sees; returns their number. A row that sees none lists all.
    int list(int b, int h, int l, int keys, int* places) const {
      int count = 0;
      for (int key = 0; key < keys; key++)
        if (!hides(at(b, h, l, key))) places[count++] = key;
      if (count) return count;
      for (int key = 0; key < keys; key++) places[key] = key;
      return keys;
    }

    void add(int b, int h, int l, int count, const int* places, float* scores) const {
      for (int i = 0; i < count; i++) {
        const ptrdiff_t place = at(b, h, l, places[i]);
        if (hides(place)) {
          scores[i] = std::numeric_limits<float>::lowest();  // as in MLX: all alike, below a sink
        } else if (added) {
          scores[i] += added->data[place];
        }
      }
    }

    std::optional<View<bool>> seen;
    std::optional<View<float>> added;
  };
};

// Whether all arrays are float32 and nobody traces what is done with them.
template <class... Arrays>
bool plain(const Arrays&... arrays) {
  return ((arrays.dtype() == mx::float32 && arrays.size() > 0 && !arrays.is_tracer()) && ...);
}

// Whether calls go to the kernels at all; the check compares them with MLX's own functions.
std::atomic<bool> enabled{true};

// Rows of x from which dense products are left to MLX's BLAS: a tuned one has the better kernels
// for them, but sums in another order than for few rows.
std::atomic<size_t> rows_of_blas{std::numeric_limits<size_t>::max()};

bool on_cpu(const mx::Stream& stream) { return enabled && stream.device == mx::Device::cpu; }

template <class Kernel, class... Options>
array lazy(mx::Shape shape, std::vector<array> inputs, mx::Stream stream, Options... options) {
  taken++;
  return array(std::move(shape), mx::float32, std::make_shared<Kernel>(stream, options...),
               std::move(inputs));
}

}  // namespace akunu

namespace mlx::core {

using namespace akunu;

int columns_of(const array& w, Packing packing) {
  return int(int64_t(w.shape(-1)) * 32 / packing.bits);
}

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
  if (x.ndim() < 2 || transposed.ndim() < 2 || x.shape(-1) == 0 ||
      x.shape(-1) % Dense::GROUP != 0 || x.size() / x.shape(-1) >= rows_of_blas)
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
  shape.back() = transposed ? w.shape(-2) : columns_of(w, packing);
  const int matrices = w.size() / w.shape(-1) / w.shape(-2);
  return lazy<akunu::Product>(std::move(shape), std::move(inputs), stream,
                              ProductSettings{packing, rows, matrices, transposed});
}

array matmul(const array& x, const array& transposed, Where where) {
  const auto stream = to_stream(where);
  const auto w = dense_weights(x, transposed, stream);
  const auto rows = w ? rows_of_each(x, *w) : std::nullopt;
  if (!on_cpu(stream) || !rows) {
    static auto* own = replaced(MATMUL);
    return own(x, transposed, where);
  }
  return product({x, *w}, stream, Packing::DENSE, *rows);
}

array addmm(array bias, array x, array transposed, const float& alpha, const float& beta,
            Where where) {
  const auto stream = to_stream(where);
  const auto w = dense_weights(x, transposed, stream);
  if (!on_cpu(stream) || !w || w->ndim() != 2 || !plain(bias) || alpha != 1 || beta != 1) {
    static auto* own = replaced(ADDMM);
    return own(std::move(bias), std::move(x), std::move(transposed), alpha, beta, where);
  }
  const int rows = *rows_of_each(x, *w);
  return add(product({x, *w}, stream, Packing::DENSE, rows), bias, stream);
}

array quantized_matmul(const array& x, const array& w, const array& scales, const Maybe& biases,
                       bool transpose, Number group_size, Number bits, const std::string& mode,
                       Where where) {
  const auto stream = to_stream(where);
  const auto packing = packing_of(x, w, scales, biases, group_size, bits, mode);
  const bool fits = packing && x.shape(-1) == (transpose ? columns_of(w, *packing) : w.shape(-2));
  const auto rows = fits ? rows_of_each(x, w) : std::nullopt;
  if (!on_cpu(stream) || !rows) {
    static auto* own = replaced(PACKED_MATMUL);
    return own(x, w, scales, biases, transpose, group_size, bits, mode, where);
  }
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
  return lazy<akunu::GatheredProduct>(std::move(shape), std::move(inputs), stream, packing);
}

array gather_mm(array x, array transposed, Maybe left, Maybe right, bool sorted, Where where) {
  const auto stream = to_stream(where);
  const auto w = dense_weights(x, transposed, stream);
  if (!on_cpu(stream) || !w || !known_choice(x, *w, left, right)) {
    static auto* own = replaced(GATHER);
    return own(std::move(x), std::move(transposed), std::move(left), std::move(right), sorted,
               where);
  }
  return gathered({x, *w}, std::move(left), *right, stream, Packing::DENSE);
}

array gather_qmm(const array& x, const array& w, const array& scales, const Maybe& biases,
                 Maybe left, Maybe right, bool transpose, Number group_size, Number bits,
                 const std::string& mode, const Maybe& global_scale, bool sorted, Where where) {
  const auto stream = to_stream(where);
  const auto packing = packing_of(x, w, scales, biases, group_size, bits, mode);
  if (!on_cpu(stream) || !transpose || !packing || x.shape(-1) != columns_of(w, *packing) ||
      !known_choice(x, w, left, right) || global_scale) {
    static auto* own = replaced(PACKED_GATHER);
    return own(x, w, scales, biases, std::move(left), std::move(right), transpose, group_size, bits,
               mode, global_scale, sorted, where);
  }
  return gathered(inputs_of(x, w, scales, biases), std::move(left), *right, stream, *packing);
}

array sigmoid(const array& x, Where where) {
  const auto stream = to_stream(where);
  if (!on_cpu(stream) || !plain(x)) {
    static auto* own = replaced(SIGMOID);
    return own(x, where);
  }
  return lazy<akunu::Sigmoid>(x.shape(), {x}, stream);
}

array logsumexp(const array& x, const std::vector<int>& axes, bool keepdims, Where where) {
  const auto stream = to_stream(where);
  const int dims = int(x.ndim());
  // Of the last axis, and of others that have one number.
  bool known = on_cpu(stream) && plain(x), last = false;
  Shape kept = x.shape();
  for (int axis : axes) {
    if (axis < 0) axis += dims;
    last |= axis == dims - 1;
    known &= axis >= 0 && axis < dims && (axis == dims - 1 || x.shape(axis) == 1);
    if (known) kept[axis] = 0;
  }
  if (!known || !last) {
    static auto* own = replaced(LOG_SUM_EXP);
    return own(x, axes, keepdims, where);
  }
  Shape shape;
  for (int extent : kept)
    if (extent || keepdims) shape.push_back(std::max(extent, 1));
  return lazy<akunu::LogSumExp>(std::move(shape), {x}, stream);
}

array softmax(const array& x, const std::vector<int>& axes, bool precise, Where where) {
  const auto stream = to_stream(where);
  const bool of_last = axes.size() == 1 && (axes[0] == -1 || axes[0] == int(x.ndim()) - 1);
  if (!on_cpu(stream) || !plain(x) || x.ndim() == 0 || !of_last) {
    static auto* own = replaced(SOFTMAX);
    return own(x, axes, precise, where);
  }
  return lazy<akunu::Softmax>(x.shape(), {x}, stream);
}

namespace fast {

array rms_norm(const array& x, const Maybe& weight, float epsilon, Where where) {
  const auto stream = to_stream(where);
  if (!on_cpu(stream) || !weight || !plain(x, *weight) || weight->ndim() != 1 || x.ndim() < 1 ||
      weight->shape(0) != x.shape(-1)) {
    static auto* own = replaced(NORM);
    return own(x, weight, epsilon, where);
  }
  return lazy<akunu::RmsNorm>(x.shape(), {x, *weight}, stream, epsilon);
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
  if (!known) {
    static auto* own = replaced(ROPE);
    return own(x, dims, traditional, base, scale, offset, periods, where);
  }
  std::vector<array> inputs{x, offset};
  if (periods) inputs.push_back(*periods);
  return lazy<akunu::Rope>(x.shape(), std::move(inputs), stream,
                           akunu::RopeSettings{dims, traditional, base.value_or(1), scale});
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
  if (!known) {
    static auto* own = replaced(ATTENTION);
    return own(q, k, v, scale, mode, std::move(mask), sinks, force_fused, where);
  }
  std::vector<array> inputs{q, k, v};
  if (mask) {
    const Shape all{q.shape(0), q.shape(1), q.shape(2), k.shape(2)};
    inputs.push_back(broadcast_to(*mask, all, stream));
  }
  if (sinks) inputs.push_back(*sinks);
  auto shape = q.shape();
  shape.back() = v.shape(3);
  const akunu::AttentionSettings settings{scale, causal, mask.has_value(), sinks.has_value()};
  return lazy<akunu::Attention>(std::move(shape), std::move(inputs), stream, settings);
}

}  // namespace fast
}  // namespace mlx::core

extern "C" {

#define EXPORT [[gnu::visibility("default")]]

// Writes the linker's names of the functions and where they are; returns their number.
EXPORT int akunu_replacements(const char** names, void** functions) {
  using namespace akunu;
  void* all[] = {
      reinterpret_cast<void*>(MATMUL),        reinterpret_cast<void*>(ADDMM),
      reinterpret_cast<void*>(GATHER),        reinterpret_cast<void*>(PACKED_MATMUL),
      reinterpret_cast<void*>(PACKED_GATHER), reinterpret_cast<void*>(NORM),
      reinterpret_cast<void*>(ROPE),          reinterpret_cast<void*>(ATTENTION),
      reinterpret_cast<void*>(SIGMOID),       reinterpret_cast<void*>(LOG_SUM_EXP),
      reinterpret_cast<void*>(SOFTMAX),
  };
  for (size_t i = 0; i < std::size(all); i++) {
    names[i] = linker_name(all[i]);
    functions[i] = all[i];
  }
  return std::size(all);
}

EXPORT uint64_t akunu_taken() { return akunu::taken; }

EXPORT void akunu_enable(int whether) { akunu::enabled = whether; }

EXPORT void akunu_leave_to_blas(uint64_t rows) { akunu::rows_of_blas = rows; }

EXPORT void akunu_use_threads(int number) { akunu::Threads::all().use(number); }
}
