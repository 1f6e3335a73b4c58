#include "arcgrad/trellis/best/best.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>

#include "arcgrad/runtime/error.h"
#include "arcgrad/trellis/best/best_loops.h"
#include "arcgrad/trellis/best/prefilter.h"
#include "arcgrad/trellis/best/segments.h"

namespace arcgrad::trellis {
namespace {

/// Where scores need not be kept, they go round in about so many bytes.
constexpr int64_t kRoundBytes = 1 << 17;

template <class T>
const BestTable<T>& best_steps() {
  if constexpr (std::is_same_v<T, float>)
    return ARCGRAD_LOOPS(best_float);
  else
    return ARCGRAD_LOOPS(best_double);
}

/// How the scores of a row are made from those of the row before.
enum class Kind : uint8_t { diagonals, matrix, terms };

/// The graph as the loops read it, with weights of the type T that those of the product have.
///
/// A row has the places, filled up to `padded`, and then the sums. For loops over terms, places
/// that only lead on to the sum of their node are left out, as they have its scores.
template <class T>
class Tables {
 public:
  Tables(const TrellisGraph& graph_form, const Weights& weights, bool is_unweighted, Kind loops)
      : form(graph_form), kind(loops), is_plain(is_unweighted), arc_weights_(weights) {
    weight_ = arc_weights_.template view<T>().data();
    padded = (form.num_emitting + kBestBlock - 1) / kBestBlock * kBestBlock;
    row_size = padded + form.num_values - form.num_emitting;
    is_accept.resize(static_cast<size_t>(form.num_values));
    for (int32_t v : form.accept) is_accept[v] = 1;
    label.reserve(form.slot.size());
    for (int32_t slot : form.slot) label.push_back(form.labels[slot]);
    if (kind == Kind::diagonals)
      make_diagonals();
    else if (kind == Kind::matrix)
      make_matrix();
    else
      make_terms();
  }

  /// Where a row has the score of a value.
  int32_t position(int32_t value) const {
    if (kind == Kind::terms) return position_[value];
    return value < form.num_emitting ? value : value - form.num_emitting + padded;
  }
  /// The weight of an arc of the graph, or of none.
  T weight(int32_t arc) const { return arc < 0 ? T{0} : weight_[arc]; }

  const TrellisGraph& form;
  const Kind kind;
  bool is_plain;  // every weight is 0, and the loops make use of it
  int32_t padded, row_size;
  std::vector<uint8_t> is_accept;  // of each value
  std::vector<int32_t> label;      // of each place
  /// How far beyond the places diagonals reach.
  int32_t reach_before = 0, reach_after = 0;
  // Without their scratch, and of these only the one for `kind`:
  BestDiagonals<T> diagonals = {};
  BestMatrix<T> matrix = {};
  BestTerms<T> terms = {};

 private:
  static constexpr T kImpossible = -std::numeric_limits<T>::infinity();

  template <class Visit>
  void for_arcs_between_places(const Visit& visit) const {
    for (int32_t p = 0; p < form.num_emitting; ++p)
      for (int32_t k = form.out.offset[p]; k < form.out.offset[p + 1]; ++k)
        if (form.out.index[k] < form.num_emitting)
          visit(p, form.out.index[k], weight(form.out.arc[k]));
  }

  void make_diagonals() {
    const auto count = static_cast<int32_t>(form.offsets.size());
    reach_before = std::max(0, -form.offsets.front());
    reach_after = std::max(0, form.offsets.back());
    offsets_ = form.offsets;
    diagonals = {padded, 0, 0, 0, 0, count, offsets_.data(), nullptr, 0, nullptr, nullptr};
    if (is_plain) is_plain = make_masks();
    if (is_plain) return;
    const std::vector<int32_t> at = diagonal_of_distance();
    terms_weight_.assign(static_cast<size_t>(count) * static_cast<size_t>(padded), kImpossible);
    for_arcs_between_places([&](int32_t from, int32_t to, T w) {
      terms_weight_[static_cast<int64_t>(at[to - from + reach_before]) * padded + from] = w;
    });
    diagonals.weight = terms_weight_.data();
  }

  /// The diagonals by distance, from the least on.
  std::vector<int32_t> diagonal_of_distance() const {
    std::vector<int32_t> at(static_cast<size_t>(reach_before + reach_after) + 1);
    for (size_t d = 0; d < offsets_.size(); ++d)
      at[offsets_[d] + reach_before] = static_cast<int32_t>(d);
    return at;
  }

  /// Arranges the diagonals of an unweighted graph; false if there are too many of them.
  bool make_masks() {
    const std::vector<int32_t> at = diagonal_of_distance();
    std::array<int32_t, kMostDiagonals> num_arcs{};
    for_arcs_between_places(
        [&](int32_t from, int32_t to, T) { ++num_arcs[at[to - from + reach_before]]; });
    // A diagonal lacks no arc if one leaves every place from where it leads to a place.
    std::array<int32_t, kMostDiagonals> order;
    int32_t num_full = 0, num_others = 0;
    const auto count = static_cast<int32_t>(offsets_.size());
    for (int32_t d = 0; d < count; ++d)
      if (offsets_[d] >= 0 && num_arcs[d] == form.num_emitting - offsets_[d] &&
          num_full < kMostPlain)
        order[num_full++] = d;
      else
        order[count - ++num_others] = d;
    if (num_others > kMostPlain) return false;
    for (int32_t k = 0; k < count; ++k) offsets_[k] = form.offsets[order[k]];
    mask_.assign(static_cast<size_t>(num_others) * static_cast<size_t>(padded), kNegInf);
    std::array<double*, kMostDiagonals> mask_of{};
    for (int32_t k = num_full; k < count; ++k)
      mask_of[order[k]] = mask_.data() + static_cast<int64_t>(k - num_full) * padded;
    for_arcs_between_places([&](int32_t from, int32_t to, T) {
      if (double* mask = mask_of[at[to - from + reach_before]]) mask[from] = 0.0;
    });
    diagonals.num_full = num_full;
    diagonals.mask = mask_.data();
    return true;
  }

  void make_matrix() {
    terms_weight_.assign(static_cast<size_t>(form.num_emitting) * static_cast<size_t>(padded),
                         kImpossible);
    for_arcs_between_places([&](int32_t from, int32_t to, T w) {
      terms_weight_[static_cast<int64_t>(from) * padded + to] = w;
    });
    matrix = {form.num_emitting, padded, terms_weight_.data()};
  }

  void make_terms() {
    const Rows& out = form.out;
    // Adding emissions once per place pays only if terms read most of them several times.
    is_plain &= out.num_terms() > 3 * static_cast<int64_t>(form.num_emitting);
    const auto leads_on = [&](int32_t v) {
      return out.offset[v + 1] == out.offset[v] + 1 && out.arc[out.offset[v]] < 0;
    };
    position_.resize(static_cast<size_t>(form.num_values));
    row_size = 0;
    for (int32_t v = 0; v < form.num_values; ++v)
      if (!leads_on(v)) position_[v] = row_size++;
    for (int32_t v = 0; v < form.num_values; ++v)
      if (leads_on(v)) position_[v] = position_[out.index[out.offset[v]]];

    for (auto* column : {&index_, &slot_}) column->reserve(static_cast<size_t>(out.num_terms()));
    for (auto* column : {&offset_, &middle_}) column->reserve(static_cast<size_t>(row_size) + 1);
    terms_weight_.reserve(static_cast<size_t>(out.num_terms()));
    const auto append = [&](int32_t v, bool to_place) {
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const int32_t to = out.index[k];
        if ((to < form.num_emitting) != to_place) continue;
        index_.push_back(to_place && is_plain ? to : position_[to]);
        slot_.push_back(to_place ? form.slot[to] : 0);
        terms_weight_.push_back(weight(out.arc[k]));
      }
    };
    offset_.push_back(0);
    for (int32_t v = 0; v < form.num_values; ++v) {
      if (leads_on(v)) continue;
      append(v, true);
      middle_.push_back(static_cast<int32_t>(index_.size()));
      append(v, false);
      offset_.push_back(static_cast<int32_t>(index_.size()));
    }
    terms = {form.num_emitting,
             row_size,
             static_cast<int32_t>(form.labels.size()),
             offset_.data(),
             middle_.data(),
             index_.data(),
             slot_.data(),
             terms_weight_.data(),
             position_.data(),
             form.slot.data(),
             nullptr};
  }

  Weights arc_weights_;
  const T* weight_;
  std::vector<T> terms_weight_;
  std::vector<double> mask_;
  std::vector<int32_t> offsets_;                                    // diagonals
  std::vector<int32_t> position_, offset_, middle_, index_, slot_;  // terms
};

/// The recursion over frames, from the end, of up to `lanes` examples side by side. A row belongs
/// to a number of frames left: examples of different lengths begin together, at their ends.
template <class T>
class Recursion {
 public:
  Recursion(const Tables<T>& tables, std::span<const Emissions* const> examples, int32_t lanes)
      : tables_(tables), steps_(best_steps<T>()), examples_(examples), lanes_(lanes) {
    const TrellisGraph& form = tables.form;
    const bool is_by_place = tables.kind != Kind::terms;
    before_ = tables.reach_before;
    num_emissions_ = is_by_place ? before_ + tables.padded + tables.reach_after
                                 : static_cast<int64_t>(form.labels.size()) * lanes;
    // What is never written stays: the filling beyond places, and labels that there are none of.
    emissions_ = Block<T>(num_emissions_);
    std::fill_n(emissions_.get(), num_emissions_,
                is_by_place ? T{0} : -std::numeric_limits<T>::infinity());
    if (is_by_place) {
      // Where in a frame each place finds its emission. Others read one that is there anyway.
      const Emissions& only = *examples[0];
      const int64_t any = form.labels.empty() ? 0 : form.labels[0] * only.col_stride;
      from_.assign(static_cast<size_t>(tables.padded), any);
      for (int32_t p = 0; p < form.num_emitting; ++p) {
        const int32_t label = tables.label[p];
        if (label < only.labels)
          from_[p] = label * only.col_stride;
        else
          missing_.push_back(p);
      }
    }
    if (tables.kind == Kind::diagonals) {
      looks_at_frames_ = examples[0]->col_stride == 1 && examples[0]->labels <= 4 * tables.padded;
      scratch_ = Block<double>(num_emissions_);
      std::fill_n(scratch_.get(), num_emissions_, kNegInf);
      find_ends();
      diagonals_ = tables.diagonals;
      diagonals_.scratch = scratch_.get() + before_;
      constexpr int32_t kNear[] = {0, 1, 2};
      is_near_ =
          tables.is_plain && diagonals_.num_full == 2 &&
          std::equal(kNear, kNear + 3, diagonals_.offset, diagonals_.offset + diagonals_.count);
      if (tables.is_plain && !missing_.empty()) {
        in_order_.resize(from_.size());
        std::iota(in_order_.begin(), in_order_.end(), 0);
      }
    } else if (tables.kind == Kind::terms) {
      if (tables.is_plain)
        scratch_ = Block<double>(static_cast<int64_t>(form.num_emitting) * lanes);
      terms_ = tables.terms;
      terms_.scratch = scratch_.get();
      const bool is_one = lanes == 1, is_four = lanes == 4;
      step_terms_ = tables.is_plain ? (is_one    ? steps_.plain_terms1
                                       : is_four ? steps_.plain_terms4
                                                 : steps_.plain_terms8)
                                    : (is_one    ? steps_.terms1
                                       : is_four ? steps_.terms4
                                                 : steps_.terms8);
    }
  }

  int64_t row_size() const { return static_cast<int64_t>(tables_.row_size) * lanes_; }
  /// Whether an emission was NaN or +inf so far.
  bool has_bad() const { return has_bad_; }
  double score(const double* row, int32_t value, size_t lane) const {
    return row[static_cast<int64_t>(tables_.position(value)) * lanes_ + static_cast<int64_t>(lane)];
  }

  /// The row with no frame left.
  void begin(double* row) const {
    const TrellisGraph& form = tables_.form;
    std::fill_n(row, row_size(), kNegInf);
    for (int32_t v = form.num_values; v-- > 0;) {
      double best = tables_.is_accept[v] ? 0.0 : kNegInf;
      for (int32_t k = form.out.offset[v]; k < form.out.offset[v + 1]; ++k) {
        if (form.out.index[k] < form.num_emitting) continue;
        const double s = tables_.weight(form.out.arc[k]) + score(row, form.out.index[k], 0);
        if (s > best) best = s;
      }
      std::fill_n(row + static_cast<int64_t>(tables_.position(v)) * lanes_, lanes_, best);
    }
  }

  /// The row with `left` frames left, from the one with a frame less.
  void advance(int32_t left, const double* before, double* row) {
    const T* emissions = emissions_.get() + before_;
    if (tables_.kind == Kind::terms) {
      for (size_t i = 0; i < examples_.size(); ++i) read_slots(left, i);
      has_bad_ |= step_terms_(terms_, before, emissions, row);
      return;
    }
    if (tables_.kind == Kind::matrix) {
      read_places(left);
      has_bad_ |= steps_.matrix(tables_.matrix, before, emissions, row);
    } else {
      find_window(left);
      const bool is_direct = tables_.is_plain && missing_.empty();
      // The sums of the first frame read the emissions of places.
      if (!is_direct || left == examples_[0]->frames) read_places(left);
      has_bad_ |= tables_.is_plain
                      ? step_plain(left, before, row)
                      : steps_.diagonals[diagonals_.count](diagonals_, before, emissions, row);
    }
    finish_sums(left, before, row);
  }

 private:
  /// Sets which places matter after the frames before the `left` last: those that can be reached
  /// from a start, and from which the end can be.
  void find_window(int32_t left) {
    const TrellisGraph& form = tables_.form;
    BestDiagonals<T>& d = diagonals_;
    d.begin = d.to_begin = 0;
    d.end = d.to_end = d.padded;
    const int64_t done = examples_[0]->frames - left;
    if (done == 0) return;  // sums that are starts may lead to any place
    const int64_t least = form.offsets.front(), most = form.offsets.back();
    const int64_t low = std::max(first_.low + (done - 1) * least, last_.low - left * most);
    const int64_t high = std::min(first_.high + (done - 1) * most, last_.high - left * least);
    static_assert((kBestBlock & (kBestBlock - 1)) == 0);
    const auto block_of = [&](int64_t place) {
      return static_cast<int32_t>(std::clamp<int64_t>(place, 0, d.padded)) & -kBestBlock;
    };
    d.begin = block_of(low);
    d.end = std::max(block_of(high + kBestBlock - 1), d.begin);
    if (!looks_at_frames_) return;
    d.to_begin = block_of(d.begin + least);
    d.to_end = std::max(block_of(d.end + most + kBestBlock - 1), d.to_begin);
  }

  bool step_plain(int32_t left, const double* before, double* row) {
    const int32_t full = diagonals_.num_full, others = diagonals_.count - full;
    const auto choose = [&](const auto& steps) {
      return is_near_ && steps.near ? steps.near : steps.of[full][others];
    };
    if (!missing_.empty())
      return choose(plain_steps())(diagonals_, before, emissions_.get() + before_, in_order_.data(),
                                   row);
    const Emissions& example = *examples_[0];
    const int64_t at = (example.frames - left) * example.row_stride;
    const auto step = [&](const auto* frame, const auto& steps, auto is_bad) {
      return choose(steps)(diagonals_, before, frame, from_.data(), row) ||
             (is_narrow() && is_bad(frame, example.labels));
    };
    if (example.dtype == DType::float32)
      return step(static_cast<const float*>(example.data) + at, steps_.plain_float,
                  steps_.is_bad_float);
    return step(static_cast<const double*>(example.data) + at, steps_.plain_double,
                steps_.is_bad_double);
  }
  /// Those that read what was copied.
  const auto& plain_steps() const {
    if constexpr (std::is_same_v<T, float>)
      return steps_.plain_float;
    else
      return steps_.plain_double;
  }
  /// Whether the emissions of some places are not read.
  bool is_narrow() const {
    return tables_.kind == Kind::diagonals &&
           diagonals_.to_end - diagonals_.to_begin < tables_.padded;
  }

  /// The places that arcs out of the starts lead to, and those that may be the last.
  void find_ends() {
    const TrellisGraph& form = tables_.form;
    const auto include = [](Window& window, int32_t p) {
      window.low = std::min<int64_t>(window.low, p);
      window.high = std::max<int64_t>(window.high, p + 1);
    };
    first_ = last_ = {form.num_emitting, 0};
    for (int32_t v : form.start)
      for (int32_t k = form.out.offset[v]; k < form.out.offset[v + 1]; ++k)
        if (form.out.index[k] < form.num_emitting) include(first_, form.out.index[k]);
    for (int32_t p = 0; p < form.num_emitting; ++p)
      if (tables_.is_accept[p] || form.middle[p] < form.out.offset[p + 1]) include(last_, p);
  }

  /// In these forms a sum leads to a place only if it is a start that nothing enters, so that sums
  /// matter in the first and the last row.
  void finish_sums(int32_t left, const double* before, double* row) const {
    const TrellisGraph& form = tables_.form;
    if (left < examples_[0]->frames) {
      std::fill(row + tables_.padded, row + tables_.row_size, kNegInf);
      return;
    }
    const T* emissions = emissions_.get() + before_;
    for (int32_t v = form.num_values; v-- > form.num_emitting;) {
      double best = kNegInf;
      for (int32_t k = form.out.offset[v]; k < form.out.offset[v + 1]; ++k) {
        const int32_t to = form.out.index[k];
        const T weight = tables_.weight(form.out.arc[k]);
        const double s = to < form.num_emitting
                             ? static_cast<T>(weight + emissions[to]) + before[to]
                             : weight + row[tables_.position(to)];
        if (s > best) best = s;
      }
      row[tables_.position(v)] = best;
    }
  }

  void read_places(int32_t left) {
    const Emissions& example = *examples_[0];
    T* to = emissions_.get() + before_;
    const int32_t begin = is_narrow() ? diagonals_.to_begin : 0;
    const int32_t end = is_narrow() ? diagonals_.to_end : tables_.padded;
    if (missing_.size() < static_cast<size_t>(tables_.form.num_emitting)) {
      const int64_t at = (example.frames - left) * example.row_stride;
      const auto read_as = [&](const auto* frame, auto read, auto is_bad) {
        read(frame, from_.data(), begin, end, to);
        if (is_narrow()) has_bad_ |= is_bad(frame, example.labels);
      };
      if (example.dtype == DType::float32)
        read_as(static_cast<const float*>(example.data) + at, steps_.read_float,
                steps_.is_bad_float);
      else
        read_as(static_cast<const double*>(example.data) + at, steps_.read_double,
                steps_.is_bad_double);
    }
    for (int32_t p : missing_) to[p] = -std::numeric_limits<T>::infinity();
  }

  void read_slots(int32_t left, size_t lane) {
    const Emissions& example = *examples_[lane];
    if (left > example.frames + 1) return;
    const std::vector<int32_t>& labels = tables_.form.labels;
    T* to = emissions_.get() + lane;
    if (left == example.frames + 1) {
      for (size_t k = 0; k < labels.size(); ++k, to += lanes_)
        *to = -std::numeric_limits<T>::infinity();
      return;
    }
    dispatch(example.dtype, [&](auto type) {
      const auto* frame = static_cast<const decltype(type)*>(example.data) +
                          (example.frames - left) * example.row_stride;
      for (size_t k = 0; k < labels.size() && labels[k] < example.labels; ++k, to += lanes_)
        *to = static_cast<T>(frame[labels[k] * example.col_stride]);
    });
  }

  const Tables<T>& tables_;
  const BestTable<T>& steps_;
  std::span<const Emissions* const> examples_;
  const int32_t lanes_;
  int32_t before_ = 0;  // entries before those of the first place
  int64_t num_emissions_ = 0;
  Block<T> emissions_;
  Block<double> scratch_;
  std::vector<int64_t> from_;
  std::vector<int32_t> missing_;
  std::vector<int64_t> in_order_;
  bool has_bad_ = false;
  /// Looking for NaN at all labels of a frame is faster than reading those of places that do not
  /// matter.
  bool looks_at_frames_ = false;
  bool is_near_ = false;  // arcs lead on by 0, 1 and, with gaps, 2 places
  BestDiagonals<T> diagonals_ = {};
  struct Window {
    int64_t low, high;
  };
  Window first_{}, last_{};
  BestTerms<T> terms_ = {};
  BestStepOf<BestTerms<T>, T> step_terms_ = nullptr;
};

/// Solves some examples and follows their best paths.
template <class T>
class Solver {
 public:
  Solver(const Tables<T>& tables, std::span<const Emissions* const> examples,
         std::span<BestAlignment* const> out, int32_t lanes, bool with_paths, int64_t max_bytes)
      : tables_(tables),
        examples_(examples),
        out_(out),
        recursion_(tables, examples, lanes),
        rows_(make_rows(with_paths, max_bytes)) {}

  /// Finds the scores and starts; false if an emission was NaN or +inf.
  bool find_scores() {
    recursion_.begin(rows_.row(0));
    find_starts(0, rows_.row(0));
    rows_.make([&](int32_t left, const double* before, double* row) {
      recursion_.advance(left, before, row);
      find_starts(left, row);
      return true;
    });
    return !recursion_.has_bad();
  }

  /// Finds the paths too.
  void find_paths() {
    std::vector<Cursor> cursors;
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (out_[i]->start < 0) continue;
      out_[i]->steps.reserve(static_cast<size_t>(examples_[i]->frames));
      cursors.push_back({i, start_[i], examples_[i]->frames});
    }
    do {
      for (Cursor& cursor : cursors) walk(cursor);
    } while (rows_.go_back([&](int32_t left, const double* before, double* row) {
      recursion_.advance(left, before, row);
      return true;
    }));
  }

 private:
  /// How far a path was followed.
  struct Cursor {
    size_t lane;
    int32_t value, left;
  };

  Segments<double> make_rows(bool with_paths, int64_t max_bytes) const {
    int32_t frames = 0;
    for (const Emissions* example : examples_) frames = std::max(frames, example->frames);
    const int64_t row_bytes = std::max<int64_t>(8 * recursion_.row_size(), 8);
    const auto round =
        static_cast<int32_t>(std::clamp<int64_t>(kRoundBytes / row_bytes, 1, std::max(frames, 1)));
    const int32_t stride = with_paths ? segment_stride(frames, row_bytes, max_bytes) : round;
    return {frames, recursion_.row_size(), stride, with_paths};
  }

  /// The starts of the examples that have `left` frames.
  void find_starts(int32_t left, const double* row) {
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (examples_[i]->frames != left) continue;
      BestStart best;
      for (int32_t v : tables_.form.start)
        best.offer(recursion_.score(row, v, i), v, left == 0 && tables_.is_accept[v]);
      out_[i]->score = best.score();
      if (best.value() < 0) continue;
      out_[i]->start = tables_.form.node[best.value()];
      start_[i] = best.value();
    }
  }

  /// How many frames ahead of a path rows are asked for.
  static constexpr int32_t kAhead = 6;

  /// Follows the path through this segment.
  void walk(Cursor& cursor) const {
    const Emissions& example = *examples_[cursor.lane];
    dispatch(example.dtype, [&](auto type) {
      walk_as(cursor, example, static_cast<const decltype(type)*>(example.data));
    });
  }

  /// Follows a path as long as one arc alone goes on from each place, most often through all frames
  /// of the segment.
  template <class E>
  void follow_diagonals(Cursor& cursor, const Emissions& example, const E* emissions,
                        std::vector<BestStep>& steps) const {
    const TrellisGraph& form = tables_.form;
    const int32_t *offset = form.out.offset.data(), *middle = form.middle.data(),
                  *index = form.out.index.data(), *arcs = form.out.arc.data();
    int32_t v = cursor.value, left = cursor.left;
    for (; left > rows_.begin() && v < form.num_emitting; --left) {
      const double score = rows_.row(left)[v];
      const double* next = rows_.row(left - 1);
      // Paths hardly move within a few frames, and what they find decides where to look next.
      if (left - kAhead >= rows_.begin()) __builtin_prefetch(rows_.row(left - kAhead) + v);
      const int32_t frame = example.frames - left;
      const E* from = emissions + frame * example.row_stride;
      int32_t term = 0, count = 0;
      for (int32_t k = offset[v]; k < middle[v]; ++k) {
        const int32_t to = index[k], label = tables_.label[to];
        if (label >= example.labels) continue;
        const T weight = tables_.weight(arcs[k]) + static_cast<T>(from[label * example.col_stride]);
        const bool is_best = weight + next[to] == score;
        term = is_best ? k : term;
        count += is_best ? 1 : 0;
      }
      if (count != 1) break;
      v = index[term];
      steps.push_back({arcs[term], frame, tables_.label[v]});
    }
    cursor.value = v;
    cursor.left = left;
  }

  template <class E>
  void walk_as(Cursor& cursor, const Emissions& example, const E* emissions) const {
    const TrellisGraph& form = tables_.form;
    const Rows& out = form.out;
    std::vector<BestStep>& steps = out_[cursor.lane]->steps;
    while (cursor.left > rows_.begin() || rows_.begin() == 0) {
      if (tables_.kind == Kind::diagonals) {
        follow_diagonals(cursor, example, emissions, steps);
        if (cursor.left == rows_.begin() && rows_.begin() > 0) return;
      }
      const int32_t v = cursor.value, left = cursor.left, frame = example.frames - left;
      const double* now = rows_.row(left);
      const double score = recursion_.score(now, v, cursor.lane);
      if (left == 0 && tables_.is_accept[v] && score == 0.0) return;
      const double* next = left > 0 ? rows_.row(left - 1) : nullptr;
      const E* from = left > 0 ? emissions + frame * example.row_stride : nullptr;
      FirstArc first;
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const int32_t to = out.index[k], arc = out.arc[k];
        const bool is_place = to < form.num_emitting;
        T weight = tables_.weight(arc);
        if (is_place) {
          const int32_t label = tables_.label[to];
          if (left == 0 || label >= example.labels) continue;
          weight += static_cast<T>(from[label * example.col_stride]);
        }
        if (weight + recursion_.score(is_place ? next : now, to, cursor.lane) != score) continue;
        first.offer(k, is_place ? form.slot[to] : -1, arc);
      }
      if (first.term() < 0) return;  // cannot be: the score is that of one of the arcs
      cursor.value = out.index[first.term()];
      if (first.takes_frame()) --cursor.left;
      // A place may lead on to the sum of its node without an arc.
      if (first.arc() >= 0 && first.takes_frame())
        steps.push_back({first.arc(), frame, tables_.label[cursor.value]});
      else if (first.arc() >= 0)
        steps.push_back({first.arc(), -1, kEpsilon});
    }
  }

  const Tables<T>& tables_;
  std::span<const Emissions* const> examples_;
  std::span<BestAlignment* const> out_;
  Recursion<T> recursion_;
  Segments<double> rows_;
  int32_t start_[kLanes] = {};
};

bool has_bad_emission(const TrellisGraph& form, const Emissions& emissions) {
  return dispatch(emissions.dtype, [&](auto type) {
    using E = decltype(type);
    for (int32_t t = 0; t < emissions.frames; ++t)
      for (int32_t label : form.labels) {
        if (label >= emissions.labels) break;
        const int64_t at = t * emissions.row_stride + label * emissions.col_stride;
        if (!(static_cast<const E*>(emissions.data)[at] < std::numeric_limits<E>::infinity()))
          return true;
      }
    return false;
  });
}

/// Throws unless all weights are finite or -inf; whether all are 0.
bool check_weights(const char* op, const Weights& weights) {
  return dispatch(weights.dtype(), [&](auto type) {
    using W = decltype(type);
    const std::span<const W> values = weights.view<W>();
    int32_t bad = 0, other = 0;
    for (const W w : values) {
      bad |= w < std::numeric_limits<W>::infinity() ? 0 : 1;
      other |= w == W{0} ? 0 : 1;
    }
    for (size_t a = 0; bad && a < values.size(); ++a)
      require(values[a] < std::numeric_limits<W>::infinity(), op, "arc ", a,
              " of the graph has the weight ", values[a], ", but a weight must be finite or -inf");
    return other == 0;
  });
}

}  // namespace

std::vector<BestAlignment> find_best(const char* op, const TrellisGraph& form,
                                     const Weights& weights, std::span<const Emissions> examples,
                                     bool with_paths, int64_t max_bytes) {
  const Weights plain = weights.contiguous();
  const bool is_unweighted = check_weights(op, plain);
  std::vector<BestAlignment> out(examples.size());

  const auto solve_as = [&](auto type) {
    using T = decltype(type);
    constexpr DType dtype = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    std::vector<size_t> order;
    for (size_t i = 0; i < examples.size(); ++i)
      if (promote(plain.dtype(), examples[i].dtype) == dtype) order.push_back(i);
    // Side by side, examples of one length waste least.
    std::ranges::stable_sort(order, {}, [&](size_t i) { return examples[i].frames; });
    const Weights cast = plain.cast(dtype);
    // Calls solve(examples, where their paths go, their numbers) for so many at a time.
    const auto for_chunks = [&](size_t most, const auto& solve) {
      for (size_t begin = 0; begin < order.size(); begin += most) {
        const auto numbers = std::span(order).subspan(begin, std::min(most, order.size() - begin));
        std::vector<const Emissions*> chunk;
        std::vector<BestAlignment*> chunk_out;
        for (size_t i : numbers) {
          chunk.push_back(&examples[i]);
          chunk_out.push_back(&out[i]);
        }
        solve(chunk, chunk_out, numbers);
      }
    };
    // For a single example of a sparse graph screening has empty lanes.
    if (form.offsets.empty() && (form.is_dense || order.size() > 1)) {
      std::vector<size_t> others;
      for_chunks(most_screened(form), [&](auto& chunk, auto& chunk_out, auto numbers) {
        const auto found = screen_best<T>(form, cast, chunk, chunk_out, max_bytes);
        for (size_t k = 0; k < found.size(); ++k)
          if (!found[k]) others.push_back(numbers[k]);
      });
      order = others;
    }
    if (order.empty()) return;
    Kind kind = Kind::terms;
    if (!form.offsets.empty())
      kind = Kind::diagonals;
    else if (form.is_dense && order.size() == 1)
      kind = Kind::matrix;
    const Tables<T> tables(form, cast, is_unweighted, kind);
    for_chunks(kind == Kind::terms ? kLanes : 1, [&](auto& chunk, auto& chunk_out, auto) {
      const int32_t lanes = chunk.size() == 1 ? 1 : chunk.size() <= 4 ? 4 : 8;
      Solver<T> solver(tables, chunk, chunk_out, lanes, with_paths, max_bytes);
      if (!solver.find_scores())
        for (const Emissions& example : examples)
          if (has_bad_emission(form, example)) fail_bad_emission(op, form.labels, example);
      if (with_paths) solver.find_paths();
    });
  };
  solve_as(float{});
  solve_as(double{});
  return out;
}

}  // namespace arcgrad::trellis
