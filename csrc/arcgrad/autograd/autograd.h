#pragma once

#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// Automatic differentiation as programs use it.

/// Differentiates `roots`, adding to the gradients of leaves and of graphs marked retain_grad().
/// `seeds` has one graph per root, or is empty for ones. Frees the tape unless told to retain it;
/// `create_graph` puts the gradients themselves on the tape.
void backward(std::span<const Graph> roots, std::span<const Graph> seeds = {},
              bool retain_graph = false, bool create_graph = false);
inline void backward(const Graph& root, bool retain_graph = false) {
  backward({&root, 1}, {}, retain_graph);
}

/// The gradients of `outputs` with respect to `inputs`. Stores nothing and frees nothing.
std::vector<Graph> grad(std::span<const Graph> outputs, std::span<const Graph> inputs,
                        std::span<const Graph> seeds = {}, bool create_graph = false);

/// The Hessian of the sum of `outputs` times `vectors`, one vector per input.
std::vector<Graph> hvp(std::span<const Graph> outputs, std::span<const Graph> inputs,
                       std::span<const Graph> vectors);

/// Whether ops of this thread are recorded.
bool is_grad_enabled();
/// Sets it and returns the old value.
bool set_grad_enabled(bool enabled);

}  // namespace arcgrad
