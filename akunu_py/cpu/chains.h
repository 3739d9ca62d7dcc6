// Operations that take in what precedes them in the graph.
//
// MLX spends time of its thread on each node of a graph, whatever it computes. So a kernel
// reads through views between it and another kernel, and does the sums and products next to it.
// The nodes that it takes in are never evaluated, unless something else needs them, too.

#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "primitives.h"

namespace akunu {

bool made_by(const array& a, const char* name) {
  return a.has_primitive() && !a.is_tracer() && std::string_view(a.primitive().name()) == name;
}

// An array that a kernel writes, and where in it the numbers of a view of it are.
using Source = std::pair<array, Layout>;

// The source of a view that swaps axes and reshapes; none if a kernel does not write it.
std::optional<Source> source_of(const array& a) {
  const Layout in_order{a.shape(), strides_of(a.shape())};
  if (!a.has_primitive() || a.is_tracer()) return {};
  if (dynamic_cast<const Kernel*>(&a.primitive())) return Source{a, in_order};
  if (!made_by(a, "Transpose") && !made_by(a, "Reshape")) return {};
  auto source = source_of(a.inputs()[0]);
  if (!source) return {};
  auto& [from, layout] = *source;
  if (made_by(a, "Reshape")) {
    if (!layout.ordered()) return {};
    layout = in_order;
  } else {
    const auto axes = static_cast<const mx::Transpose&>(a.primitive()).state();
    const Layout before = layout;
    for (size_t i = 0; i < axes.size(); i++) {
      layout.shape[i] = before.shape[axes[i]];
      layout.strides[i] = before.strides[axes[i]];
    }
  }
  return source;
}

// Puts the source of the first input in its place; returns how it is read.
Layout read_through(std::vector<array>& inputs) {
  auto source = source_of(inputs[0]);
  if (!source || source->first.id() == inputs[0].id()) return {};
  inputs[0] = source->first;
  return source->second;
}

// The array of which `a` shows the first entries of axis 2; `a` itself if it is something else.
array whole_of(const array& a) {
  if (!made_by(a, "Slice")) return a;
  const array& whole = a.inputs()[0];
  const auto [begin, end, steps] = static_cast<const mx::Slice&>(a.primitive()).state();
  for (int axis = 0; axis < int(whole.ndim()); axis++)
    if (begin[axis] != 0 || steps[axis] != 1 || (axis != 2 && end[axis] != whole.shape(axis)))
      return a;
  return whole;
}

}  // namespace akunu
