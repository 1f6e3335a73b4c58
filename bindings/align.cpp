// Binds the alignment of token sequences. The Python packages wrap and document it.

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/align/chain_best.h"
#include "arcgrad/trellis/align/chain_frames.h"
#include "arcgrad/trellis/align/chain_posteriors.h"
#include "arcgrad/trellis/align/chain_spans.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

using trellis::ChainAlignment;
using trellis::ChainBestOptions;
using trellis::ChainParts;
using trellis::ChainSpan;
using trellis::Emissions;
using trellis::TokenChain;

/// A NumPy array that owns the numbers.
template <class T>
nb::object own(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), {owned->size()}, owner));
}

/// For each example a list of (token, begin, end, mean score).
nb::list align_batch(const std::string& op, const std::vector<Graph>& graphs,
                     const std::vector<std::vector<int32_t>>& targets, int32_t blank) {
  const std::vector<Graph> inputs = snapshots(graphs);
  std::vector<std::vector<ChainSpan>> found(inputs.size());
  run_op(op.c_str(), [&] {
    parallel_for(inputs.size(), [&](size_t i) {
      try {
        const Emissions emissions = trellis::view_emissions(inputs[i]);
        const TokenChain chain =
            trellis::ctc_chain(op.c_str(), targets[i], blank, emissions.labels);
        const ChainAlignment best = align_chain(op.c_str(), chain, emissions, {});
        if (best.score != kNegInf) found[i] = chain_spans(chain, emissions, best.states);
      } catch (const std::invalid_argument&) {
        if (inputs.size() == 1) throw;
        rethrow_for_element(op, i, inputs.size());
      }
    });
  });
  nb::list out;
  for (size_t i = 0; i < found.size(); ++i) {
    nb::list spans;
    for (size_t k = 0; k < found[i].size(); ++k) {
      const ChainSpan& span = found[i][k];
      spans.append(nb::make_tuple(targets[i][k], span.begin, span.end,
                                  span.score / (span.end - span.begin)));
    }
    out.append(spans);
  }
  return out;
}

/// The labels of the frames of the best path of each example, and their scores; None without a
/// path.
nb::list align_frames(const std::vector<Graph>& graphs,
                      const std::vector<std::vector<int32_t>>& targets, int32_t blank) {
  constexpr const char* kOp = "forced_align";
  struct LabelledFrames {
    std::vector<int64_t> labels;
    std::vector<double> scores;
    bool has_path = false;
  };
  const std::vector<Graph> inputs = snapshots(graphs);
  std::vector<LabelledFrames> found(inputs.size());
  run_op(kOp, [&] {
    parallel_for(inputs.size(), [&](size_t i) {
      const Emissions emissions = trellis::view_emissions(inputs[i]);
      const TokenChain chain = trellis::ctc_chain(kOp, targets[i], blank, emissions.labels);
      const ChainAlignment best = align_chain(kOp, chain, emissions, {});
      found[i].has_path = best.score != kNegInf;
      for (size_t t = 0; t < best.states.size(); ++t) {
        const int32_t state = best.states[t];
        const int32_t label = state % 2 ? targets[i][static_cast<size_t>(state / 2)] : blank;
        found[i].labels.push_back(label);
        found[i].scores.push_back(trellis::emission(emissions, static_cast<int32_t>(t), label));
      }
    });
  });
  nb::list out;
  for (LabelledFrames& frames : found)
    if (frames.has_path)
      out.append(nb::make_tuple(own(std::move(frames.labels)), own(std::move(frames.scores))));
    else
      out.append(nb::none());
  return out;
}

template <class T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> view(const Numbers<T>& numbers) {
  return {numbers.data(), numbers.size()};
}

/// The best alignment of a chain with all of its options. `reach` of 0: no posteriors.
nb::object align_tokens(const Graph& graph, const Numbers<int32_t>& tokens,
                        const Numbers<int32_t>& gaps, const Numbers<double>& entry,
                        const Numbers<bool>& optional, const Numbers<int32_t>& skip_from,
                        const Numbers<int32_t>& skip_to, const Numbers<double>& skip_weight,
                        int32_t reach, int32_t width, int32_t segment) {
  constexpr const char* kOp = "align_words";
  const Graph input = graph.snapshot();
  ChainParts parts{view(tokens), view(gaps), view(entry), view(optional), {}};
  for (size_t i = 0; i < skip_from.size(); ++i)
    parts.skips.push_back({skip_from.data()[i], skip_to.data()[i], skip_weight.data()[i]});
  ChainAlignment best;
  std::vector<ChainSpan> spans;
  std::vector<double> posteriors;
  run_op(kOp, [&] {
    const Emissions emissions = trellis::view_emissions(input);
    const TokenChain chain(kOp, parts, emissions.labels);
    ChainBestOptions options;
    options.width = width;
    options.segment = segment;
    best = align_chain(kOp, chain, emissions, options);
    if (best.score == kNegInf) return;
    spans = chain_spans(chain, emissions, best.states);
    if (reach > 0) posteriors = chain_posteriors(kOp, chain, emissions, best.states, reach);
  });
  if (best.score == kNegInf) return nb::none();
  std::vector<int32_t> begins, ends;
  std::vector<double> scores;
  for (const ChainSpan& span : spans) {
    begins.push_back(span.begin);
    ends.push_back(span.end);
    scores.push_back(span.score);
  }
  nb::dict out;
  out["score"] = best.score;
  out["states"] = own(std::move(best.states));
  out["begins"] = own(std::move(begins));
  out["ends"] = own(std::move(ends));
  out["scores"] = own(std::move(scores));
  out["posteriors"] = own(std::move(posteriors));
  out["width"] = best.width;
  out["passes"] = best.passes;
  return out;
}

}  // namespace

void init_align(nb::module_& m) {
  m.def("align_batch", &align_batch, "op"_a, "graphs"_a, "targets"_a, "blank"_a,
        "The frames of each token of CTC targets.");
  m.def("align_frames", &align_frames, "graphs"_a, "targets"_a, "blank"_a,
        "The label and the score of each frame of CTC targets.");
  m.def("align_tokens", &align_tokens, "graph"_a, "tokens"_a, "gaps"_a, "entry"_a, "optional"_a,
        "skip_from"_a, "skip_to"_a, "skip_weight"_a, "reach"_a, "width"_a = 0, "segment"_a = 0,
        "The best alignment of tokens, some of which may be missing.");
}

}  // namespace arcgrad::bindings
