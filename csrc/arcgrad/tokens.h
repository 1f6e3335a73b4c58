#pragma once

#include <cstdint>
#include <span>

#include "arcgrad/graph.h"

namespace arcgrad {

/// The alignments of a target under connectionist temporal classification: every label lasts one
/// frame or more, blanks may stand anywhere, and between equal labels one blank must. Node 2i + 1
/// has just seen label i, the others a blank.
Graph ctc_graph(std::span<const int32_t> target, int32_t blank = 0, bool calc_grad = false,
                DType dtype = DType::float32);

}  // namespace arcgrad
