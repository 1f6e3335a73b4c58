// The prefilter finds best paths in two passes. FloatScores computes, from the last frame, an
// approximate score of each state and frame, with a bound on its error. Then a Tracer goes forward
// from the starts. At each state it keeps the arcs whose approximate score is within twice the
// error of the best, and drops the others.
//
// Invariant: an arc on a best path has the largest exact score of its state. So its approximate
// score is at most twice the error below the largest, and it is kept. Therefore exact scores of the
// kept arcs alone, computed from the last frame, give the exact best path and all ties.
//
// Cost: the first pass runs 8 to 16 examples side by side in floats; the second visits a few arcs
// per frame. If too many arcs are within the error, the Tracer fails, and find_best() scores the
// example in doubles. This is coarse-to-fine dynamic programming (Raphael, IEEE PAMI 23, 2001) with
// a coarse pass of low precision.

#include "arcgrad/trellis/best/prefilter.h"

#include <algorithm>
#include <functional>
#include <memory_resource>

#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/best/float_scores.h"
#include "arcgrad/trellis/best/segments.h"

namespace arcgrad::trellis {
namespace {

/// Follows the arcs of one example that may be on its best path, and scores them exactly.
template <class T>
class Tracer {
 public:
  Tracer(const TrellisGraph& graph, std::span<const T> weights, const std::vector<double>& end,
         FloatScores& scores, const Emissions& example, size_t i, std::pmr::memory_resource* pool)
      : graph_(graph),
        weights_(weights),
        end_(end),
        scores_(scores),
        example_(example),
        i_(i),
        most_visited_(example.frames * (int64_t{graph.out.num_terms()} / 4 + 64) +
                      graph.out.num_terms()),
        candidates_(pool),
        links_(pool),
        starts_(pool),
        order_(pool),
        at_(static_cast<size_t>(graph.num_values), kNone, pool),
        near_(static_cast<size_t>(scores.most_terms()), pool),
        trail_(pool),
        emitting_(pool),
        next_emitting_(pool),
        non_emitting_(pool) {
    has_failed_ = !scores.is_useful(i);
    const auto usual = static_cast<size_t>(example.frames) * 3 / 2;
    candidates_.reserve(graph.is_dense ? usual / 4 : usual);
    links_.reserve(candidates_.capacity());
    order_.reserve(candidates_.capacity());
    if (graph.is_dense) trail_.resize(static_cast<size_t>(example.frames));
  }

  bool has_failed() const { return has_failed_; }

  /// Expands the candidates with `left` frames left. `before` is the row with one frame less.
  void follow(int32_t left, const float* before, const float* row) {
    if (has_failed_ || left > example_.frames) return;
    if (trail_state_ >= 0) {
      const int32_t to = left > 0 ? scores_.find_only(trail_state_, left, before, i_) : kNone;
      if (to >= 0) {
        trail_[static_cast<size_t>(left) - 1] = trail_state_ = to;
        return;
      }
      end_trail(left);
    }
    left_ = left;
    before_ = before;
    row_ = row;
    emitting_.swap(next_emitting_);
    next_emitting_.clear();
    if (left == example_.frames) add_starts();
    for (size_t k = 0; k < emitting_.size() && !has_failed_; ++k) expand(emitting_[k]);
    while (!non_emitting_.empty() && !has_failed_) {
      std::ranges::pop_heap(non_emitting_, std::greater<>());
      const int32_t c = at_[non_emitting_.back()];
      non_emitting_.pop_back();
      expand(c);
    }
    if (graph_.is_dense && next_emitting_.size() == 1) begin_trail();
  }

  /// Scores the remaining arcs exactly, from the end, and follows the best path.
  void finish(BestAlignment& out) {
    for (auto c = order_.rbegin(); c != order_.rend(); ++c) {
      Candidate& candidate = candidates_[*c];
      if (candidate.trail_end >= 0) {
        double& score = candidate.score = candidates_[candidate.trail_end].score;
        for_trail(candidate, true,
                  [&](int32_t term, int32_t left) { score += weight(left, term); });
        continue;
      }
      double best = candidate.left == 0 ? end_[candidate.state] : kNegInf;
      for (int32_t l = candidate.first; l < candidate.end; ++l) {
        const double s = weight(candidate.left, links_[l].term) + candidates_[links_[l].to].score;
        if (s > best) best = s;
      }
      candidate.score = best;
    }
    BestStart start;
    for (size_t s = 0; s < starts_.size(); ++s) {
      const Candidate& from = candidates_[starts_[s].candidate];
      start.offer(own_weight(graph_.start_weight(starts_[s].index)) + from.score,
                  static_cast<int32_t>(s),
                  from.left == 0 && ends_first(graph_, end_[from.state], from.score));
    }
    out.score = start.score();
    if (start.id() < 0) return;
    const Start& best = starts_[static_cast<size_t>(start.id())];
    out.start = graph_.node[candidates_[best.candidate].state];
    out.steps.reserve(static_cast<size_t>(example_.frames) + 2);
    if (graph_.has_node_weights)
      out.steps.push_back({graph_.start_weight(best.index), -1, kEpsilon});
    for (int32_t c = best.candidate;;) {
      const Candidate& candidate = candidates_[c];
      const double end = candidate.left == 0 ? end_[candidate.state] : kNegInf;
      if (ends_first(graph_, end, candidate.score)) return;
      if (candidate.trail_end >= 0) {
        for_trail(candidate, false, [&](int32_t term, int32_t left) { add_step(out, term, left); });
        c = candidate.trail_end;
        continue;
      }
      FirstArc first;
      const bool is_only = candidate.end == candidate.first + 1 && end == kNegInf;
      for (int32_t l = candidate.first; l < candidate.end; ++l) {
        const auto& [term, to] = links_[l];
        if (!is_only && weight(candidate.left, term) + candidates_[to].score != candidate.score)
          continue;
        const int32_t to_state = graph_.out.index[term];
        first.offer(l, to_state < graph_.num_emitting ? graph_.slot[to_state] : -1,
                    graph_.out.arc[term]);
      }
      if (first.term() < 0) return add_accept_step(graph_, candidate.state, out);
      const Link& link = links_[first.term()];
      if (first.arc() >= 0 && first.takes_frame())
        add_step(out, link.term, candidate.left);
      else if (first.arc() >= 0)
        out.steps.push_back({first.arc(), -1, kEpsilon});
      c = link.to;
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  /// A cell (state, frames left) that may be on a best path. Its links are [first, end), or it is
  /// the beginning of a trail to the candidate `trail_end`.
  struct Candidate {
    int32_t state, left;
    int32_t first = 0, end = 0, trail_end = kNone;
    double score = kNegInf;
  };
  struct Link {
    int32_t term, to;  // a term of an out-row, and the candidate it leads to
  };
  /// The candidate of a start node, and the index of that node among the start nodes.
  struct Start {
    int32_t candidate;
    size_t index;
  };

  /// A trail is a stretch of frames with a single candidate each, of which only the states are
  /// stored.
  void begin_trail() {
    trail_begin_ = next_emitting_[0];
    trail_state_ = candidates_[trail_begin_].state;
    next_emitting_.clear();
  }
  void end_trail(int32_t left) {
    int32_t c = trail_begin_;
    if (candidates_[c].left > left) {
      order_.push_back(c);
      c = static_cast<int32_t>(candidates_.size());
      candidates_[trail_begin_].trail_end = c;
      candidates_.push_back({trail_state_, left});
    }
    at_[trail_state_] = c;
    next_emitting_.push_back(c);
    trail_state_ = kNone;
  }
  /// Calls f(term, frames left) for the steps of a trail, from its end or from its beginning.
  template <class Each>
  void for_trail(const Candidate& begin, bool is_backwards, const Each& f) const {
    const Candidate& end = candidates_[begin.trail_end];
    const auto state_at = [&](int32_t left) {
      return left == begin.left ? begin.state : trail_[static_cast<size_t>(left)];
    };
    const auto visit = [&](int32_t left) {
      f(scores_.term_between(state_at(left), state_at(left - 1)), left);
    };
    if (is_backwards)
      for (int32_t left = end.left + 1; left <= begin.left; ++left) visit(left);
    else
      for (int32_t left = begin.left; left > end.left; --left) visit(left);
  }
  void add_step(BestAlignment& out, int32_t term, int32_t left) const {
    out.steps.push_back({graph_.out.arc[term], example_.frames - left,
                         graph_.labels[graph_.slot[graph_.out.index[term]]]});
  }

  void add_starts() {
    float best = FloatScores::kImpossible;
    const auto score = [&](size_t k) {
      return static_cast<float>(own_weight(graph_.start_weight(k))) + find_terms(graph_.start[k]);
    };
    for (size_t k = 0; k < graph_.start.size(); ++k) best = std::max(best, score(k));
    if (best == FloatScores::kImpossible) return;
    const float lowest = FloatScores::lowest(best, 2.0 * scores_.error(left_, i_));
    for (size_t k = 0; k < graph_.start.size(); ++k)
      if (score(k) >= lowest) starts_.push_back({add(graph_.start[k], left_), k});
    // Emitting start states are expanded in this row.
    emitting_.swap(next_emitting_);
    next_emitting_.clear();
  }

  /// Finds the terms of a state of this row that may be on a best path; returns its score.
  float find_terms(int32_t v) {
    const float end = left_ == 0 ? static_cast<float>(end_[v]) : FloatScores::kImpossible;
    return scores_.find_terms(v, left_, end, before_, row_, i_, near_.data(), &num_near_);
  }

  int32_t add(int32_t state, int32_t left) {
    int32_t& at = at_[state];
    if (at >= 0 && candidates_[at].left == left) return at;
    at = static_cast<int32_t>(candidates_.size());
    candidates_.push_back({state, left});
    if (state < graph_.num_emitting) {
      next_emitting_.push_back(at);
    } else {
      non_emitting_.push_back(state);
      std::ranges::push_heap(non_emitting_, std::greater<>());
    }
    return at;
  }

  void expand(int32_t c) {
    const int32_t v = candidates_[c].state;
    const int32_t begin = graph_.out.offset[v], end = graph_.out.offset[v + 1];
    order_.push_back(c);
    visited_ += end - begin;
    if (visited_ > most_visited_) {
      has_failed_ = true;
      return;
    }
    if (find_terms(v) == FloatScores::kImpossible) return;
    candidates_[c].first = static_cast<int32_t>(links_.size());
    for (int32_t n = 0; n < num_near_; ++n) {
      const int32_t to = graph_.out.index[near_[n]];
      links_.push_back({near_[n], add(to, to < graph_.num_emitting ? left_ - 1 : left_)});
    }
    candidates_[c].end = static_cast<int32_t>(links_.size());
  }

  /// The weight of an arc or a node weight of the graph; 0 for -1.
  T own_weight(int32_t index) const {
    return index < 0 ? T{0} : weights_[static_cast<size_t>(index)];
  }

  /// The weight of an arc of the product with `left` frames left, rounded to T as in the product.
  T weight(int32_t left, int32_t term) const {
    const int32_t to = graph_.out.index[term], arc = graph_.out.arc[term];
    const T own = own_weight(arc);
    if (to >= graph_.num_emitting) return own;
    const int64_t at = (example_.frames - left) * example_.row_stride +
                       graph_.labels[graph_.slot[to]] * example_.col_stride;
    return own + dispatch(example_.dtype, [&](auto type) {
             return static_cast<T>(static_cast<const decltype(type)*>(example_.data)[at]);
           });
  }

  const TrellisGraph& graph_;
  std::span<const T> weights_;
  const std::vector<double>& end_;  // the score of ending a path in each state
  FloatScores& scores_;
  const Emissions& example_;
  const size_t i_;
  int32_t left_ = 0;
  bool has_failed_;
  int64_t visited_ = 0, most_visited_;
  std::pmr::vector<Candidate> candidates_;
  std::pmr::vector<Link> links_;
  std::pmr::vector<Start> starts_;
  std::pmr::vector<int32_t> order_;  // all candidates in topological order
  std::pmr::vector<int32_t> at_;     // the last candidate of each state
  std::pmr::vector<int32_t> near_;   // terms that find_terms() found
  int32_t num_near_ = 0;
  /// The first candidate of the current trail, its current state, and its states by frames left.
  int32_t trail_begin_ = 0, trail_state_ = kNone;
  std::pmr::vector<int32_t> trail_;
  // Of this row: candidates that are emitting states; a heap of the non-emitting states.
  std::pmr::vector<int32_t> emitting_, next_emitting_, non_emitting_;
  const float *before_ = nullptr, *row_ = nullptr;
};

}  // namespace

size_t most_prefiltered(const TrellisGraph& graph) {
  return graph.is_dense ? kDenseRows : kPrefilterLanes;
}

template <class T>
std::vector<bool> prefilter_best(const TrellisGraph& graph, const Weights& weights,
                                 std::span<const Emissions* const> examples,
                                 std::span<BestAlignment* const> out, int64_t max_bytes) {
  FloatScores scores(graph, weights, examples);
  const int64_t row_size = std::max<int64_t>(scores.row_size(), 1);
  const int32_t stride = segment_stride(scores.frames(), 4 * row_size, max_bytes);
  Segments<float> rows(scores.frames(), row_size, stride, true);
  const auto advance = [&](int32_t left, const float* before, float* row) {
    return scores.advance(left, before, row);
  };
  std::vector<bool> found(examples.size(), false);
  if (!scores.begin(rows.row(0)) || !rows.make(advance)) return found;

  const std::vector<double> end = end_scores(graph, weights.view<T>());
  std::pmr::monotonic_buffer_resource pool;
  std::vector<Tracer<T>> tracers;
  tracers.reserve(examples.size());
  for (size_t i = 0; i < examples.size(); ++i)
    tracers.emplace_back(graph, weights.view<T>(), end, scores, *examples[i], i, &pool);
  int32_t left = scores.frames();
  do {
    // The traces of all examples advance together, so that their cache misses overlap.
    for (; left > rows.begin(); --left)
      for (Tracer<T>& tracer : tracers) tracer.follow(left, rows.row(left - 1), rows.row(left));
  } while (rows.go_back(advance));
  for (Tracer<T>& tracer : tracers) tracer.follow(0, nullptr, rows.row(0));
  for (size_t i = 0; i < examples.size(); ++i) {
    found[i] = !tracers[i].has_failed();
    if (found[i]) tracers[i].finish(*out[i]);
  }
  return found;
}

template std::vector<bool> prefilter_best<float>(const TrellisGraph&, const Weights&,
                                                 std::span<const Emissions* const>,
                                                 std::span<BestAlignment* const>, int64_t);
template std::vector<bool> prefilter_best<double>(const TrellisGraph&, const Weights&,
                                                  std::span<const Emissions* const>,
                                                  std::span<BestAlignment* const>, int64_t);

}  // namespace arcgrad::trellis
