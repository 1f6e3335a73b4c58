#pragma once

// Alignment graphs: all frame-level label sequences that a target allows.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/tokens/tokens.h"

namespace arcgrad {

/// Returns the acceptor of all frame label sequences that collapse to the target.
Graph alignment_graph(const Tokens& tokens, std::span<const int32_t> target, bool calc_grad = false,
                      DType dtype = DType::float32);
std::vector<Graph> alignment_graph(const Tokens& tokens, const Sequences& targets,
                                   bool calc_grad = false, DType dtype = DType::float32);
/// Same for a target graph that accepts token sequences; its weights carry over. With `outputs`,
/// the target may be a transducer: the first frame of a token emits the output label of the target
/// arc, later frames emit epsilon.
Graph alignment_graph(const Tokens& tokens, const Graph& target, bool outputs = false);

/// Returns the alignments under connectionist temporal classification (CTC). Node 2i + 1 is entered
/// by label i of the target, the even nodes by a blank.
Graph ctc_graph(std::span<const int32_t> target, int32_t blank = 0, int32_t num_labels = kUnlimited,
                bool calc_grad = false, DType dtype = DType::float32);
std::vector<Graph> ctc_graph(const Sequences& targets, int32_t blank = 0,
                             int32_t num_labels = kUnlimited, bool calc_grad = false,
                             DType dtype = DType::float32);

}  // namespace arcgrad
