#pragma once

// A beam search that reads frames as they come. beam_decoder.h explains the search.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/search/beam_decoder.h"
#include "arcgrad/search/trace.h"

namespace arcgrad {

/// A search that reads frames as they come.
class BeamStream {
 public:
  /// With `keeps_lattice`, merged hypotheses are kept for n best results, confidences and lattices.
  BeamStream(std::shared_ptr<const BeamDecoder> decoder, bool keeps_lattice);
  ~BeamStream();
  BeamStream(BeamStream&&) noexcept;

  /// Reads a frame: one finite score or -inf for each label.
  void push(std::span<const float> scores);
  int64_t num_frames() const;
  const SearchReport& report() const;

  /// The `n` best results if the input ended here, with different words.
  std::vector<Transcript> finish(int64_t n, bool confidences) const;
  /// The best result so far, including a partial word at the end, and the number of its words and
  /// tokens that later frames cannot change.
  Transcript partial() const;
  /// How much better the best path is than the best one that may end here; inf if none may.
  double final_cost() const;
  /// All paths that are left if the input ended here: tokens as input labels by frame, words as
  /// output labels.
  Graph lattice(double lattice_beam, bool acoustic) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace arcgrad
