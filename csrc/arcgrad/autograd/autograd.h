#pragma once

// Automatic differentiation: the public functions.

#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// Adds the gradients of `roots` to those stored in the leaves and in graphs with retain_grad().
/// `seeds` has one graph per root; empty means ones. Frees the tape unless `retain_graph` or
/// `create_graph` is set. `create_graph` records the gradients on the tape.
void backward(std::span<const Graph> roots, std::span<const Graph> seeds = {},
              bool retain_graph = false, bool create_graph = false);
inline void backward(const Graph& root, bool retain_graph = false) {
  backward({&root, 1}, {}, retain_graph);
}

/// The gradients of the sum of `outputs` with respect to `inputs`. Neither stores gradients nor
/// frees the tape.
std::vector<Graph> grad(std::span<const Graph> outputs, std::span<const Graph> inputs,
                        std::span<const Graph> seeds = {}, bool create_graph = false);

/// The product of the Hessian of the sum of `outputs` with `vectors`, one vector per input.
std::vector<Graph> hvp(std::span<const Graph> outputs, std::span<const Graph> inputs,
                       std::span<const Graph> vectors);

// As in runtime/grad_mode.h. Repeated here, because that header is not installed.
/// Whether this thread records ops on the tape.
bool is_grad_enabled();
/// Sets this and returns the old value.
bool set_grad_enabled(bool enabled);

}  // namespace arcgrad
