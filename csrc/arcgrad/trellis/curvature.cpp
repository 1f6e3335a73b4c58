#include "arcgrad/trellis/curvature.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/parallel.h"
#include "arcgrad/trellis/lanes.h"

// With v and b the scores before and after each value, let D be the mean, over the paths that lead
// to a value, of how much the direction moves their scores, and R the same over the paths that go
// on from it. An arc or place with posterior y then changes by y * (D + its own move + R - mean).
// The moves of a frame are centred first: otherwise D and R grow with the number of frames and
// cancel.

namespace arcgrad::trellis {
namespace {

constexpr int32_t kFramesPerRebase = 64;
constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Scores of all frames.
struct Table {
  explicit Table(size_t count) : mantissa(count), exponent(count) {}
  std::vector<double> mantissa;
  std::vector<int64_t> exponent;
  Scores<double> at(size_t offset) { return {mantissa.data() + offset, exponent.data() + offset}; }
  double q(size_t i) const { return static_cast<double>(exponent[i]); }
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
  double top_ = kNone, weight_ = 0.0, sum_ = 0.0;
};

class Curvature {
 public:
  Curvature(const char* op, const Factor& factor, const Emissions& example,
            const Direction& direction)
      : op_(op),
        factor_(factor),
        form_(*factor.form),
        example_(example),
        direction_(direction),
        num_values_(static_cast<size_t>(form_.num_values)),
        num_places_(static_cast<size_t>(form_.num_places)),
        frames_(example.frames),
        weights_(factor),
        v_((static_cast<size_t>(frames_) + 1) * num_values_),
        b_(v_.mantissa.size()),
        posterior_(static_cast<size_t>(frames_) * num_places_),
        shift_(static_cast<size_t>(frames_) + 1),
        centre_(static_cast<size_t>(frames_) + 1) {
    count_ = static_cast<int32_t>(std::ranges::lower_bound(form_.labels, example.labels) -
                                  form_.labels.begin());
  }

  double run(double scale, const EmissionsGrad& emissions, std::span<double> arcs) {
    score_forward();
    score_backward();
    if (!find_posteriors()) return 0.0;
    before_.assign(v_.mantissa.size(), 0.0);
    after_.assign(v_.mantissa.size(), 0.0);
    move_forward();
    move_backward();
    Mean mean;
    for (int32_t v : form_.start) mean.add(b_.mantissa[v], b_.q(v), after_[v]);
    const double rest = mean.get();
    add(scale, rest, emissions, arcs);
    double slope = rest;
    for (double c : centre_) slope += c;
    return slope;
  }

 private:
  double weight_mantissa(int32_t arc) const { return arc < 0 ? 1.0 : factor_.mantissa[arc]; }
  double weight_exponent(int32_t arc) const { return arc < 0 ? 0.0 : factor_.exponent[arc]; }
  double arc_move(int32_t arc) const {
    return arc < 0 || direction_.arcs.empty() ? 0.0 : direction_.arcs[arc];
  }
  /// The move of the emission of a place at frame t >= 1, not centred.
  double place_move(int32_t t, size_t p) const {
    if (direction_.emissions.empty()) return 0.0;
    const int32_t label = form_.labels[form_.slot[p]];
    if (label >= example_.labels) return 0.0;
    return direction_.emissions[static_cast<size_t>(int64_t{t - 1} * example_.labels + label)];
  }

  void split(int32_t t, Scores<double> out) {
    const size_t num_slots = form_.labels.size();
    row_.resize(num_slots);
    identity_.resize(num_slots);
    for (size_t s = 0; s < num_slots; ++s) {
      identity_[s] = static_cast<int32_t>(s);
      if (static_cast<int32_t>(s) >= count_) continue;
      const int64_t at =
          int64_t{t - 1} * example_.row_stride + form_.labels[s] * example_.col_stride;
      row_[s] = dispatch(example_.dtype, [&](auto kind) {
        return static_cast<double>(static_cast<const decltype(kind)*>(example_.data)[at]);
      });
    }
    const double* const row = row_.data();
    const int64_t stride = 1;
    Shape by_slot = shape();
    by_slot.label = identity_.data();
    if (steps_.split(by_slot, &row, &stride, &count_, out))
      check_emissions(op_, form_, example_, t - 1);
  }

  Shape shape() const {
    return {form_.num_places, form_.num_values, static_cast<int32_t>(form_.labels.size()),
            form_.slot.data(), form_.labels.data()};
  }

  void score_forward() {
    const WeightedRows<double> in{form_.in.offset.data(), form_.in.index.data(),
                                  weights_.in_mantissa.data(), weights_.in_exponent.data()};
    set(v_.at(0), factor_.begin);
    Table emissions(form_.labels.size());
    for (int32_t t = 1; t <= frames_; ++t) {
      split(t, emissions.at(0));
      const Scores<double> to = v_.at(static_cast<size_t>(t) * num_values_);
      steps_.forward(shape(), in, emissions.at(0), v_.at(static_cast<size_t>(t - 1) * num_values_),
                     to);
      rebase(t, to);
    }
  }

  void score_backward() {
    const WeightedRows<double> out{form_.out.offset.data(), form_.out.index.data(),
                                   weights_.out_mantissa.data(), weights_.out_exponent.data()};
    set(b_.at(static_cast<size_t>(frames_) * num_values_), factor_.end);
    Table emissions(form_.labels.size()), g(num_values_);
    std::vector<double> unused(num_places_ + 1);
    for (int32_t t = frames_; t >= 1; --t) {
      split(t, emissions.at(0));
      const size_t at = static_cast<size_t>(t) * num_values_;
      const int64_t unit = 0;
      double sum;
      steps_.posteriors(shape(), emissions.at(0), v_.at(at), b_.at(at), &unit, unused.data(), &sum,
                        g.at(0));
      const Scores<double> to = b_.at(at - num_values_);
      steps_.backward(shape(), out, g.at(0), to, nullptr, nullptr, nullptr, nullptr, nullptr);
      shift_[t - 1] = rebase(t, to);
    }
  }

  static void set(Scores<double> to, const std::vector<Scaled>& from) {
    for (size_t v = 0; v < from.size(); ++v) {
      to.mantissa[v] = from[v].mantissa;
      to.exponent[v] = from[v].is_zero() ? -(1 << 30) : static_cast<int64_t>(from[v].exponent);
    }
  }

  int64_t rebase(int32_t t, Scores<double> scores) {
    if (t % kFramesPerRebase != 0) return 0;
    int64_t shift;
    steps_.rebase(form_.num_values, scores, &shift);
    poll_interrupt();
    return shift;
  }

  /// The posteriors of places; false if no path is accepted.
  bool find_posteriors() {
    ScaledSum total;
    for (int32_t v : form_.start) total.add(b_.mantissa[v], b_.q(v));
    total_ = total.get();
    if (total_.is_zero()) return false;
    sums_.resize(static_cast<size_t>(frames_) + 1);
    sums_[0] = total_;
    for (size_t t = 1; t < sums_.size(); ++t) {
      const size_t at = t * num_values_;
      ScaledSum sum;
      for (size_t p = 0; p < num_places_; ++p)
        sum.add(v_.mantissa[at + p] * b_.mantissa[at + p], v_.q(at + p) + b_.q(at + p));
      sums_[t] = sum.get();
      if (sums_[t].is_zero()) return false;
      for (size_t p = 0; p < num_places_; ++p)
        posterior_[(t - 1) * num_places_ + p] =
            relative(t, v_.mantissa[at + p] * b_.mantissa[at + p], v_.q(at + p) + b_.q(at + p));
    }
    return true;
  }

  /// A product of scores before and after frame t as a share of all.
  double relative(size_t t, double mantissa, double exponent) const {
    return mantissa == 0.0
               ? 0.0
               : mantissa * pow2(std::min(exponent - sums_[t].exponent, 100.0)) / sums_[t].mantissa;
  }

  /// Calls f(index of term, share of the term in its row) for the terms of an in-row, whose sources
  /// are the values at `from`.
  template <class F>
  void for_each_share(size_t row, size_t from, F f) const {
    double top = kNone;
    const int32_t begin = form_.in.offset[row], end = form_.in.offset[row + 1];
    for (int32_t k = begin; k < end; ++k) {
      const size_t i = from + form_.in.index[k];
      if (v_.mantissa[i] * weight_mantissa(form_.in.arc[k]) != 0.0)
        top = std::max(top, v_.q(i) + weight_exponent(form_.in.arc[k]));
    }
    if (top == kNone) return;
    double sum = 0.0;
    terms_.resize(static_cast<size_t>(end - begin));
    for (int32_t k = begin; k < end; ++k) {
      const size_t i = from + form_.in.index[k];
      const int32_t a = form_.in.arc[k];
      sum += terms_[k - begin] =
          v_.mantissa[i] * weight_mantissa(a) * pow2(v_.q(i) + weight_exponent(a) - top);
    }
    const double scale = 1.0 / sum;
    for (int32_t k = begin; k < end; ++k) f(k, terms_[k - begin] * scale);
  }

  /// D of the sums at frame t, and the mean move of the epsilon arcs there.
  double move_sums(size_t t) {
    const size_t at = t * num_values_;
    double moved = 0.0;
    for (size_t s = num_places_; s < num_values_; ++s) {
      Mean mean;
      if (t == 0 && std::ranges::find(form_.start, static_cast<int32_t>(s)) != form_.start.end())
        mean.add(1.0, 0.0, 0.0);
      for (int32_t k = form_.in.offset[s]; k < form_.in.offset[s + 1]; ++k) {
        const size_t i = at + form_.in.index[k];
        const int32_t a = form_.in.arc[k];
        const double m = v_.mantissa[i] * weight_mantissa(a), q = v_.q(i) + weight_exponent(a);
        mean.add(m, q, before_[i] + arc_move(a));
        moved += arc_move(a) * relative(t, m * b_.mantissa[at + s], q + b_.q(at + s));
      }
      before_[at + s] = mean.get();
    }
    return moved;
  }

  void move_forward() {
    double carried = move_sums(0);
    for (size_t t = 1; t <= static_cast<size_t>(frames_); ++t) {
      const size_t at = t * num_values_, from = at - num_values_;
      double centre = carried;
      for (size_t p = 0; p < num_places_; ++p) {
        double moved = place_move(static_cast<int32_t>(t), p), arcs = 0.0;
        for_each_share(p, from, [&](int32_t k, double share) {
          arcs += share * arc_move(form_.in.arc[k]);
          moved += share * (before_[from + form_.in.index[k]] + arc_move(form_.in.arc[k]));
        });
        before_[at + p] = moved;
        centre +=
            posterior_[(t - 1) * num_places_ + p] * (place_move(static_cast<int32_t>(t), p) + arcs);
      }
      centre_[t] = centre;
      for (size_t p = 0; p < num_places_; ++p) before_[at + p] -= centre;
      carried = move_sums(t);
    }
  }

  void move_backward() {
    Table emissions(form_.labels.size());
    const auto row = [&](size_t v, size_t at, const auto& g_of, const auto& move_of, bool ends) {
      Mean mean;
      if (ends && std::ranges::find(form_.accept, static_cast<int32_t>(v)) != form_.accept.end())
        mean.add(1.0, 0.0, 0.0);
      for (int32_t k = form_.out.offset[v]; k < form_.out.offset[v + 1]; ++k) {
        const auto i = static_cast<size_t>(form_.out.index[k]);
        const int32_t a = form_.out.arc[k];
        const auto [m, q] = g_of(i);
        mean.add(m * weight_mantissa(a), q + weight_exponent(a), arc_move(a) + move_of(i));
      }
      after_[at + v] = mean.get();
    };
    const size_t last = static_cast<size_t>(frames_) * num_values_;
    for (size_t v = num_values_; v-- > 0;)
      row(
          v, last,
          [&](size_t i) -> std::pair<double, double> {
            if (i < num_places_) return {0.0, 0.0};
            return {b_.mantissa[last + i], b_.q(last + i)};
          },
          [&](size_t i) { return after_[last + i]; }, true);
    for (int32_t t = frames_; t >= 1; --t) {
      split(t, emissions.at(0));
      const size_t at = static_cast<size_t>(t) * num_values_, to = at - num_values_;
      // b was shifted after it was computed from g, so sums are not in the unit of places.
      const double shift = static_cast<double>(shift_[to / num_values_]);
      for (size_t v = num_values_; v-- > 0;)
        row(
            v, to,
            [&](size_t i) -> std::pair<double, double> {
              if (i >= num_places_) return {b_.mantissa[to + i], b_.q(to + i) + shift};
              const auto s = static_cast<size_t>(form_.slot[i]);
              return {emissions.mantissa[s] * b_.mantissa[at + i], emissions.q(s) + b_.q(at + i)};
            },
            [&](size_t i) {
              if (i >= num_places_) return after_[to + i];
              return place_move(t, i) - centre_[t] + after_[at + i];
            },
            false);
    }
  }

  void add(double scale, double rest, const EmissionsGrad& emissions,
           std::span<double> arcs) const {
    for (size_t t = 1; t <= static_cast<size_t>(frames_); ++t) {
      const size_t at = t * num_values_, from = at - num_values_;
      for (size_t p = 0; p < num_places_; ++p) {
        const double posterior = scale * posterior_[(t - 1) * num_places_ + p];
        if (posterior == 0.0) continue;
        const int32_t label = form_.labels[form_.slot[p]];
        if (emissions.data)
          dispatch(emissions.dtype, [&](auto kind) {
            using G = decltype(kind);
            emissions.row<G>(static_cast<int64_t>(t) - 1)[label] +=
                static_cast<G>(posterior * (before_[at + p] + after_[at + p] - rest));
          });
        if (arcs.empty()) continue;
        const double own = place_move(static_cast<int32_t>(t), p) - centre_[t];
        for_each_share(p, from, [&](int32_t k, double share) {
          const int32_t a = form_.in.arc[k];
          arcs[a] +=
              posterior * share *
              (before_[from + form_.in.index[k]] + arc_move(a) + own + after_[at + p] - rest);
        });
      }
    }
    if (arcs.empty()) return;
    for (size_t t = 0; t <= static_cast<size_t>(frames_); ++t) {
      const size_t at = t * num_values_;
      for (size_t s = num_places_; s < num_values_; ++s)
        for (int32_t k = form_.in.offset[s]; k < form_.in.offset[s + 1]; ++k) {
          const int32_t a = form_.in.arc[k];
          if (a < 0) continue;
          const size_t i = at + form_.in.index[k];
          const double posterior =
              relative(t, v_.mantissa[i] * weight_mantissa(a) * b_.mantissa[at + s],
                       v_.q(i) + weight_exponent(a) + b_.q(at + s));
          arcs[a] += scale * posterior * (before_[i] + arc_move(a) + after_[at + s] - rest);
        }
    }
  }

  const char* op_;
  const Factor& factor_;
  const Form& form_;
  const Emissions& example_;
  const Direction& direction_;
  size_t num_values_, num_places_;
  int32_t frames_;
  int32_t count_ = 0;
  RowWeights<double> weights_;
  const LanesSteps<double>& steps_ = ARCGRAD_STEPS(lanes1_double);
  Table v_, b_;
  std::vector<double> posterior_;  // of places, from frame 1 on
  std::vector<int64_t> shift_;     // how far rebase() moved b
  std::vector<double> centre_;     // what was subtracted from the moves of a frame
  std::vector<double> before_, after_;
  std::vector<Scaled> sums_;
  Scaled total_;
  std::vector<double> row_;
  mutable std::vector<double> terms_;
  std::vector<int32_t> identity_;
};

}  // namespace

double add_curvature(const char* op, const Factor& factor, const Emissions& example,
                     const Direction& direction, double scale, const EmissionsGrad& emissions,
                     std::span<double> arcs) {
  return Curvature(op, factor, example, direction).run(scale, emissions, arcs);
}

}  // namespace arcgrad::trellis
