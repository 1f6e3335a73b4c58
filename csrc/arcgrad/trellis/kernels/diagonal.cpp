#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <utility>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/stream_copy.h"
#include "arcgrad/trellis/kernels/diagonal_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis {
namespace {

/// Every so many frames the largest exponent is moved to a base, and interrupts are looked for.
constexpr int32_t kBaseFrames = 64;
/// Emissions are split for this many frames at a time, so that their cache misses overlap.
constexpr int32_t kSplitFrames = 64;
/// Arc gradients are added up in the type of the recursion for this many frames.
constexpr int32_t kSumFrames = 32;

/// Rows of unset gradients are set together if they have no more entries than this.
constexpr int64_t kEntriesAtOnce = 2048;
/// From this many entries on, writing past the caches pays for rows that share lines at their ends.
constexpr int32_t kLongRow = 256;

int64_t round_up(int64_t n) { return (n + kPlaceBlock - 1) / kPlaceBlock * kPlaceBlock; }

/// Scores of places for some frames.
template <class T>
class RowStore {
 public:
  RowStore() = default;
  /// `before` and `after` are how many more places can be read on either side of [0, places).
  RowStore(int64_t rows, int64_t before, int64_t places, int64_t after)
      : before_(round_up(before)),
        size_(before_ + places + round_up(after)),
        mantissa_(rows * size_),
        exponent_(rows * size_) {}
  /// From one row to the next, in entries.
  int64_t size() const { return size_; }
  PlaceRow<T> row(int64_t i) const {
    return {mantissa_.get() + i * size_ + before_, exponent_.get() + i * size_ + before_};
  }

 private:
  int64_t before_ = 0, size_ = 0;
  Block<T> mantissa_;
  Block<Exponent<T>> exponent_;
};

/// a * b.
Scaled product(const Scaled& a, const Scaled& b) {
  return {a.mantissa * b.mantissa, a.is_zero() || b.is_zero() ? 0.0 : a.exponent + b.exponent};
}

/// a / b, which is at most about 1.
double quotient(const Scaled& a, const Scaled& b) {
  if (a.is_zero()) return 0.0;
  return a.mantissa / b.mantissa * pow2(std::min(a.exponent - b.exponent, 64.0));
}

/// Places from `low` up to but not including `high`.
struct Window {
  int32_t low, high;
  bool is_empty() const { return low >= high; }
};

template <class T>
void kill(PlaceRow<T> row, int32_t low, int32_t high) {
  for (int32_t p = low; p < high; ++p) {
    row.mantissa[p] = T(0);
    row.exponent[p] = kDead;
  }
}

template <class T>
class DiagonalRun final : public Run {
  using Int = Exponent<T>;
  using Row = PlaceRow<T>;

 public:
  DiagonalRun(std::shared_ptr<const Factor> factor, const Emissions& example,
              const RunOptions& options)
      : factor_(std::move(factor)),
        trellis_graph_(*factor_->form),
        emissions_(example),
        op_(options.op),
        frames_(example.frames),
        stride_(std::max(options.stride, 1)),
        steps_(choose_steps()) {
    if (frames_ == 0) {
      ScaledSum sum;
      for (int32_t v : trellis_graph_.accept)
        sum.add(factor_->begin[v].mantissa, factor_->begin[v].exponent);
      total_ = sum.get();
    } else {
      set_up();
      run_forward(options.keep);
    }
    scores.push_back(log(total_));
  }

  bool clears_rows() const override { return true; }
  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override {
    if (total_.is_zero() || deltas[0] == 0.0) return;
    const EmissionsGrad wanted = emissions.empty() ? EmissionsGrad{} : emissions[0];
    if (frames_ == 0)
      add_end_arcs(factor_->begin, total_, deltas[0], arcs);
    else
      run_backward(deltas[0], wanted, arcs, nullptr);
  }

  std::vector<double> frame_scores(size_t) const override {
    std::vector<double> out(static_cast<size_t>(frames_), -std::numeric_limits<double>::infinity());
    if (frames_ > 0 && !total_.is_zero()) run_backward(0.0, {}, {}, out.data());
    return out;
  }

 private:
  static const DiagonalTable<T>& choose_steps() {
    if constexpr (sizeof(T) == 4)
      return ARCGRAD_LOOPS(diagonal_f32);
    else
      return ARCGRAD_LOOPS(diagonal_f64);
  }

  Scaled weight(int32_t arc) const {
    return arc < 0 ? Scaled::one() : Scaled{factor_->mantissa[arc], factor_->exponent[arc]};
  }
  Scaled score(Row row, int32_t p, int64_t base) const {
    return {static_cast<double>(row.mantissa[p]), static_cast<double>(row.exponent[p] + base)};
  }

  // The graph, arranged for the loops.

  void set_up() {
    num_places_ = trellis_graph_.num_emitting;
    places_ = round_up(num_places_);
    low_offset_ = trellis_graph_.offsets.front();
    high_offset_ = trellis_graph_.offsets.back();
    kind_ = trellis_graph_.offsets.size() <= 2 ? 0 : trellis_graph_.offsets.size() == 3 ? 1 : 2;
    const int32_t count = std::array{2, 3, 6}[static_cast<size_t>(kind_)];
    is_weighted_ = !factor_->is_unweighted;

    const int64_t pad = round_up(std::max(std::abs(low_offset_), std::abs(high_offset_)));
    const int64_t size = pad + places_ + pad;
    weight_exponent_ = Block<Int>(count * size, kDead);
    if (is_weighted_) weight_mantissa_ = Block<T>(count * size, T(0));
    // How far from the most negative offset each diagonal is.
    std::pmr::vector<int32_t> diagonal(static_cast<size_t>(high_offset_ - low_offset_) + 1, &pool_);
    for (int32_t k = 0; k < count; ++k) {
      const bool is_used = k < static_cast<int32_t>(trellis_graph_.offsets.size());
      diagonals_.offset[k] = trellis_graph_.offsets[is_used ? k : 0];  // the rest: no arcs
      if (is_used) diagonal[trellis_graph_.offsets[k] - low_offset_] = k;
      diagonals_.exponent[k] = weight_exponent_.get() + k * size + pad;
      diagonals_.mantissa[k] = is_weighted_ ? weight_mantissa_.get() + k * size + pad : nullptr;
    }
    for (int32_t from = 0; from < num_places_; ++from)
      for (int32_t k = trellis_graph_.out.offset[from]; k < trellis_graph_.middle[from]; ++k) {
        const int32_t p = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
        const int64_t cell = diagonal[p - from - low_offset_] * size + pad + p;
        if (!is_weighted_) {
          weight_exponent_.get()[cell] = kNoLimit;
        } else if (factor_->mantissa[arc] > 0.0) {
          weight_exponent_.get()[cell] = static_cast<Int>(factor_->exponent[arc]);
          weight_mantissa_.get()[cell] = static_cast<T>(factor_->mantissa[arc]);
        }
      }

    const auto& labels = trellis_graph_.labels;
    num_slots_ = static_cast<int32_t>(labels.size());
    live_slots_ =
        static_cast<int32_t>(std::ranges::lower_bound(labels, emissions_.labels) - labels.begin());
    slots_ = round_up(num_slots_);
    index_.resize(static_cast<size_t>(live_slots_));
    for (int32_t s = 0; s < live_slots_; ++s) index_[s] = labels[s] * emissions_.col_stride;
    slot_ = Block<int32_t>(places_, 0);
    std::ranges::copy(trellis_graph_.slot, slot_.get());
    diagonals_.slot = slot_.get();
    std::pmr::vector<int32_t> places_of(static_cast<size_t>(num_slots_), &pool_),
        order(static_cast<size_t>(live_slots_), &pool_);
    for (int32_t s : trellis_graph_.slot) ++places_of[s];
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int32_t s) { return std::pair(places_of[s], s); });
    std::pmr::vector<int32_t> next(static_cast<size_t>(num_slots_), -1, &pool_);
    slot_label_.reserve(order.size());
    slot_offset_.reserve(order.size() + 1);
    slot_offset_.push_back(0);
    for (int32_t s : order) {
      num_single_ += places_of[s] == 1 ? 1 : 0;
      slot_label_.push_back(labels[s]);
      next[s] = slot_offset_.back();
      slot_offset_.push_back(next[s] + places_of[s]);
    }
    slot_place_.resize(static_cast<size_t>(slot_offset_.back()));
    for (int32_t p = 0; p < num_places_; ++p)
      if (trellis_graph_.slot[p] < live_slots_) slot_place_[next[trellis_graph_.slot[p]]++] = p;

    // What enters the places in the first frame, and what the places are worth after the last.
    std::pmr::vector<ScaledSum> entering(&pool_);
    first_ = {num_places_, 0};
    last_ = {num_places_, 0};
    auto include = [](Window& window, int32_t p) {
      window.low = std::min(window.low, p);
      window.high = std::max(window.high, p + 1);
    };
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
      if (factor_->begin[v].is_zero()) continue;
      for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k)
        if (trellis_graph_.out.index[k] < num_places_) include(first_, trellis_graph_.out.index[k]);
    }
    for (int32_t p = 0; p < num_places_; ++p)
      if (!factor_->end[p].is_zero()) include(last_, p);
    if (first_.is_empty() || last_.is_empty()) return;
    entering.resize(static_cast<size_t>(first_.high - first_.low));
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
      const Scaled begin = factor_->begin[v];
      if (begin.is_zero()) continue;
      for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
        if (trellis_graph_.out.index[k] >= num_places_) continue;
        const Scaled term = product(begin, weight(trellis_graph_.out.arc[k]));
        entering[trellis_graph_.out.index[k] - first_.low].add(term.mantissa, term.exponent);
      }
    }
    entering_.reserve(entering.size());
    for (const ScaledSum& sum : entering) entering_.push_back(sum.get());
  }

  /// Sets `windows_`. False if one is empty: then no path fits the number of frames.
  bool find_windows() {
    if (first_.is_empty() || last_.is_empty()) return false;
    windows_.reserve(static_cast<size_t>(frames_));
    for (int32_t t = 1; t <= frames_; ++t) {
      const int64_t before = t - 1, after = frames_ - t;
      const int64_t low = std::max(
          {first_.low + before * low_offset_, last_.low - after * high_offset_, int64_t{0}});
      const int64_t high = std::min({first_.high + before * high_offset_,
                                     last_.high - after * low_offset_, int64_t{num_places_}});
      if (low >= high) return false;
      windows_.push_back({static_cast<int32_t>(low / kPlaceBlock * kPlaceBlock),
                          static_cast<int32_t>(round_up(high))});
    }
    return true;
  }
  Window window(int32_t t) const { return windows_[static_cast<size_t>(t) - 1]; }

  // Forward.

  /// The mantissas and exponents of the emissions of `count` frames from frame t, counted from 1.
  void split(int32_t t, int32_t count, T* buffer, Split<T>* out) const {
    const int64_t from = (t - 1) * emissions_.row_stride;
    const bool is_bad = dispatch(emissions_.dtype, [&](auto kind) {
      using E = decltype(kind);
      const E* data = static_cast<const E*>(emissions_.data) + from;
      const auto step = [&] {
        if constexpr (sizeof(E) == 4)
          return steps_.split_f32;
        else
          return steps_.split_f64;
      }();
      return step(data, emissions_.row_stride, count, index_.data(), live_slots_,
                  static_cast<int32_t>(slots_), buffer, out);
    });
    if (is_bad) [[unlikely]]
      fail_bad_emission(op_, trellis_graph_.labels, emissions_);
  }

  /// The base of the exponents after frame t.
  int64_t base(int32_t t) const { return base_[static_cast<size_t>(t / kBaseFrames)]; }

  /// The scores after the first frame. Returns the base of their exponents.
  int64_t enter(const Split<T>* emissions, Row now) const {
    const Window w = window(1);
    kill(now, w.low, w.high);
    // A place outside the window leads nowhere.
    const Window entered{std::max(w.low, first_.low), std::min(w.high, first_.high)};
    double top = -std::numeric_limits<double>::infinity();
    auto value = [&](int32_t p) {
      const Split<T> e = emissions[slot_.get()[p]];
      const Scaled& x = entering_[p - first_.low];
      if (x.is_zero() || e.mantissa == T(0)) return Scaled{};
      return renormalize(x.mantissa * static_cast<double>(e.mantissa),
                         x.exponent + static_cast<double>(e.exponent));
    };
    for (int32_t p = entered.low; p < entered.high; ++p) top = std::max(top, value(p).exponent);
    const int64_t base = std::isfinite(top) ? static_cast<int64_t>(top) : 0;
    for (int32_t p = entered.low; p < entered.high; ++p) set(now, p, value(p), base);
    return base;
  }

  void set(Row row, int32_t p, const Scaled& value, int64_t base) const {
    const double q = value.exponent - static_cast<double>(base);
    const bool alive = !value.is_zero() && q > kDead / 2;
    row.mantissa[p] = alive ? static_cast<T>(value.mantissa) : T(0);
    row.exponent[p] = alive ? static_cast<Int>(q) : Int{kDead};
  }

  /// The scores after frame t from those before it; changes `base` if it ends a run of frames with
  /// the same one.
  void advance(int32_t t, Row before, const Split<T>* emissions, Row now, int64_t& base) const {
    const Window w = window(t);
    if (t == 1)
      base = enter(emissions, now);
    else
      steps_.forward.of[kind_][is_weighted_](diagonals_, before, emissions, w.low, w.high, now);
    if (t % kBaseFrames == 0) base += steps_.rebase(now, w.low, w.high);
    if (t < frames_) {
      // What the next frame reads beyond the window.
      const Window next = window(t + 1);
      kill(now, std::min(next.low - high_offset_, w.low), w.low);
      kill(now, w.high, std::max(next.high - low_offset_, w.high));
    }
  }

  RowStore<T> make_rows(int64_t count) const {
    return RowStore<T>(count, std::max(high_offset_, 0), places_, std::max(-low_offset_, 0));
  }

  void run_forward(bool keep) {
    base_.resize(static_cast<size_t>(frames_ / kBaseFrames) + 1);
    const bool keep_all = keep && stride_ == 1;
    diagonals_.row_size = make_rows(0).size();
    if (keep_all) {
      rows_ = make_rows(frames_);
      split_ = Block<Split<T>>(frames_ * slots_);
    } else if (keep) {
      rows_ = make_rows(std::max(frames_ / stride_, 1));
    }
    const RowStore<T> two = keep_all ? RowStore<T>() : make_rows(2);
    const Block<Split<T>> some =
        keep_all ? Block<Split<T>>() : Block<Split<T>>(kSplitFrames * slots_);
    const Block<T> buffer(slots_);

    const bool is_possible = find_windows();
    int64_t running_base = 0;
    Row before{}, now{};
    for (int32_t first = 1; first <= frames_; first += kSplitFrames) {
      if ((first - 1) % kBaseFrames == 0) poll_interrupt();
      const int32_t count = std::min(kSplitFrames, frames_ - first + 1);
      Split<T>* emissions = keep_all ? split_.get() + (first - 1) * slots_ : some.get();
      split(first, count, buffer.get(), emissions);
      for (int32_t t = first; t < first + count && is_possible; ++t) {
        before = now;
        now = keep_all ? rows_.row(t - 1) : two.row(t % 2);
        advance(t, before, emissions + (t - first) * slots_, now, running_base);
        base_[static_cast<size_t>(t / kBaseFrames)] = running_base;
        if (keep && stride_ > 1 && t % stride_ == 0) copy(now, t);
      }
    }
    ScaledSum sum;
    if (is_possible) {
      const Window w = window(frames_);
      for (int32_t p = std::max(w.low, last_.low); p < std::min(w.high, last_.high); ++p) {
        if (now.mantissa[p] == T(0) || factor_->end[p].is_zero()) continue;
        const Scaled term = product(score(now, p, base(frames_)), factor_->end[p]);
        sum.add(term.mantissa, term.exponent);
      }
    }
    total_ = sum.get();
    if (total_.is_zero()) {
      rows_ = {};
      split_ = {};
    }
  }

  /// Keeps the scores after frame t.
  void copy(Row now, int32_t t) const {
    const Row kept = rows_.row(t / stride_ - 1);
    const int64_t low = -std::max(high_offset_, 0), high = places_ + std::max(-low_offset_, 0);
    std::copy(now.mantissa + low, now.mantissa + high, kept.mantissa + low);
    std::copy(now.exponent + low, now.exponent + high, kept.exponent + low);
  }

  // Backward.

  /// The forward scores and emissions of a frame on the way back: all of them, or those of a
  /// segment that is computed again.
  struct Segment {
    RowStore<T> rows;
    Block<Split<T>> emissions;
    Block<T> buffer;
    int32_t first = 0;  // the first frame of the segment
  };

  /// Computes the segment that ends with frame t again.
  void recompute(Segment& segment, int32_t t) const {
    segment.first = (t - 1) / stride_ * stride_ + 1;
    split(segment.first, t - segment.first + 1, segment.buffer.get(), segment.emissions.get());
    int64_t unused = 0;  // the bases are known
    for (int32_t s = segment.first; s <= t; ++s)
      advance(s, s == 1 ? Row{} : row(segment, s - 1), emissions(segment, s), row(segment, s),
              unused);
  }
  Row row(const Segment& segment, int32_t t) const {
    if (stride_ == 1) return rows_.row(t - 1);
    return t < segment.first ? rows_.row(t / stride_ - 1) : segment.rows.row(t - segment.first);
  }
  const Split<T>* emissions(const Segment& segment, int32_t t) const {
    return stride_ == 1 ? split_.get() + (t - 1) * slots_
                        : segment.emissions.get() + (t - segment.first) * slots_;
  }

  /// The exponent by which products of scores are divided. One so low that dead scores could pass
  /// for alive is raised.
  Int scale(int64_t bases) const {
    constexpr double kLowest = kDead / 2 + (1 << 24), kHighest = 1 << 30;
    return static_cast<Int>(
        std::clamp(total_.exponent - static_cast<double>(bases), kLowest, kHighest));
  }

  void run_backward(double delta, const EmissionsGrad& wanted, std::span<double> arcs,
                    double* frame_scores) const {
    const int64_t after = std::max(high_offset_, 0), before = std::max(-low_offset_, 0);
    const RowStore<T> two(2, before, places_, after);
    const Block<T> posterior(places_, T(0));
    Segment segment;
    if (stride_ > 1) {
      const int64_t count = std::min(stride_, frames_);
      segment.rows = make_rows(count);
      segment.emissions = Block<Split<T>>(count * slots_);
      segment.buffer = Block<T>(slots_);
      segment.first = frames_ + 1;
    }
    ArcSums sums;
    if (!arcs.empty()) sums = ArcSums(places_, kind_);
    const SlotPlaces slots{live_slots_, num_single_, slot_offset_.data(), slot_place_.data(),
                           slot_label_.data()};

    // The scores at the end are put where the loop expects those of a next frame.
    Row now = two.row((frames_ + 1) % 2);
    int64_t end_base = 0;
    {
      double top = -std::numeric_limits<double>::infinity();
      for (int32_t p = last_.low; p < last_.high; ++p)
        top = std::max(top, factor_->end[p].exponent);
      end_base = static_cast<int64_t>(top);
      const Window w = window(frames_);
      kill(now, w.low, w.high);
      for (int32_t p = std::max(w.low, last_.low); p < std::min(w.high, last_.high); ++p)
        set(now, p, factor_->end[p], end_base);
    }

    // Unset rows of the gradient are set in blocks that stay in the nearest cache. Long rows that
    // would not stay in any cache are made aside and written past them.
    int64_t num_unset = frames_;
    int64_t rows_at_once = std::max<int64_t>(kEntriesAtOnce / std::max(wanted.labels, 1), 1);
    EmissionsGrad rows = wanted;
    Block<double> aside;
    const bool is_aside = wanted.is_unset && wanted.is_large && wanted.labels >= kLongRow;
    if (is_aside) {
      aside = Block<double>(wanted.labels);
      rows.data = aside.get();
      rows.row_stride = 0;
      rows_at_once = 1;
    }
    for (int32_t t = frames_; t >= 1; --t) {
      if (t % kBaseFrames == 0) poll_interrupt();
      if (stride_ > 1 && t < segment.first) recompute(segment, t);
      const Row next = now;
      now = two.row(t % 2);
      const Window w = window(t);
      const auto step =
          t == frames_ ? steps_.backward_last : steps_.backward.of[kind_][is_weighted_];
      const double sum = step(diagonals_, next, row(segment, t), emissions(segment, t),
                              scale(base(t) + end_base), w.low, w.high, now, posterior.get());
      // The sum is 0 only where scores died that are too far below the others.
      const double share = sum > 0.0 ? 1.0 / sum : 0.0;
      if (frame_scores != nullptr)
        frame_scores[t - 1] = std::log(sum) + log({1.0, total_.exponent});
      if (rows.is_unset && t <= num_unset) {
        const int64_t count = std::min(num_unset, rows_at_once);
        num_unset -= count;
        rows.clear(num_unset, count);
      }
      if (rows.data != nullptr && share > 0.0) {
        if (rows.dtype == DType::float32)
          steps_.scatter_f32(slots, posterior.get(), delta * share, static_cast<float*>(rows.data),
                             rows.row_stride, t - 1);
        else
          steps_.scatter_f64(slots, posterior.get(), delta * share, static_cast<double*>(rows.data),
                             rows.row_stride, t - 1);
      }
      if (is_aside)
        dispatch(wanted.dtype, [&](auto kind) {
          using G = decltype(kind);
          stream(rows.data, wanted.row<G>(t - 1), static_cast<size_t>(wanted.labels) * sizeof(G));
        });
      if (t == frames_ && !arcs.empty()) {
        std::vector<Scaled> value(static_cast<size_t>(trellis_graph_.num_values));
        for (int32_t p = w.low; p < std::min(w.high, num_places_); ++p)
          if (row(segment, t).mantissa[p] > T(0)) value[p] = score(row(segment, t), p, base(t));
        std::vector<ScaledSum> into(static_cast<size_t>(trellis_graph_.num_values - num_places_));
        for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
          if (v >= num_places_) value[v] = into[v - num_places_].get();
          for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
            const Scaled term = product(value[v], weight(trellis_graph_.out.arc[k]));
            into[trellis_graph_.out.index[k] - num_places_].add(term.mantissa, term.exponent);
          }
        }
        add_end_arcs(value, {sum, total_.exponent}, delta, arcs);
      }
      if (t % kBaseFrames == 0) end_base += steps_.rebase(now, w.low, w.high);
      if (!arcs.empty() && share > 0.0) {
        if (t == 1) {
          add_first_arcs(now, end_base, {sum, total_.exponent}, delta, arcs);
        } else {
          steps_.add_arcs.of[kind_][is_weighted_](
              diagonals_, row(segment, t - 1), now, scale(base(t - 1) + end_base),
              static_cast<T>(share), w.low, w.high, sums.part_of.data());
          sums.count();
        }
      }
      if (t > 1) {
        const Window previous = window(t - 1);
        kill(now, std::min(previous.low + low_offset_, w.low), w.low);
        kill(now, w.high, std::max(previous.high + high_offset_, w.high));
        // Posteriors are 0 outside the window.
        std::fill(posterior.get() + w.low, posterior.get() + std::max(previous.low, w.low), T(0));
        std::fill(posterior.get() + std::min(previous.high, w.high), posterior.get() + w.high,
                  T(0));
      }
    }
    if (is_aside) finish_stream();
    if (!arcs.empty()) {
      sums.flush();
      for (int32_t from = 0; from < num_places_; ++from)
        for (int32_t k = trellis_graph_.out.offset[from]; k < trellis_graph_.middle[from]; ++k) {
          const int32_t p = trellis_graph_.out.index[k];
          arcs[trellis_graph_.out.arc[k]] += delta * sums.total(p, diagonal_of(p - from));
        }
    }
  }

  int32_t diagonal_of(int32_t offset) const {
    int32_t k = 0;
    while (diagonals_.offset[k] != offset) ++k;
    return k;
  }

  /// The posteriors of arcs between places: short sums that are added to exact ones now and then.
  struct ArcSums {
    ArcSums() = default;
    ArcSums(int64_t num_emitting, int32_t kind)
        : places(num_emitting),
          size((kind == 2 ? 6 : kind + 2) * num_emitting),
          part(size, T(0)),
          sum(size, 0.0) {
      for (int64_t k = 0; k * places < size; ++k)
        part_of[static_cast<size_t>(k)] = part.get() + k * places;
    }
    void count() {
      if (++frames == kSumFrames) flush();
    }
    void flush() {
      for (int64_t i = 0; i < size; ++i) {
        sum.get()[i] += static_cast<double>(part.get()[i]);
        part.get()[i] = T(0);
      }
      frames = 0;
    }
    double total(int32_t p, int32_t diagonal) const { return sum.get()[diagonal * places + p]; }

    int64_t places = 0, size = 0;
    int32_t frames = 0;
    Block<T> part;
    Block<double> sum;
    std::array<T*, kMostDiagonals> part_of{};
  };

  /// Epsilon arcs after the last frame; `value` are the scores of the values there. Before the
  /// first frame they take no part, because a sum that is entered does not lead back to places.
  void add_end_arcs(const std::vector<Scaled>& value, const Scaled& sum, double delta,
                    std::span<double> arcs) const {
    if (arcs.empty() || sum.is_zero()) return;
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
      for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
        const int32_t arc = trellis_graph_.out.arc[k];
        if (arc < 0) continue;
        const Scaled path =
            product(product(value[v], weight(arc)), factor_->end[trellis_graph_.out.index[k]]);
        arcs[arc] += delta * quotient(path, sum);
      }
  }

  /// The arcs of the first frame.
  void add_first_arcs(Row now, int64_t end_base, const Scaled& sum, double delta,
                      std::span<double> arcs) const {
    const Window w = window(1);
    for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
      const Scaled& begin = factor_->begin[v];
      if (begin.is_zero()) continue;
      for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
        const int32_t p = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
        if (p < w.low || p >= std::min(w.high, num_places_) || now.mantissa[p] == T(0)) continue;
        const Scaled path = product(product(begin, weight(arc)), score(now, p, end_base));
        arcs[arc] += delta * quotient(path, sum);
      }
    }
  }

  static constexpr Int kNoLimit = 1 << 30;

  std::shared_ptr<const Factor> factor_;
  const TrellisGraph& trellis_graph_;
  Emissions emissions_;
  const char* op_;
  int32_t frames_, stride_;
  const DiagonalTable<T>& steps_;

  /// The memory of all that is small: a batch has many of these, and allocating piece by piece
  /// takes as long as some frames.
  std::pmr::monotonic_buffer_resource pool_{4096};
  int32_t num_places_ = 0, low_offset_ = 0, high_offset_ = 0;
  int32_t num_single_ = 0;                  // slots of one place
  int32_t num_slots_ = 0, live_slots_ = 0;  // live slots have a label that the emissions have
  int64_t places_ = 0, slots_ = 0;          // rounded up
  int32_t kind_ = 0;
  bool is_weighted_ = false;
  Diagonals<T> diagonals_{};
  Block<Int> weight_exponent_;
  Block<T> weight_mantissa_;
  Block<int32_t> slot_;
  std::pmr::vector<int64_t> index_{&pool_};
  std::pmr::vector<int32_t> slot_offset_{&pool_}, slot_place_{&pool_}, slot_label_{&pool_};
  /// The places that can be entered in the first frame, with the scores of doing so, and those from
  /// which the end can be reached after the last.
  Window first_{}, last_{};
  /// The places that a path from a start to an accept node may be at after each frame.
  std::pmr::vector<Window> windows_{&pool_};
  std::pmr::vector<Scaled> entering_{&pool_};

  /// The scores after each frame, or after each multiple of `stride_`, and the emissions of each.
  RowStore<T> rows_;
  Block<Split<T>> split_;
  std::pmr::vector<int64_t> base_{&pool_};
  Scaled total_;
};

}  // namespace

std::unique_ptr<Run> run_diagonal(std::shared_ptr<const Factor> factor,
                                  std::span<const Emissions> example, const RunOptions& options) {
  return dispatch(promote(factor->weights.dtype(), example[0].dtype),
                  [&](auto kind) -> std::unique_ptr<Run> {
                    return std::make_unique<DiagonalRun<decltype(kind)>>(std::move(factor),
                                                                         example[0], options);
                  });
}

}  // namespace arcgrad::trellis
