// The `dense` kernel: the forward-backward algorithm (Rabiner 1989) as matrix products, for graphs
// in which nearly every emitting state leads to every other, such as a bigram. Non-emitting states
// matter only before the first and after the last frame. With W the matrix of exp(weight)
// between states, e the exponentials of a frame's emissions and * elementwise:
//
//     forward:   u = v' W,       v  = 2^shift (u * e)              v' is v of the frame before
//     backward:  S = sum v * b,  f = 2^shift / S (e * b),  b' = f W^T
//     gradient:  posterior of state d: v[d] b[d] / S,  of the arc s -> d: v'[s] W[s][d] f[d]
//
// Invariant: a power of two per frame keeps the largest of v in [1, 2) and sum v * b at about 1, so
// the loops need no logarithms; dense_forward.cpp proves that underflow is harmless or detected.
// Float is tried first, then double; if both fail, `lanes` must run the chunk. The rows of v
// are the examples of a chunk, so W is read once for all. Cost: P^2 multiplications per frame and
// example for P states, and as many for each gradient. Files: dense_weights.cpp packs W,
// dense_forward.cpp, dense_backward.cpp, and the loops over vectors in dense_loops.h.

#include "arcgrad/trellis/kernels/dense.h"

#include <algorithm>

namespace arcgrad::trellis {
namespace {

using dense::DenseFactor;
using dense::DenseRecursion;

std::shared_ptr<DenseFactor> dense_factor(const Factor& factor) {
  factor.dense_once.call([&] { factor.dense = std::make_shared<DenseFactor>(factor); });
  return std::static_pointer_cast<DenseFactor>(factor.dense);
}

/// A chunk of examples, each computed in float or in double.
class DenseRun : public Run {
 public:
  DenseRun(std::shared_ptr<const Factor> factor, std::span<const Emissions> examples,
           const RunOptions& options);
  bool has_failed() const { return has_failed_; }

  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override;
  std::vector<double> frame_scores(size_t i) const override;

 private:
  /// The examples that are computed in type T.
  template <class T>
  struct PrecisionGroup {
    std::vector<size_t> examples;
    std::unique_ptr<DenseRecursion<T>> recursion;

    void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                       std::span<double> arcs) const {
      if (!recursion) return;
      std::vector<double> own_deltas;
      std::vector<EmissionsGrad> own_emissions;
      for (size_t i : examples) {
        own_deltas.push_back(deltas[i]);
        own_emissions.push_back(emissions[i]);
      }
      recursion->add_gradients(own_deltas, own_emissions, arcs);
    }
  };

  bool has_failed_ = false;
  std::shared_ptr<DenseFactor> shared_;
  PrecisionGroup<float> narrow_;
  PrecisionGroup<double> wide_;
};

DenseRun::DenseRun(std::shared_ptr<const Factor> factor, std::span<const Emissions> examples,
                   const RunOptions& options) {
  shared_ = dense_factor(*factor);
  scores.resize(examples.size());
  auto pick = [&](const std::vector<size_t>& which) {
    std::vector<Emissions> out;
    for (size_t i : which) out.push_back(examples[i]);
    return out;
  };
  for (size_t i = 0; i < examples.size(); ++i) {
    const bool is_narrow = promote(factor->weights.dtype(), examples[i].dtype) == DType::float32;
    (is_narrow ? narrow_.examples : wide_.examples).push_back(i);
  }
  if (!narrow_.examples.empty()) {
    narrow_.recursion =
        std::make_unique<DenseRecursion<float>>(factor, *shared_, pick(narrow_.examples), options);
    const DenseRecursion<float>& done = *narrow_.recursion;
    bool is_needed = false;
    for (size_t k = 0; k < narrow_.examples.size(); ++k) {
      scores[narrow_.examples[k]] = done.scores()[k];
      is_needed |= !done.failed()[k];
      if (done.failed()[k]) wide_.examples.push_back(narrow_.examples[k]);
    }
    if (!is_needed) narrow_ = {};
  }
  if (!wide_.examples.empty()) {
    wide_.recursion =
        std::make_unique<DenseRecursion<double>>(factor, *shared_, pick(wide_.examples), options);
    const DenseRecursion<double>& done = *wide_.recursion;
    for (size_t k = 0; k < wide_.examples.size(); ++k) {
      scores[wide_.examples[k]] = done.scores()[k];
      has_failed_ |= done.failed()[k];
    }
  }
}

void DenseRun::add_gradients(std::span<const double> deltas,
                             std::span<const EmissionsGrad> emissions,
                             std::span<double> arcs) const {
  narrow_.add_gradients(deltas, emissions, arcs);
  wide_.add_gradients(deltas, emissions, arcs);
}

std::vector<double> DenseRun::frame_scores(size_t i) const {
  // An example that failed in float is in both; its result is the one in double.
  const auto wide = std::ranges::find(wide_.examples, i);
  if (wide != wide_.examples.end())
    return wide_.recursion->frame_scores(static_cast<size_t>(wide - wide_.examples.begin()));
  const auto narrow = std::ranges::find(narrow_.examples, i);
  return narrow_.recursion->frame_scores(static_cast<size_t>(narrow - narrow_.examples.begin()));
}

}  // namespace

void prepare_dense(const Factor& factor, DType emissions) {
  dispatch(promote(factor.weights.dtype(), emissions),
           [&](auto kind) { dense_factor(factor)->packed<decltype(kind)>(factor); });
}

bool divides_dense(const TrellisGraph& graph, size_t num_examples) {
  const int64_t count = graph.num_emitting;
  return dense::num_parts(static_cast<int64_t>(num_examples) * count *
                          dense::padded(count, kDensePad)) > 1;
}

std::unique_ptr<Run> run_dense(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options) {
  auto run = std::make_unique<DenseRun>(std::move(factor), examples, options);
  if (run->has_failed()) return nullptr;
  return run;
}

}  // namespace arcgrad::trellis
