// What MLX's stream does for each kernel, and the primitive that stands for it in MLX's graph.

#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arithmetic.h"
#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/backend/gpu/device_info.h"
#include "mlx/primitives.h"
#include "mlx/scheduler.h"
#include "threads.h"

namespace akunu {

namespace mx = mlx::core;
using mx::array;

// Given when the libraries are opened.
const Arithmetic* arithmetic = nullptr;

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

// Those of an array whose numbers are without gaps and in order.
mx::Strides strides_of(const mx::Shape& shape) {
  mx::Strides strides(shape.size());
  int64_t step = 1;
  for (int axis = int(shape.size()) - 1; axis >= 0; step *= shape[axis--]) strides[axis] = step;
  return strides;
}

// Where the numbers of an array are in its memory; without a shape, as MLX says.
struct Layout {
  mx::Shape shape;
  mx::Strides strides;

  bool ordered() const {
    const auto in_order = strides_of(shape);
    for (size_t axis = 0; axis < shape.size(); axis++)
      if (shape[axis] != 1 && strides[axis] != in_order[axis]) return false;
    return true;
  }
};

// The numbers of an array as kernels read them. MLX keeps an array's memory until queued work is
// done, but not the array.
template <class T>
struct View : Layout {
  const T* data;

  explicit View(const array& a, const Layout& layout = {})
      : Layout(layout.shape.empty() ? Layout{a.shape(), a.strides()} : layout), data(a.data<T>()) {}

  // The numbers without gaps and in order; copied to `space` if they are not so already.
  const T* in_order(std::vector<T>& space) const {
    if (ordered()) return data;
    space.resize(size());
    copy(data, 0, space.data(), strides_of(shape));
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
    space.resize(size_t(shape[rows]) * shape.back());
    copy(from, rows, space.data(), strides_of(shape));
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
    other.strides = strides_of(shape);
    return other;
  }

 private:
  void copy(const T* from, size_t axis, T* to, const mx::Strides& steps) const {
    const bool last = axis + 1 == shape.size();
    if (last && strides[axis] == 1) {
      std::copy_n(from, shape[axis], to);
      return;
    }
    for (int i = 0; i < shape[axis]; i++, from += strides[axis], to += steps[axis])
      last ? void(*to = *from) : copy(from, axis + 1, to, steps);
  }
};

// What is queued in MLX's stream. Of one type for all kernels: what MLX makes of each takes
// compilers long.
using Work = std::function<void()>;

// Returns the work that computes `out`, having given it memory; the inputs have theirs.
using Prepare = std::function<Work(const std::vector<array>& in, array& out)>;

class Kernel : public mx::UnaryPrimitive {
 public:
  Kernel(mx::Stream stream, const char* name, Prepare prepare)
      : UnaryPrimitive(stream), prepare(std::move(prepare)), name_(name) {}

  const Prepare prepare;

  const char* name() const override { return name_; }

  // MLX's encoder lets few operations wait, which bounds the memory of large results. With small
  // ones the thread that builds the graph would sleep and wake at every tenth operation, so it
  // sleeps here first, and until half are done. Beside a GPU it may not: what kernels wait for may
  // not have been sent there yet.
  void eval_cpu(const std::vector<array>& in, array& out) override {
    constexpr size_t LARGE = 1 << 17;
    constexpr int MOST = 64, FEW = 32;
    static std::atomic<int> waiting{0};
    Work work = prepare(in, out);
    if (out.nbytes() >= LARGE)
      return mx::cpu::get_command_encoder(stream()).dispatch(std::move(work));
    mx::scheduler::enqueue(stream(), [work = std::move(work)] {
      if (--waiting == FEW) waiting.notify_all();
      work();
    });
    if (++waiting <= MOST || mx::gpu::is_available()) return;
    for (int number = waiting; number > FEW; number = waiting) waiting.wait(number);
  }

  void eval_gpu(const std::vector<array>&, array&) override {
    throw std::runtime_error("akunu: a kernel of the CPU was queued on a GPU");
  }

 private:
  const char* const name_;
};

float* memory(array& out) {
  out.set_data(mx::allocator::malloc(out.nbytes()));
  return out.data<float>();
}

// The memory of an input of the same size that nobody else needs, for kernels that read each
// number before they write in its place.
float* memory_of(const array& in, array& out) {
  if (!in.is_donatable() || !in.flags().row_contiguous || in.nbytes() != out.nbytes())
    return memory(out);
  // The shapes may be different.
  out.copy_shared_buffer(in, out.strides(), {true, true, false}, in.data_size());
  return out.data<float>();
}

// How weights are packed; MLX's modes other than "affine" have scales of a byte and no biases.
struct Packing {
  int group, bits;
  bool affine, nvidia;

  bool dense() const { return bits == 32; }
  int columns(const array& w) const { return int(int64_t(w.shape(-1)) * 32 / bits); }
};

constexpr Packing DENSE{DENSE_GROUP, 32, false, false};

// The number that a byte stands for: a power of two (E8M0), or E4M3 as in NVIDIA's format.
float small_float(uint32_t byte, bool nvidia) {
  if (!nvidia) return std::bit_cast<float>(byte ? byte << 23 : 1 << 22);
  return std::bit_cast<float>((byte & 127) << 20 | (byte & 128) << 24) * 0x1p120f;
}

// Packed or dense matrices, one behind the other.
struct Matrices {
  Matrices(const std::vector<array>& in, Packing packing)
      : codes(in[1]), packing(packing), rows(in[1].shape(-2)), columns(packing.columns(in[1])) {
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
      scale_space.resize(size_t(rows) * matrix.groups);
      for (size_t group = 0; group < scale_space.size(); group++)
        scale_space[group] = small_float(own_bytes[group], packing.nvidia);
      matrix.scales = scale_space.data();
    }
    return matrix;
  }

  // That of x is one.
  size_t num_inputs() const { return packing.dense() ? 2 : packing.affine ? 4 : 3; }

  View<uint32_t> codes;
  std::optional<View<float>> scales, biases;
  std::optional<View<uint8_t>> bytes;
  Packing packing;
  int rows, columns;
};

// The products of `count` rows of x, with what is `added` to them, if anything is.
void product_in_parts(const Packed& w, const float* x, int count, float* y,
                      const float* added = nullptr) {
  in_parts(w.rows, PRODUCT_ROWS, double(w.rows) * w.columns * count, [&](int begin, int end) {
    arithmetic->product(w, begin, end, x, count, y);
    if (!added) return;
    for (size_t row = 0; row < size_t(count); row++)
      for (size_t i = row * w.rows + begin; i < row * w.rows + end; i++) y[i] += added[i];
  });
}

// Each matrix is multiplied by `rows` rows of x; behind the last comes the first again.
struct ProductSettings {
  Packing packing;
  int rows, matrices;
  bool transposed;
  Layout x;
};

// To the products an input behind the weights is added, if there is one.
Work product_work(const ProductSettings& of, const std::vector<array>& in, array& out) {
  const Matrices matrices(in, of.packing);
  std::optional<View<float>> sum;
  if (in.size() > matrices.num_inputs()) sum.emplace(in.back());
  return [x = View<float>(in[0], of.x), matrices, sum, of, rows = out.size() / out.shape(-1),
          y = memory(out)]() mutable {
    static thread_local std::vector<float> space, summands;
    const float *from = x.in_order(space), *added = sum ? sum->in_order(summands) : nullptr;
    for (size_t row = 0; row < rows; row += of.rows) {
      const Packed w = matrices.at(row / of.rows % of.matrices);
      if (of.transposed) {
        product_in_parts(w, from, of.rows, y, added);
        if (added) added += size_t(of.rows) * w.rows;
      } else {
        in_parts(w.columns, SUMMED_COLUMNS, double(w.rows) * w.columns * of.rows,
                 [&](int begin, int end) {
                   arithmetic->weighted_sums(w, begin, end, from, of.rows, y);
                 });
      }
      from += size_t(of.rows) * (of.transposed ? w.columns : w.rows);
      y += size_t(of.rows) * (of.transposed ? w.rows : w.columns);
    }
  };
}

// Rows of x times matrices, of which indices choose: of x [batch, length, columns] and w.
Work gathered_work(Packing packing, const std::vector<array>& in, array& out) {
  return [x = View<float>(in[0]), matrices = Matrices(in, packing), length = in[0].shape(-2),
          left = View<uint32_t>(in[in.size() - 2]), right = View<uint32_t>(in.back()),
          y = memory(out)] {
    static thread_local std::vector<float> space, chosen, products;
    static thread_local std::vector<uint32_t> lefts, rights, order;
    const float* values = x.in_order(space);
    const uint32_t *from = left.in_order(lefts), *by = right.in_order(rights);
    const size_t in_size = size_t(length) * matrices.columns;
    const size_t out_size = size_t(length) * matrices.rows;
    order.resize(right.size());
    std::iota(order.begin(), order.end(), 0);
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
  };
}

// What is made of each row of x by itself, and how much work that is for each of its numbers.
struct OfRow {
  double work;
  std::function<void(const float* x, const float* weight, int size, float* y)> compute;
};

// Of the last axis, with the weight that may be the second input.
Work rows_work(const OfRow& of, const std::vector<array>& in, array& out) {
  const int size = in[0].shape(-1), count = in[0].size() / size;
  return [of, x = View<float>(in[0]), weight = View<float>(in.back()), weighted = in.size() > 1,
          size, count, made = out.size() / count, y = memory_of(in[0], out)] {
    static thread_local std::vector<float> space, weights;
    const float *values = x.in_order(space),
                *factors = weighted ? weight.in_order(weights) : nullptr;
    in_parts(count, 1, of.work * size * count, [&](int begin, int end) {
      for (size_t m = begin; m < size_t(end); m++)
        of.compute(values + m * size, factors, size, y + m * made);
    });
  };
}

// Softmax in a buffer of this thread that ends with a vector, and the logarithm of the sum.
std::pair<const float*, float> softmax_of_row(const float* x, int size) {
  static thread_local std::vector<float> row;
  row.assign(up_to_lanes(size), -std::numeric_limits<float>::infinity());
  std::copy_n(x, size, row.data());
  const float logarithm = arithmetic->softmax(row.data(), int(row.size()), nullptr);
  return {row.data(), logarithm};
}

// Of the first input; times the others, if there are any.
Work sigmoid_work(const std::vector<array>& in, array& out) {
  constexpr int AT_ONCE = 4096;
  return [x = std::vector<View<float>>(in.begin(), in.end()), size = out.size(),
          y = memory_of(in[0], out)] {
    static thread_local std::vector<std::vector<float>> spaces;
    static thread_local std::vector<const float*> values;
    spaces.resize(std::max(spaces.size(), x.size()));
    values.clear();
    for (size_t i = 0; i < x.size(); i++) values.push_back(x[i].in_order(spaces[i]));
    in_parts(int(size), AT_ONCE, double(size) * 10, [&, all = values.data()](int begin, int end) {
      arithmetic->sigmoid(all[0] + begin, end - begin, y + begin);
      for (size_t input = 1; input < x.size(); input++)
        for (int i = begin; i < end; i++) y[i] *= all[input][i];
    });
  };
}

struct RopeSettings {
  int dims;
  bool neighbours;
  float base, scale;

  bool operator==(const RopeSettings&) const = default;
};

struct Angles {
  RopeSettings of{};
  int first = 0, length = 0;
  std::vector<float> cosines, sines;
};

// All layers of a pass ask for the same angles, so the last ones are kept.
const Angles& angles_of(const RopeSettings& settings, int first, int length, const float* period) {
  static thread_local Angles last;
  if (!period && last.of == settings && last.first == first && last.length == length) return last;
  const int half = settings.dims / 2;
  last = {period ? RopeSettings{} : settings, first, length, {}, {}};
  for (int l = 0; l < length; l++) {
    for (int i = 0; i < half; i++) {
      const float turn = period ? 1 / period[i] : std::exp(-i * (std::log(settings.base) / half));
      const float angle = float(first + l) * settings.scale * turn;
      last.cosines.push_back(std::cos(angle));
      last.sines.push_back(std::sin(angle));
    }
  }
  return last;
}

// Rotary positions (Su et al., RoFormer, 3.2.2) of x [batch, heads, length, size].
Work rope_work(const RopeSettings& settings, const Layout& layout, const std::vector<array>& in,
               array& out) {
  std::optional<View<float>> periods;
  if (in.size() > 2) periods.emplace(in[2]);
  return [settings, x = View<float>(in[0], layout), offset = View<int>(in[1]),
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
          arithmetic->rotate(values + at, size, &angles.cosines[angle], &angles.sines[angle],
                             settings.dims / 2, settings.neighbours, y + at);
        }
      });
    }
  };
}

struct AttentionSettings {
  float scale;
  bool causal, masked, sinks;
  int keys;
};

// What is added to scores; -inf hides a key.
struct Mask {
  explicit Mask(const array& a)
      : data(a.data<char>()), strides(a.strides()), seen(a.dtype() == mx::bool_) {}

  float at(int b, int h, int l, int key) const {
    const auto place = b * strides[0] + h * strides[1] + l * strides[2] + key * strides[3];
    if (seen) return data[place] ? 0 : -INFINITY;
    return reinterpret_cast<const float*>(data)[place];
  }

  // Lists the keys that a row sees; returns their number. A row that sees none lists all.
  int list(int b, int h, int l, int keys, int* places) const {
    int count = 0;
    for (int key = 0; key < keys; key++)
      if (at(b, h, l, key) != -INFINITY) places[count++] = key;
    if (count) return count;
    std::iota(places, places + keys, 0);
    return keys;
  }

  void add(int b, int h, int l, int count, const int* places, float* scores) const {
    for (int i = 0; i < count; i++) {
      const float added = at(b, h, l, places[i]);
      // As in MLX: all alike, below a sink.
      scores[i] = added == -INFINITY ? std::numeric_limits<float>::lowest() : scores[i] + added;
    }
  }

  const char* data;
  mx::Strides strides;
  bool seen;
};

// Softmax(scale * q k^T + mask) v of q [batch, heads, length, size] and fewer heads of k and v,
// which may have further rows behind the keys; a mask has the shape [batch, heads, length, keys],
// and sinks, of each head, are logits of no key.
Work attention_work(const AttentionSettings& settings, const std::vector<array>& in, array& out) {
  // Rows of queries that look at a block of keys before the next is read.
  static constexpr int AT_ONCE = 32;
  std::optional<View<float>> sinks;
  std::optional<Mask> mask;
  if (settings.masked) mask.emplace(in[3]);
  if (settings.sinks) sinks.emplace(in.back());
  return [q_ = View<float>(in[0]), k_ = View<float>(in[1]), v_ = View<float>(in[2]), mask, sinks,
          settings, y = memory(out)] {
    static thread_local std::vector<float> space[4];
    const auto q = q_.in_rows(space[0]), k = k_.in_rows(space[1]), v = v_.in_rows(space[2]);
    const float* sink = sinks ? sinks->in_order(space[3]) : nullptr;
    const int batch = q.shape[0], heads = q.shape[1], length = q.shape[2];
    const int kv_heads = k.shape[1], keys = settings.keys, size = v.shape[3];
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
        arithmetic->attention_scores(shown, k.data + b * k.strides[0] + kv * k.strides[1],
                                     k.strides[2], q.shape[3], settings.scale, scores.data());
        for (int r = 0; r < count; r++) {
          const int h = kv * shared + (first + r) / length, l = (first + r) % length;
          float* row = scores.data() + size_t(r) * padded;
          if (mask) mask->add(b, h, l, visible[r], lists[r], row);
          arithmetic->softmax(row, padded, sink ? sink + h : nullptr);
        }
        arithmetic->attention_outputs(shown, v.data + b * v.strides[0] + kv * v.strides[1],
                                      v.strides[2], size, scores.data(), outputs);
      }
    });
  };
}

}  // namespace akunu
