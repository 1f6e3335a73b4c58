// Hessian-vector products of scores by forward-over-reverse differentiation of the forward-backward
// recursion. v and b are the forward and backward scores of a state. Let D be the mean tangent of
// the scores of the paths from a start to the state, and R of the paths from it to the end. D and R
// follow the recursions of v and b, with weighted means for sums. The posterior y of an arc or
// emission with tangent w then has the derivative
//
//     y' = y * (D + w + R - mean)
//
// where mean, the Jacobian-vector product of the score, is the mean over all paths. D and R grow
// with the number of frames and cancel. To keep digits, the forward pass subtracts a number per
// frame (its center) from the tangents of emissions, the backward pass subtracts the mean of D + R
// from R, and each frame computes the rest of the mean from its own posteriors.
// Time O(frames * arcs), memory O(frames * states), all in double. Reference: Pearlmutter, Fast
// exact multiplication by the Hessian, Neural Computation 6 (1994).

#include "arcgrad/trellis/hvp/hvp.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/hvp/hvp_graph.h"

namespace arcgrad::trellis {
namespace {

constexpr int32_t kFramesPerPoll = 64;
using PerLane = std::array<double, kHvpLanes>;

/// The recursion over some examples side by side, or over one example along its diagonals.
class HvpRecursion {
 public:
  HvpRecursion(const char* op, const HvpGraph& graph, std::span<const HvpExample> examples)
      : op_(op),
        graph_(graph),
        trellis_graph_(graph.trellis_graph),
        examples_(examples),
        lanes_(examples.size() == 1 ? 1 : kHvpLanes),
        rows_(lanes_ == 1 ? ARCGRAD_LOOPS(hvp1) : ARCGRAD_LOOPS(hvp4)) {
    for (const HvpExample& example : examples)
      frames_ = std::max(frames_, example.emissions.frames);
    frame_size_ = graph.is_diagonal ? graph.padded + 2 * graph.reach
                                    : int64_t{trellis_graph_.num_values} * lanes_;
    v_ = HvpScores((int64_t{frames_} + 1) * frame_size_);
    b_ = HvpScores::impossible(frame_size_);
    g_ = HvpScores::impossible(frame_size_);
    if (graph.is_diagonal)
      // The padding of each frame is never written.
      for (int32_t t = 0; t <= frames_; ++t) {
        v_.kill(t * frame_size_, graph.reach);
        const int64_t end = graph.reach + trellis_graph_.num_emitting;
        v_.kill(t * frame_size_ + end, frame_size_ - end);
      }
    num_slots_ = static_cast<int64_t>(trellis_graph_.labels.size());
    // Along diagonals, vectors may read beyond the last label.
    const int64_t spare = graph.is_diagonal ? kHvpLanes : 0;
    slots_ = HvpScores::impossible(num_slots_ * lanes_ + spare);
    emitting_ = HvpScores::impossible(graph.padded);
    logarithms_ = AlignedBuffer<double>(num_slots_ * lanes_ + spare, kNegInf);
    tangents_ = AlignedBuffer<double>(num_slots_ * lanes_ + spare, 0.0);
    posterior_ = AlignedBuffer<double>(
        std::max(graph.padded, int64_t{trellis_graph_.num_emitting} * lanes_));
    centers_.resize(static_cast<size_t>(frames_) + 2);
  }

  void run(std::span<double> arcs, std::span<double> jvps) {
    arcs_ = arcs;
    jvps_ = jvps;
    if (!arcs.empty()) {
      sums_.assign(static_cast<size_t>(trellis_graph_.out.num_terms() * lanes_), 0.0);
      diagonal_sums_.assign(graph_.diagonal_arc.size(), 0.0);
    }
    go_forward();
    find_totals();
    go_back();
    for (int32_t k = 0; !arcs.empty() && k < trellis_graph_.out.num_terms(); ++k)
      if (const int32_t a = trellis_graph_.out.arc[k]; a >= 0)
        for (int32_t l = 0; l < lanes_; ++l) arcs[a] += sums_[k * lanes_ + l];
    for (size_t k = 0; k < diagonal_sums_.size(); ++k)
      if (const int32_t a = graph_.diagonal_arc[k]; a >= 0) arcs[a] += diagonal_sums_[k];
  }

 private:
  int32_t frames(int32_t lane) const { return examples_[lane].emissions.frames; }
  int32_t num_examples() const { return static_cast<int32_t>(examples_.size()); }
  /// The position of the first emitting state in a frame.
  int64_t first() const { return graph_.is_diagonal ? graph_.reach : 0; }
  TangentScores v(int32_t t) const { return v_.at(t * frame_size_ + first()); }

  /// Along diagonals all lanes belong to one example.
  PerLane joined(const PerLane& x) const {
    if (!graph_.is_diagonal) return x;
    PerLane out;
    out.fill((x[0] + x[1]) + (x[2] + x[3]));
    return out;
  }

  void go_forward() {
    const int32_t num_emitting = trellis_graph_.num_emitting,
                  num_values = trellis_graph_.num_values;
    if (!graph_.is_diagonal) copy_all(graph_.begin, v_.at(0));
    for (int32_t t = 1; t <= frames_; ++t) {
      if (t % kFramesPerPoll == 0) poll_interrupt();
      const TangentScores emissions = read(t);
      const double* const center = centers_[t].data();
      PerLane tangent_sum{};
      if (!graph_.is_diagonal) {
        rows_.forward(graph_.in, 0, num_emitting, v(t - 1), &emissions, trellis_graph_.slot.data(),
                      center, v(t), tangent_sum.data());
        rows_.forward(graph_.in, num_emitting, num_values, v(t), nullptr, nullptr, nullptr, v(t),
                      nullptr);
      } else if (t == 1) {
        rows_.forward(graph_.in, 0, num_emitting, graph_.begin.at(0), &emissions, nullptr, center,
                      v(t), tangent_sum.data());
      } else {
        diagonals_.forward(graph_.diagonals, 0, static_cast<int32_t>(graph_.padded), v(t - 1),
                           &emissions, nullptr, center, v(t), tangent_sum.data());
      }
      centers_[t + 1] = joined(tangent_sum);
      for (double& c : centers_[t + 1]) c /= std::max(num_emitting, 1);
    }
  }

  /// Computes the exponent of the score of each example, or 0 if it has no path.
  void find_totals() {
    const TangentScores end = graph_.end.at(0);
    for (int32_t l = 0; l < num_examples(); ++l) {
      ScaledSum sum;
      if (frames(l) > 0) {
        const TangentScores last = v(frames(l));
        for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
          const int64_t at = int64_t{p} * lanes_ + l;
          sum.add(last.mantissa[at] * end.mantissa[p], last.exponent[at] + end.exponent[p]);
        }
      }
      const Scaled total = frames(l) > 0 ? sum.get() : graph_.factor.empty;
      is_possible_[l] = !total.is_zero();
      unit_[l] = total.is_zero() ? 0.0 : total.exponent;
      if (frames(l) == 0 && is_possible_[l]) finish_empty(l, total);
    }
    if (graph_.is_diagonal) unit_.fill(unit_[0]);
  }

  /// Handles an example without frames.
  void finish_empty(int32_t lane, const Scaled& total) {
    const TangentScores begin = graph_.begin.at(0);
    WeightedMean mean;
    for (size_t k = 0; k < trellis_graph_.accept.size(); ++k) {
      const int32_t n = trellis_graph_.accept[k], index = trellis_graph_.accept_weight(k);
      const Scaled weight = graph_.factor.weight(index);
      mean.add(begin.mantissa[n] * weight.mantissa, begin.exponent[n] + weight.exponent,
               begin.tangent[n] + graph_.tangent_of(index));
    }
    jvps_[lane] = mean.get();
    const HvpScores scores(int64_t{trellis_graph_.num_values} * lanes_);
    copy_all(graph_.begin, scores.at(0));
    const double scale = examples_[lane].scale / total.mantissa;
    add_last_arcs(lane, scores.at(0), mean.get(), scale);
    copy_all(graph_.end, scores.at(0));
    add_start_weights(lane, scores.at(0), mean.get(), scale);
  }

  void go_back() {
    PerLane mean{}, scale{};
    for (int32_t t = frames_; t >= 1; --t) {
      PerLane total{}, tangent_sum{};
      if (t % kFramesPerPoll == 0) poll_interrupt();
      for (int32_t l = 0; l < num_examples(); ++l)
        if (frames(l) == t && is_possible_[l]) begin_back(l);
      const TangentScores emissions = read(t), b = b_.at(first()), g = g_.at(first());
      const auto find = [&](const auto& loops, int32_t count, const int32_t* slot) {
        loops.posteriors(count, v(t), b, unit_.data(), posterior_.get(), total.data(),
                         tangent_sum.data());
        total = joined(total);
        tangent_sum = joined(tangent_sum);
        for (size_t l = 0; l < total.size(); ++l) {
          const size_t example = graph_.is_diagonal ? 0 : l;
          const bool is_alive = total[l] > 0.0 && example < examples_.size();
          mean[l] = is_alive ? tangent_sum[l] / total[l] : 0.0;
          scale[l] = is_alive ? examples_[example].scale / total[l] : 0.0;
        }
        loops.finish(count, v(t), b, emissions, slot, mean.data(), scale.data(), posterior_.get(),
                     g);
      };
      if (graph_.is_diagonal)
        find(diagonals_, static_cast<int32_t>(graph_.padded), nullptr);
      else
        find(rows_, trellis_graph_.num_emitting, trellis_graph_.slot.data());
      for (int32_t l = 0; l < num_examples(); ++l) {
        if (t > frames(l) || !is_possible_[l]) continue;
        add_to_emissions(t, l);
        if (t == frames(l)) finish_last(l, mean[l], scale[l]);
      }
      const HvpArcs arcs{unit_.data(), centers_[t].data(), scale.data(), nullptr};
      step_back(t, arcs);
    }
    if (frames_ == 0 || graph_.is_diagonal) return;
    for (int32_t l = 0; l < num_examples(); ++l)
      if (frames(l) > 0 && is_possible_[l])
        add_start_weights(l, b_.at(0), centers_[1][l], scale[l]);
  }

  /// Goes back from frame t to the frame before.
  void step_back(int32_t t, HvpArcs arcs) {
    const int32_t num_emitting = trellis_graph_.num_emitting,
                  num_values = trellis_graph_.num_values;
    // Before the first frame only the gradients of arcs remain.
    if (t == 1 && arcs_.empty()) return;
    if (!graph_.is_diagonal) {
      if (!arcs_.empty()) arcs.sums = sums_.data();
      rows_.backward(graph_.out, 0, num_values, num_emitting, g_.at(0), v(t - 1), arcs, b_.at(0));
    } else if (t > 1) {
      const auto padded = static_cast<int32_t>(graph_.padded);
      if (!arcs_.empty()) arcs.sums = diagonal_sums_.data() + graph_.reach;
      diagonals_.backward(graph_.diagonals, 0, padded, padded, g_.at(first()), v(t - 1), arcs,
                          b_.at(first()));
    } else {
      const HvpScores g = HvpScores::impossible(num_values), b(num_values);
      copy(g_.at(first()), num_emitting, g.at(0));
      arcs.sums = sums_.data();
      rows_.backward(graph_.out, 0, num_values, num_emitting, g.at(0), graph_.begin.at(0), arcs,
                     b.at(0));
      if (is_possible_[0]) add_start_weights(0, b.at(0), centers_[1][0], arcs.scale[0]);
    }
  }

  /// Sets the scores to the end of an example after its last frame.
  void begin_back(int32_t lane) const {
    const TangentScores end = graph_.end.at(0), b = b_.at(first());
    const int32_t count =
        graph_.is_diagonal ? trellis_graph_.num_emitting : trellis_graph_.num_values;
    for (int32_t n = 0; n < count; ++n) {
      const int64_t at = int64_t{n} * lanes_ + lane;
      b.mantissa[at] = end.mantissa[n];
      b.exponent[at] = end.exponent[n];
      b.tangent[at] = end.tangent[n];
    }
  }

  /// Sets the derivative of the score, and adds the gradients of the epsilon arcs after the last
  /// frame.
  void finish_last(int32_t lane, double mean, double scale) {
    const int32_t t = frames(lane);
    jvps_[lane] = mean;
    for (int32_t k = 1; k <= t; ++k) jvps_[lane] += centers_[k][lane];
    if (arcs_.empty()) return;
    if (!graph_.is_diagonal) return add_last_arcs(lane, v(t), mean, scale);
    const HvpScores last = HvpScores::impossible(trellis_graph_.num_values);
    copy(v(t), trellis_graph_.num_emitting, last.at(0));
    rows_.forward(graph_.in, trellis_graph_.num_emitting, trellis_graph_.num_values, last.at(0),
                  nullptr, nullptr, nullptr, last.at(0), nullptr);
    add_last_arcs(lane, last.at(0), mean, scale);
  }

  void add_last_arcs(int32_t lane, TangentScores last, double mean, double scale) const {
    if (arcs_.empty()) return;
    const TangentScores end = graph_.end.at(0), weight = graph_.out.weight;
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
      for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
        const int32_t s = trellis_graph_.out.index[k];
        const int64_t i = int64_t{v} * lanes_ + lane;
        const double m = last.mantissa[i] * weight.mantissa[k] * end.mantissa[s];
        if (trellis_graph_.out.arc[k] < 0 || m == 0.0) continue;
        const double q = last.exponent[i] + weight.exponent[k] + end.exponent[s] - unit_[lane];
        arcs_[trellis_graph_.out.arc[k]] +=
            m * pow2(std::min(q, 100.0)) * scale *
            (last.tangent[i] + weight.tangent[k] + end.tangent[s] - mean);
      }
    graph_.factor.for_accept_weights(
        [&](int32_t v, int32_t w) { add_node_weight(lane, last, v, w, mean, scale); });
  }

  /// Adds the gradients of start weights. `b` has the scores to the end before the first frame.
  void add_start_weights(int32_t lane, TangentScores b, double mean, double scale) const {
    if (arcs_.empty()) return;
    graph_.factor.for_start_weights(
        [&](int32_t v, int32_t w) { add_node_weight(lane, b, v, w, mean, scale); });
  }

  /// Adds the gradient of a node weight of state v, where all paths but that weight have the scores
  /// `others`.
  void add_node_weight(int32_t lane, TangentScores others, int32_t v, int32_t index, double mean,
                       double scale) const {
    const int64_t at = int64_t{v} * lanes_ + lane;
    const Scaled weight = graph_.factor.weight(index);
    const double m = others.mantissa[at] * weight.mantissa;
    if (m == 0.0) return;
    const double q = others.exponent[at] + weight.exponent - unit_[lane];
    arcs_[index] += m * pow2(std::min(q, 100.0)) * scale *
                    (others.tangent[at] + graph_.tangent_of(index) - mean);
  }

  /// Adds the derivatives of the posteriors of frame t.
  void add_to_emissions(int32_t t, int32_t lane) const {
    const EmissionsGrad& grad = examples_[lane].grad;
    if (!grad.data) return;
    dispatch(grad.dtype, [&](auto kind) {
      using G = decltype(kind);
      G* const to = grad.row<G>(t - 1);
      const int32_t num_labels = examples_[lane].emissions.labels;
      for (int64_t slot = 0; slot < num_slots_ && trellis_graph_.labels[slot] < num_labels;
           ++slot) {
        double sum = 0.0;
        for (int32_t k = graph_.slot_offset[slot]; k < graph_.slot_offset[slot + 1]; ++k)
          sum += posterior_[int64_t{graph_.slot_state[k]} * lanes_ + lane];
        to[trellis_graph_.labels[slot]] += static_cast<G>(sum);
      }
    });
  }

  /// Calls put(slot, number) for each label of the graph that a row of `num_labels` numbers has.
  template <class E, class Put>
  void for_slots(const E* from, int64_t stride, int32_t num_labels, const Put& put) const {
    const std::vector<int32_t>& labels = trellis_graph_.labels;
    if (graph_.has_all_labels && stride == 1 && num_slots_ > 0) {
      const int64_t known = std::clamp<int64_t>(num_labels - labels[0], 0, num_slots_);
      from += labels[0];
      for (int64_t s = 0; s < known; ++s) put(s, from[s]);
    } else {
      for (int64_t s = 0; s < num_slots_ && labels[s] < num_labels; ++s)
        put(s, from[labels[s] * stride]);
    }
  }

  /// Reads the emissions of frame t with their tangents, by label; along diagonals by state.
  TangentScores read(int32_t t) {
    const TangentScores slots = slots_.at(0), emitting = emitting_.at(0);
    for (int32_t l = 0; l < num_examples(); ++l) {
      const Emissions& emissions = examples_[l].emissions;
      const std::span<const double> tangents = examples_[l].tangents;
      double* const to = logarithms_.get() + l * num_slots_;
      if (t > emissions.frames) {
        std::fill_n(to, num_slots_, kNegInf);
        continue;
      }
      dispatch(emissions.dtype, [&](auto kind) {
        for_slots(
            static_cast<const decltype(kind)*>(emissions.data) + (t - 1) * emissions.row_stride,
            emissions.col_stride, emissions.labels,
            [&](int64_t s, auto w) { to[s] = static_cast<double>(w); });
      });
      double* const own = tangents_.get() + l * num_slots_;
      if (!tangents.empty())
        for_slots(tangents.data() + int64_t{t - 1} * emissions.labels, 1, emissions.labels,
                  [&](int64_t s, double w) { own[s] = w; });
    }
    const bool is_bad =
        graph_.is_diagonal ? diagonals_.split(num_slots_, logarithms_.get(), tangents_.get(), slots)
                           : rows_.split(num_slots_, logarithms_.get(), tangents_.get(), slots);
    for (int32_t l = 0; is_bad && l < num_examples(); ++l)
      if (t <= frames(l))
        check_emissions(op_, trellis_graph_.labels, examples_[l].emissions, t - 1);
    if (!graph_.is_diagonal) return slots;
    for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
      const int32_t s = trellis_graph_.slot[p];
      emitting.mantissa[p] = slots.mantissa[s];
      emitting.exponent[p] = slots.exponent[s];
      emitting.tangent[p] = slots.tangent[s];
    }
    return emitting;
  }

  /// Copies the scores of all states to all lanes.
  void copy_all(const HvpScores& from, TangentScores to) const {
    const TangentScores of = from.at(0);
    for (int32_t n = 0; n < trellis_graph_.num_values; ++n)
      for (int32_t l = 0; l < lanes_; ++l) {
        const int64_t at = int64_t{n} * lanes_ + l;
        to.mantissa[at] = of.mantissa[n];
        to.exponent[at] = of.exponent[n];
        to.tangent[at] = of.tangent[n];
      }
  }
  static void copy(TangentScores from, int64_t count, TangentScores to) {
    std::copy_n(from.mantissa, count, to.mantissa);
    std::copy_n(from.exponent, count, to.exponent);
    std::copy_n(from.tangent, count, to.tangent);
  }

  const char* op_;
  const HvpGraph& graph_;
  const TrellisGraph& trellis_graph_;
  std::span<const HvpExample> examples_;
  const int32_t lanes_;
  const HvpTable<HvpRows>& rows_;
  const HvpTable<HvpDiagonals>& diagonals_ = ARCGRAD_LOOPS(hvp_diagonals);
  int32_t frames_ = 0;
  int64_t frame_size_ = 0;
  HvpScores v_, b_, g_;  // of all frames, and of one
  int64_t num_slots_ = 0;
  HvpScores slots_, emitting_;                   // emissions of a frame
  AlignedBuffer<double> logarithms_, tangents_;  // of emissions, one example after the other
  AlignedBuffer<double> posterior_;
  std::vector<PerLane> centers_;  // subtracted from the tangents of each frame
  std::array<bool, kHvpLanes> is_possible_{};
  PerLane unit_{};
  std::span<double> arcs_, jvps_;
  std::vector<double> sums_, diagonal_sums_;  // gradients of arcs, by term and by diagonal
};

}  // namespace

void add_hvps(const char* op, const Factor& factor, std::span<const double> arc_tangents,
              std::span<const HvpExample> examples, std::span<double> arcs,
              std::span<double> jvps) {
  const HvpGraph graph(factor, arc_tangents);
  const size_t most = graph.is_diagonal ? 1 : kHvpLanes;
  std::ranges::fill(jvps, 0.0);
  for (size_t begin = 0; begin < examples.size(); begin += most) {
    const size_t count = std::min(most, examples.size() - begin);
    HvpRecursion(op, graph, examples.subspan(begin, count)).run(arcs, jvps.subspan(begin, count));
  }
}

}  // namespace arcgrad::trellis
