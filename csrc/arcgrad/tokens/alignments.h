#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/tokens/tokens.h"

namespace arcgrad {

/// The acceptor of all frames that spell the target.
Graph alignment_graph(const Tokens& tokens, std::span<const int32_t> target, bool calc_grad = false,
                      DType dtype = DType::float32);
std::vector<Graph> alignment_graph(const Tokens& tokens, const Sequences& targets,
                                   bool calc_grad = false, DType dtype = DType::float32);
/// The same for a target that is an acceptor of token sequences, whose weights it takes over. With
/// `outputs` the target may be a transducer, and so are the alignments: the first frame of a token
/// puts out what the arc of the target does, the others nothing.
Graph alignment_graph(const Tokens& tokens, const Graph& target, bool outputs = false);

/// The alignments under connectionist temporal classification, with any number of labels. Node
/// 2i + 1 has just seen label i, the others a blank.
Graph ctc_graph(std::span<const int32_t> target, int32_t blank = 0, int32_t num_labels = kUnlimited,
                bool calc_grad = false, DType dtype = DType::float32);
std::vector<Graph> ctc_graph(const Sequences& targets, int32_t blank = 0,
                             int32_t num_labels = kUnlimited, bool calc_grad = false,
                             DType dtype = DType::float32);

}  // namespace arcgrad
