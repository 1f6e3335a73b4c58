#include "arcgrad/trellis/hvp/hvp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/hvp/hvp_loops.h"

// With v and b the scores before and after each value, let D be the mean, over the paths that lead
// to a value, of how much the direction moves their scores, and R the same over the paths that go
// on from it. An arc or place with posterior y then changes by y * (D + its own move + R - mean),
// where the mean is that over all paths.
//
// D and R would grow with the number of frames and cancel. So a number per frame goes off the moves
// of its emissions on the way forward, and the mean of D + R off R on the way back. What is left of
// the mean is found in each frame from its posteriors.

namespace arcgrad::trellis {
namespace {

constexpr int32_t kFramesPerPoll = 64;
using PerLane = std::array<double, kCurvatureLanes>;

/// An array of scores with moves.
class Scores {
 public:
  Scores() = default;
  /// Not set to anything.
  explicit Scores(int64_t size) : size_(size), memory_(3 * size) {}
  static Scores dead(int64_t size) {
    Scores out(size);
    out.kill(0, size);
    return out;
  }
  void kill(int64_t begin, int64_t count) const {
    const MovedScores to = at(begin);
    std::fill_n(to.mantissa, count, 0.0);
    std::fill_n(to.exponent, count, kNegInf);
    std::fill_n(to.move, count, 0.0);
  }
  MovedScores at(int64_t offset) const {
    double* const from = memory_.get() + offset;
    return {from, from + size_, from + 2 * size_};
  }
  void set(int64_t i, double mantissa, double exponent, double move) const {
    memory_[i] = mantissa;
    memory_[size_ + i] = mantissa == 0.0 ? kNegInf : exponent;
    memory_[2 * size_ + i] = move;
  }

 private:
  int64_t size_ = 0;
  Block<double> memory_;
};

/// A mean weighted with numbers of very different size.
class Mean {
 public:
  void add(double mantissa, double exponent, double value) {
    if (mantissa == 0.0) return;
    if (exponent > top_) {
      const double down = pow2(top_ - exponent);
      weight_ *= down;
      sum_ *= down;
      top_ = exponent;
    }
    const double w = mantissa * pow2(exponent - top_);
    weight_ += w;
    sum_ += w * value;
  }
  double get() const { return weight_ > 0.0 ? sum_ / weight_ : 0.0; }

 private:
  double top_ = kNegInf, weight_ = 0.0, sum_ = 0.0;
};

/// What the loops read of a graph.
struct Tables {
  Tables(const Factor& factor, std::span<const double> arc_moves)
      : form(*factor.form), is_diagonal(!form.offsets.empty()) {
    const auto move = [&](int32_t arc) { return arc_moves.empty() ? 0.0 : arc_moves[arc]; };
    const auto fill = [&](const Rows& rows, Scores& weights) {
      weights = Scores(rows.num_terms());
      for (int32_t k = 0; k < rows.num_terms(); ++k)
        if (const int32_t a = rows.arc[k]; a < 0)
          weights.set(k, 1.0, 0.0, 0.0);
        else
          weights.set(k, factor.mantissa[a], factor.exponent[a], move(a));
    };
    fill(form.in(), in_weights_);
    fill(form.out, out_weights_);
    in = {form.in().offset.data(), form.in().index.data(), in_weights_.at(0)};
    out = {form.out.offset.data(), form.out.index.data(), out_weights_.at(0)};
    find_ends(factor);
    slot_offset.resize(form.labels.size() + 1);
    slot_place.resize(form.slot.size());
    for (int32_t slot : form.slot) ++slot_offset[slot + 1];
    std::partial_sum(slot_offset.begin(), slot_offset.end(), slot_offset.begin());
    std::vector<int32_t> next(slot_offset.begin(), slot_offset.end() - 1);
    for (int32_t p = 0; p < form.num_emitting; ++p) slot_place[next[form.slot[p]]++] = p;
    if (!form.labels.empty())
      has_all_labels =
          form.labels.back() - form.labels.front() + 1 == static_cast<int32_t>(form.labels.size());
    if (is_diagonal) make_diagonals(factor, move);
  }

  const TrellisGraph& form;
  const bool is_diagonal;
  HvpRows in, out;
  /// Of each value: the score before the first frame, and to the end after the last.
  Scores begin, end;
  /// The places by label: those of slot s are [slot_offset[s], slot_offset[s + 1]).
  std::vector<int32_t> slot_offset, slot_place;
  bool has_all_labels = true;  // between the first and the last
  /// Of diagonals: how far they reach beyond the places, the number of places filled up, and the
  /// arc of each weight, -1 for none.
  HvpDiagonals diagonals = {};
  int64_t reach = 0, padded = 0;
  std::vector<int32_t> diagonal_arc;

 private:
  void find_ends(const Factor& factor) {
    begin = Scores(form.num_values);
    end = Scores(form.num_values);
    std::vector<double> move(static_cast<size_t>(form.num_values));
    std::vector<uint8_t> is_end(static_cast<size_t>(form.num_values));
    for (int32_t v : form.start) is_end[v] = 1;
    for (int32_t s = form.num_emitting; s < form.num_values; ++s) {
      Mean mean;
      if (is_end[s]) mean.add(1.0, 0.0, 0.0);
      for (int32_t k = in.offset[s]; k < in.offset[s + 1]; ++k) {
        const int32_t i = in.index[k];
        mean.add(factor.begin[i].mantissa * in.weight.mantissa[k],
                 factor.begin[i].exponent + in.weight.exponent[k], move[i] + in.weight.move[k]);
      }
      move[s] = mean.get();
    }
    for (int32_t v = 0; v < form.num_values; ++v)
      begin.set(v, factor.begin[v].mantissa, factor.begin[v].exponent, move[v]);

    std::ranges::fill(is_end, 0);
    for (int32_t v : form.accept) is_end[v] = 1;
    for (int32_t v = form.num_values; v-- > 0;) {
      Mean mean;
      if (is_end[v]) mean.add(1.0, 0.0, 0.0);
      for (int32_t k = form.out.offset[v]; k < form.out.offset[v + 1]; ++k) {
        const int32_t i = form.out.index[k];
        if (i < form.num_emitting) continue;
        mean.add(factor.end[i].mantissa * out.weight.mantissa[k],
                 factor.end[i].exponent + out.weight.exponent[k], move[i] + out.weight.move[k]);
      }
      move[v] = mean.get();
      end.set(v, factor.end[v].mantissa, factor.end[v].exponent, move[v]);
    }
  }

  template <class Move>
  void make_diagonals(const Factor& factor, const Move& move) {
    const auto count = static_cast<int32_t>(form.offsets.size());
    for (int32_t offset : form.offsets) reach = std::max<int64_t>(reach, std::abs(offset));
    reach += kCurvatureLanes;
    padded = (form.num_emitting + kCurvatureLanes - 1) / kCurvatureLanes * kCurvatureLanes;
    const int64_t stride = padded + 2 * reach;
    diagonal_weights_ = Scores::dead(count * stride);
    diagonal_arc.assign(static_cast<size_t>(count * stride), -1);
    for (int32_t from = 0; from < form.num_emitting; ++from)
      for (int32_t k = form.out.offset[from]; k < form.middle[from]; ++k) {
        const int32_t p = form.out.index[k], a = form.out.arc[k];
        const auto d = std::ranges::lower_bound(form.offsets, p - from) - form.offsets.begin();
        const int64_t at = d * stride + reach + p;
        diagonal_weights_.set(at, factor.mantissa[a], factor.exponent[a], move(a));
        diagonal_arc[static_cast<size_t>(at)] = a;
      }
    diagonals = {count, form.offsets.data(), stride, diagonal_weights_.at(reach)};
  }

  Scores in_weights_, out_weights_, diagonal_weights_;
};

/// The recursion over some examples side by side, or over one along its diagonals.
class Recursion {
 public:
  Recursion(const char* op, const Tables& tables, std::span<const HvpExample> examples)
      : op_(op),
        tables_(tables),
        trellis_graph_(tables.form),
        examples_(examples),
        lanes_(examples.size() == 1 ? 1 : kCurvatureLanes),
        rows_(lanes_ == 1 ? ARCGRAD_LOOPS(curvature1) : ARCGRAD_LOOPS(curvature4)) {
    for (const HvpExample& example : examples)
      frames_ = std::max(frames_, example.emissions.frames);
    frame_size_ = tables.is_diagonal ? tables.padded + 2 * tables.reach
                                     : int64_t{trellis_graph_.num_values} * lanes_;
    v_ = Scores((int64_t{frames_} + 1) * frame_size_);
    b_ = Scores::dead(frame_size_);
    g_ = Scores::dead(frame_size_);
    if (tables.is_diagonal)
      // What lies beyond the places of each frame is never written.
      for (int32_t t = 0; t <= frames_; ++t) {
        v_.kill(t * frame_size_, tables.reach);
        const int64_t end = tables.reach + trellis_graph_.num_emitting;
        v_.kill(t * frame_size_ + end, frame_size_ - end);
      }
    num_slots_ = static_cast<int64_t>(trellis_graph_.labels.size());
    // Along diagonals some labels are split at once.
    const int64_t spare = tables.is_diagonal ? kCurvatureLanes : 0;
    slots_ = Scores::dead(num_slots_ * lanes_ + spare);
    places_ = Scores::dead(tables.padded);
    logarithms_ = Block<double>(num_slots_ * lanes_ + spare, kNegInf);
    moves_ = Block<double>(num_slots_ * lanes_ + spare, 0.0);
    posterior_ =
        Block<double>(std::max(tables.padded, int64_t{trellis_graph_.num_emitting} * lanes_));
    centers_.resize(static_cast<size_t>(frames_) + 2);
  }

  void run(std::span<double> arcs, std::span<double> slopes) {
    arcs_ = arcs;
    slopes_ = slopes;
    if (!arcs.empty()) {
      sums_.assign(static_cast<size_t>(trellis_graph_.out.num_terms() * lanes_), 0.0);
      diagonal_sums_.assign(tables_.diagonal_arc.size(), 0.0);
    }
    go_forward();
    find_totals();
    go_back();
    for (int32_t k = 0; !arcs.empty() && k < trellis_graph_.out.num_terms(); ++k)
      if (const int32_t a = trellis_graph_.out.arc[k]; a >= 0)
        for (int32_t l = 0; l < lanes_; ++l) arcs[a] += sums_[k * lanes_ + l];
    for (size_t k = 0; k < diagonal_sums_.size(); ++k)
      if (const int32_t a = tables_.diagonal_arc[k]; a >= 0) arcs[a] += diagonal_sums_[k];
  }

 private:
  int32_t frames(int32_t lane) const { return examples_[lane].emissions.frames; }
  int32_t num_examples() const { return static_cast<int32_t>(examples_.size()); }
  /// Where the first place is in a frame.
  int64_t first() const { return tables_.is_diagonal ? tables_.reach : 0; }
  MovedScores v(int32_t t) const { return v_.at(t * frame_size_ + first()); }

  /// Along diagonals the numbers of a vector belong to one example.
  PerLane joined(const PerLane& x) const {
    if (!tables_.is_diagonal) return x;
    PerLane out;
    out.fill((x[0] + x[1]) + (x[2] + x[3]));
    return out;
  }

  void go_forward() {
    const int32_t num_emitting = trellis_graph_.num_emitting,
                  num_values = trellis_graph_.num_values;
    if (!tables_.is_diagonal) copy_all(tables_.begin, v_.at(0));
    for (int32_t t = 1; t <= frames_; ++t) {
      if (t % kFramesPerPoll == 0) poll_interrupt();
      const MovedScores emissions = read(t);
      const double* const center = centers_[t].data();
      PerLane moved{};
      if (!tables_.is_diagonal) {
        rows_.forward(tables_.in, 0, num_emitting, v(t - 1), &emissions, trellis_graph_.slot.data(),
                      center, v(t), moved.data());
        rows_.forward(tables_.in, num_emitting, num_values, v(t), nullptr, nullptr, nullptr, v(t),
                      nullptr);
      } else if (t == 1) {
        rows_.forward(tables_.in, 0, num_emitting, tables_.begin.at(0), &emissions, nullptr, center,
                      v(t), moved.data());
      } else {
        diagonals_.forward(tables_.diagonals, 0, static_cast<int32_t>(tables_.padded), v(t - 1),
                           &emissions, nullptr, center, v(t), moved.data());
      }
      centers_[t + 1] = joined(moved);
      for (double& c : centers_[t + 1]) c /= std::max(num_emitting, 1);
    }
  }

  /// The exponent of the score of each example, or 0 if there is no path.
  void find_totals() {
    const MovedScores begin = tables_.begin.at(0), end = tables_.end.at(0);
    for (int32_t l = 0; l < num_examples(); ++l) {
      ScaledSum sum;
      if (frames(l) == 0) {
        for (int32_t n : trellis_graph_.accept) sum.add(begin.mantissa[n], begin.exponent[n]);
      } else {
        const MovedScores last = v(frames(l));
        for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
          const int64_t at = int64_t{p} * lanes_ + l;
          sum.add(last.mantissa[at] * end.mantissa[p], last.exponent[at] + end.exponent[p]);
        }
      }
      const Scaled total = sum.get();
      is_possible_[l] = !total.is_zero();
      unit_[l] = total.is_zero() ? 0.0 : total.exponent;
      if (frames(l) == 0 && is_possible_[l]) finish_empty(l, total);
    }
    if (tables_.is_diagonal) unit_.fill(unit_[0]);
  }

  /// An example without frames.
  void finish_empty(int32_t lane, const Scaled& total) {
    const MovedScores begin = tables_.begin.at(0);
    Mean mean;
    for (int32_t n : trellis_graph_.accept)
      mean.add(begin.mantissa[n], begin.exponent[n], begin.move[n]);
    slopes_[lane] = mean.get();
    const Scores scores(int64_t{trellis_graph_.num_values} * lanes_);
    copy_all(tables_.begin, scores.at(0));
    add_last_arcs(lane, scores.at(0), mean.get(), examples_[lane].scale / total.mantissa);
  }

  void go_back() {
    PerLane mean, scale;
    for (int32_t t = frames_; t >= 1; --t) {
      PerLane total{}, moved{};
      if (t % kFramesPerPoll == 0) poll_interrupt();
      for (int32_t l = 0; l < num_examples(); ++l)
        if (frames(l) == t && is_possible_[l]) begin_back(l);
      const MovedScores emissions = read(t), b = b_.at(first()), g = g_.at(first());
      const auto find = [&](const auto& steps, int32_t count, const int32_t* slot) {
        steps.posteriors(count, v(t), b, unit_.data(), posterior_.get(), total.data(),
                         moved.data());
        total = joined(total);
        moved = joined(moved);
        for (size_t l = 0; l < total.size(); ++l) {
          const size_t example = tables_.is_diagonal ? 0 : l;
          const bool is_alive = total[l] > 0.0 && example < examples_.size();
          mean[l] = is_alive ? moved[l] / total[l] : 0.0;
          scale[l] = is_alive ? examples_[example].scale / total[l] : 0.0;
        }
        steps.finish(count, v(t), b, emissions, slot, mean.data(), scale.data(), posterior_.get(),
                     g);
      };
      if (tables_.is_diagonal)
        find(diagonals_, static_cast<int32_t>(tables_.padded), nullptr);
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
  }

  /// From frame t to the one before.
  void step_back(int32_t t, HvpArcs arcs) {
    const int32_t num_emitting = trellis_graph_.num_emitting,
                  num_values = trellis_graph_.num_values;
    // Before the first frame only the arcs are left to do.
    if (t == 1 && arcs_.empty()) return;
    if (!tables_.is_diagonal) {
      if (!arcs_.empty()) arcs.sums = sums_.data();
      rows_.backward(tables_.out, 0, num_values, num_emitting, g_.at(0), v(t - 1), arcs, b_.at(0));
    } else if (t > 1) {
      const auto padded = static_cast<int32_t>(tables_.padded);
      if (!arcs_.empty()) arcs.sums = diagonal_sums_.data() + tables_.reach;
      diagonals_.backward(tables_.diagonals, 0, padded, padded, g_.at(first()), v(t - 1), arcs,
                          b_.at(first()));
    } else {
      const Scores g = Scores::dead(num_values), b(num_values);
      copy(g_.at(first()), num_emitting, g.at(0));
      arcs.sums = sums_.data();
      rows_.backward(tables_.out, 0, num_values, num_emitting, g.at(0), tables_.begin.at(0), arcs,
                     b.at(0));
    }
  }

  /// Sets the scores to the end of an example after its last frame.
  void begin_back(int32_t lane) const {
    const MovedScores end = tables_.end.at(0), b = b_.at(first());
    const int32_t count =
        tables_.is_diagonal ? trellis_graph_.num_emitting : trellis_graph_.num_values;
    for (int32_t n = 0; n < count; ++n) {
      const int64_t at = int64_t{n} * lanes_ + lane;
      b.mantissa[at] = end.mantissa[n];
      b.exponent[at] = end.exponent[n];
      b.move[at] = end.move[n];
    }
  }

  /// The derivative of the score, and the epsilon arcs after the last frame.
  void finish_last(int32_t lane, double mean, double scale) {
    const int32_t t = frames(lane);
    slopes_[lane] = mean;
    for (int32_t k = 1; k <= t; ++k) slopes_[lane] += centers_[k][lane];
    if (arcs_.empty()) return;
    if (!tables_.is_diagonal) return add_last_arcs(lane, v(t), mean, scale);
    const Scores last = Scores::dead(trellis_graph_.num_values);
    copy(v(t), trellis_graph_.num_emitting, last.at(0));
    rows_.forward(tables_.in, trellis_graph_.num_emitting, trellis_graph_.num_values, last.at(0),
                  nullptr, nullptr, nullptr, last.at(0), nullptr);
    add_last_arcs(lane, last.at(0), mean, scale);
  }

  void add_last_arcs(int32_t lane, MovedScores last, double mean, double scale) const {
    if (arcs_.empty()) return;
    const MovedScores end = tables_.end.at(0), weight = tables_.out.weight;
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
      for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
        const int32_t s = trellis_graph_.out.index[k];
        const int64_t i = int64_t{v} * lanes_ + lane;
        const double m = last.mantissa[i] * weight.mantissa[k] * end.mantissa[s];
        if (trellis_graph_.out.arc[k] < 0 || m == 0.0) continue;
        const double q = last.exponent[i] + weight.exponent[k] + end.exponent[s] - unit_[lane];
        arcs_[trellis_graph_.out.arc[k]] += m * pow2(std::min(q, 100.0)) * scale *
                                            (last.move[i] + weight.move[k] + end.move[s] - mean);
      }
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
        for (int32_t k = tables_.slot_offset[slot]; k < tables_.slot_offset[slot + 1]; ++k)
          sum += posterior_[int64_t{tables_.slot_place[k]} * lanes_ + lane];
        to[trellis_graph_.labels[slot]] += static_cast<G>(sum);
      }
    });
  }

  /// Calls put(slot, value) for the labels that an example has in a row of numbers.
  template <class E, class Put>
  void for_slots(const E* from, int64_t stride, int32_t num_labels, const Put& put) const {
    const std::vector<int32_t>& labels = trellis_graph_.labels;
    if (tables_.has_all_labels && stride == 1 && num_slots_ > 0) {
      const int64_t known = std::clamp<int64_t>(num_labels - labels[0], 0, num_slots_);
      from += labels[0];
      for (int64_t s = 0; s < known; ++s) put(s, from[s]);
    } else {
      for (int64_t s = 0; s < num_slots_ && labels[s] < num_labels; ++s)
        put(s, from[labels[s] * stride]);
    }
  }

  /// The emissions of frame t with their moves, by label; along diagonals by place.
  MovedScores read(int32_t t) {
    const MovedScores slots = slots_.at(0), places = places_.at(0);
    for (int32_t l = 0; l < num_examples(); ++l) {
      const auto& [emissions, moves, scale, grad] = examples_[l];
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
      double* const own = moves_.get() + l * num_slots_;
      if (!moves.empty())
        for_slots(moves.data() + int64_t{t - 1} * emissions.labels, 1, emissions.labels,
                  [&](int64_t s, double w) { own[s] = w; });
    }
    const bool is_bad = tables_.is_diagonal
                            ? diagonals_.split(num_slots_, logarithms_.get(), moves_.get(), slots)
                            : rows_.split(num_slots_, logarithms_.get(), moves_.get(), slots);
    for (int32_t l = 0; is_bad && l < num_examples(); ++l)
      if (t <= frames(l))
        check_emissions(op_, trellis_graph_.labels, examples_[l].emissions, t - 1);
    if (!tables_.is_diagonal) return slots;
    for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
      const int32_t s = trellis_graph_.slot[p];
      places.mantissa[p] = slots.mantissa[s];
      places.exponent[p] = slots.exponent[s];
      places.move[p] = slots.move[s];
    }
    return places;
  }

  /// Scores of values for all lanes.
  void copy_all(const Scores& from, MovedScores to) const {
    const MovedScores of = from.at(0);
    for (int32_t n = 0; n < trellis_graph_.num_values; ++n)
      for (int32_t l = 0; l < lanes_; ++l) {
        const int64_t at = int64_t{n} * lanes_ + l;
        to.mantissa[at] = of.mantissa[n];
        to.exponent[at] = of.exponent[n];
        to.move[at] = of.move[n];
      }
  }
  static void copy(MovedScores from, int64_t count, MovedScores to) {
    std::copy_n(from.mantissa, count, to.mantissa);
    std::copy_n(from.exponent, count, to.exponent);
    std::copy_n(from.move, count, to.move);
  }

  const char* op_;
  const Tables& tables_;
  const TrellisGraph& trellis_graph_;
  std::span<const HvpExample> examples_;
  const int32_t lanes_;
  const HvpTable<HvpRows>& rows_;
  const HvpTable<HvpDiagonals>& diagonals_ = ARCGRAD_LOOPS(curvature_diagonals);
  int32_t frames_ = 0;
  int64_t frame_size_ = 0;
  Scores v_, b_, g_;  // of all frames, and of one
  int64_t num_slots_ = 0;
  Scores slots_, places_;             // emissions of a frame
  Block<double> logarithms_, moves_;  // the same as they are, example by example
  Block<double> posterior_;
  std::vector<PerLane> centers_;  // what goes off the moves of each frame
  std::array<bool, kCurvatureLanes> is_possible_{};
  PerLane unit_{};
  std::span<double> arcs_, slopes_;
  std::vector<double> sums_, diagonal_sums_;  // of arcs, by term of the out-rows and by diagonal
};

}  // namespace

void add_hvps(const char* op, const Factor& factor, std::span<const double> arc_moves,
              std::span<const HvpExample> examples, std::span<double> arcs,
              std::span<double> slopes) {
  const Tables tables(factor, arc_moves);
  const size_t most = tables.is_diagonal ? 1 : kCurvatureLanes;
  std::ranges::fill(slopes, 0.0);
  for (size_t begin = 0; begin < examples.size(); begin += most) {
    const size_t count = std::min(most, examples.size() - begin);
    Recursion(op, tables, examples.subspan(begin, count)).run(arcs, slopes.subspan(begin, count));
  }
}

}  // namespace arcgrad::trellis
