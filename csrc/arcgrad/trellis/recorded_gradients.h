#pragma once

// Puts the gradients of a batch on the tape, so that they can be differentiated again.

#include <memory>
#include <span>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad::trellis {

/// The gradients of some factors of a batch, recorded as one tape entry once they are computed.
class RecordedGradients {
 public:
  RecordedGradients(std::span<const Graph> factors, const std::vector<bool>& wanted)
      : factors_(factors), grads_(factors.size()), to_(factors.size()) {
    for (size_t f = 0; f < factors.size(); ++f) {
      if (!wanted[f]) continue;
      grads_[f] = Gradient(factors[f].num_weights(), factors[f].dtype());
      to_[f] = &grads_[f];
    }
  }
  RecordedGradients(const RecordedGradients&) = delete;
  RecordedGradients& operator=(const RecordedGradients&) = delete;

  /// Where to add the gradient of each factor; null if it is not wanted.
  std::span<Gradient* const> destinations() const { return to_; }

  /// Returns the gradient of each factor as a graph, null if not wanted. Their tape entry has these
  /// inputs and the rule `make_rule(outputs)`; output k is the gradient of factor outputs[k].
  template <class MakeRule>
  std::vector<Graph> record(const char* op, std::span<const Graph> inputs, MakeRule make_rule) {
    std::vector<Graph> out(factors_.size(), nullptr), recorded;
    std::vector<size_t> outputs;
    for (size_t f = 0; f < factors_.size(); ++f) {
      if (!to_[f]) continue;
      out[f] = Graph(factors_[f].topology_ptr(), grads_[f].sum());
      recorded.push_back(out[f]);
      outputs.push_back(f);
    }
    if (!recorded.empty() && tracks(inputs))
      record_entry(op, recorded, inputs, 0, make_rule(std::move(outputs)));
    return out;
  }

 private:
  std::span<const Graph> factors_;
  std::vector<Gradient> grads_;
  std::vector<Gradient*> to_;
};

}  // namespace arcgrad::trellis
