// Best paths of products, exactly as find_best_path() finds them in the composed graph. With e the
// emissions of a frame and `left` the number of frames left, the recursion from the end is
//
//     S(state, left) = max over arcs of w(arc) + e[label] + S(destination, left - 1)
//
// where epsilon arcs add no emission and consume no frame. The traceback needs no back-pointers:
// from the best start it takes, at each state, the first arc that attains S, in the order of the
// arcs of the product. Invariant: weights and emissions are added in the type of the product, and
// scores as doubles in the order of the composed graph; so scores are equal to the last bit, and
// ties are found by comparing them. Segments (segments.h) bound the memory of S. Time O(frames *
// arcs), with vectors of states or of examples. The prefilter (prefilter.cpp) is tried first where
// it is faster. Reference: Viterbi, IEEE Transactions on Information Theory 13 (1967).

#include "arcgrad/trellis/best/best.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "arcgrad/runtime/error.h"
#include "arcgrad/trellis/best/best_recursion.h"
#include "arcgrad/trellis/best/prefilter.h"
#include "arcgrad/trellis/best/segments.h"

namespace arcgrad::trellis {
namespace {

/// Without paths, only about this many bytes of rows are in memory at a time, which fit the cache.
constexpr int64_t kRoundBytes = 1 << 17;

/// Scores some examples and traces their best paths.
template <class T>
class BestSolver {
 public:
  BestSolver(const BestGraph<T>& graph, std::span<const Emissions* const> examples,
             std::span<BestAlignment* const> out, int32_t lanes, bool with_paths, int64_t max_bytes)
      : graph_(graph),
        examples_(examples),
        out_(out),
        recursion_(graph, examples, lanes),
        rows_(make_rows(with_paths, max_bytes)) {}

  /// Finds the scores and starts; returns false if an emission is NaN or +inf.
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

  /// Traces the paths, after find_scores().
  void find_paths() {
    std::vector<Cursor> cursors;
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (out_[i]->start < 0) continue;
      out_[i]->steps.reserve(static_cast<size_t>(examples_[i]->frames) + 2);
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
  /// The state that the trace of a path has reached.
  struct Cursor {
    size_t lane;
    int32_t state, left;
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

  /// Finds the starts of the examples that have `left` frames.
  void find_starts(int32_t left, const double* row) {
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (examples_[i]->frames != left) continue;
      BestStart best;
      const TrellisGraph& trellis_graph = graph_.trellis_graph;
      for (size_t k = 0; k < trellis_graph.start.size(); ++k) {
        const int32_t v = trellis_graph.start[k];
        const double score = recursion_.score(row, v, i);
        best.offer(graph_.weight(trellis_graph.start_weight(k)) + score, static_cast<int32_t>(k),
                   left == 0 && ends_first(trellis_graph, graph_.end[v], score));
      }
      out_[i]->score = best.score();
      if (best.id() < 0) continue;
      start_[i] = trellis_graph.start[best.id()];
      out_[i]->start = trellis_graph.node[start_[i]];
      if (trellis_graph.has_node_weights)
        out_[i]->steps.push_back(
            {trellis_graph.start_weight(static_cast<size_t>(best.id())), -1, kEpsilon});
    }
  }

  /// Prefetch distance, in frames.
  static constexpr int32_t kAhead = 6;

  /// Traces a path through the current segment.
  void walk(Cursor& cursor) const {
    const Emissions& example = *examples_[cursor.lane];
    dispatch(example.dtype, [&](auto type) {
      walk_as(cursor, example, static_cast<const decltype(type)*>(example.data));
    });
  }

  /// Traces a path of a banded graph while each state has exactly one best arc, the usual case.
  template <class E>
  void follow_diagonals(Cursor& cursor, const Emissions& example, const E* emissions,
                        std::vector<BestStep>& steps) const {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    const int32_t *offset = trellis_graph.out.offset.data(), *middle = trellis_graph.middle.data(),
                  *index = trellis_graph.out.index.data(), *arcs = trellis_graph.out.arc.data();
    int32_t v = cursor.state, left = cursor.left;
    const double *now = rows_.row(left), *next = nullptr;
    for (; left > rows_.begin() && v < trellis_graph.num_emitting; --left, now = next) {
      const double score = now[v];
      next = rows_.row(left - 1);
      // Each step waits for a load. Offsets are small, so the path is near this state a few frames
      // later: prefetch that cache line.
      if (left - kAhead >= rows_.begin()) __builtin_prefetch(rows_.row(left - kAhead) + v);
      const int32_t frame = example.frames - left;
      const E* from = emissions + frame * example.row_stride;
      int32_t term = 0, count = 0;
      for (int32_t k = offset[v]; k < middle[v]; ++k) {
        const int32_t to = index[k], label = graph_.label[to];
        if (label >= example.labels) continue;
        T weight = static_cast<T>(from[label * example.col_stride]);
        if (!graph_.is_plain) weight += graph_.weight(arcs[k]);
        const bool is_best = weight + next[to] == score;
        term = is_best ? k : term;
        count += is_best ? 1 : 0;
      }
      if (count != 1) break;
      v = index[term];
      steps.push_back({arcs[term], frame, graph_.label[v]});
    }
    cursor.state = v;
    cursor.left = left;
  }

  template <class E>
  void walk_as(Cursor& cursor, const Emissions& example, const E* emissions) const {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    const Rows& out = trellis_graph.out;
    std::vector<BestStep>& steps = out_[cursor.lane]->steps;
    while (cursor.left > rows_.begin() || rows_.begin() == 0) {
      if (graph_.loop == BestLoop::diagonals) {
        follow_diagonals(cursor, example, emissions, steps);
        if (cursor.left == rows_.begin() && rows_.begin() > 0) return;
      }
      const int32_t v = cursor.state, left = cursor.left, frame = example.frames - left;
      const double* now = rows_.row(left);
      const double score = recursion_.score(now, v, cursor.lane);
      if (left == 0 && ends_first(trellis_graph, graph_.end[v], score)) return;
      const double* next = left > 0 ? rows_.row(left - 1) : nullptr;
      const E* from = left > 0 ? emissions + frame * example.row_stride : nullptr;
      FirstArc first;
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const int32_t to = out.index[k], arc = out.arc[k];
        const bool is_emitting = to < trellis_graph.num_emitting;
        T weight = graph_.weight(arc);
        if (is_emitting) {
          const int32_t label = graph_.label[to];
          if (left == 0 || label >= example.labels) continue;
          weight += static_cast<T>(from[label * example.col_stride]);
        }
        if (weight + recursion_.score(is_emitting ? next : now, to, cursor.lane) != score) continue;
        first.offer(k, is_emitting ? trellis_graph.slot[to] : -1, arc);
      }
      if (first.term() < 0) return add_accept_step(trellis_graph, v, *out_[cursor.lane]);
      cursor.state = out.index[first.term()];
      if (first.takes_frame()) --cursor.left;
      // The step from a state to the non-emitting state of its node has no arc.
      if (first.arc() >= 0 && first.takes_frame())
        steps.push_back({first.arc(), frame, graph_.label[cursor.state]});
      else if (first.arc() >= 0)
        steps.push_back({first.arc(), -1, kEpsilon});
    }
  }

  const BestGraph<T>& graph_;
  std::span<const Emissions* const> examples_;
  std::span<BestAlignment* const> out_;
  BestRecursion<T> recursion_;
  Segments<double> rows_;
  int32_t start_[kLanes] = {};
};

bool has_bad_emission(const TrellisGraph& trellis_graph, const Emissions& emissions) {
  return dispatch(emissions.dtype, [&](auto type) {
    using E = decltype(type);
    for (int32_t t = 0; t < emissions.frames; ++t)
      for (int32_t label : trellis_graph.labels) {
        if (label >= emissions.labels) break;
        const int64_t at = t * emissions.row_stride + label * emissions.col_stride;
        if (!(static_cast<const E*>(emissions.data)[at] < std::numeric_limits<E>::infinity()))
          return true;
      }
    return false;
  });
}

/// Raises unless all weights are finite or -inf. Returns whether those of all arcs are 0.
bool check_weights(const char* op, const TrellisGraph& graph, const Weights& weights) {
  return dispatch(weights.dtype(), [&](auto type) {
    using W = decltype(type);
    const std::span<const W> values = weights.view<W>();
    int32_t bad = 0, other = 0;
    for (const W w : values) bad |= w < std::numeric_limits<W>::infinity() ? 0 : 1;
    for (const W w : values.first(static_cast<size_t>(graph.num_arcs())))
      other |= w == W{0} ? 0 : 1;
    for (size_t a = 0; bad && a < values.size(); ++a)
      require(values[a] < std::numeric_limits<W>::infinity(), op, graph.describe_weight(a),
              " of the graph has the weight ", values[a], ", but a weight must be finite or -inf");
    return other == 0;
  });
}

}  // namespace

std::vector<BestAlignment> find_best(const char* op, const TrellisGraph& trellis_graph,
                                     const Weights& weights, std::span<const Emissions> examples,
                                     bool with_paths, int64_t max_bytes) {
  const Weights plain = weights.contiguous();
  const bool is_unweighted = check_weights(op, trellis_graph, plain);
  std::vector<BestAlignment> out(examples.size());

  const auto solve_as = [&](auto type) {
    using T = decltype(type);
    constexpr DType dtype = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    std::vector<size_t> order;
    for (size_t i = 0; i < examples.size(); ++i)
      if (promote(plain.dtype(), examples[i].dtype) == dtype) order.push_back(i);
    // Examples of similar length waste the fewest lanes.
    std::ranges::stable_sort(order, {}, [&](size_t i) { return examples[i].frames; });
    const Weights cast = plain.cast(dtype);
    // Calls solve(examples, outputs, numbers) for chunks of at most `most` examples.
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
    // For a sparse graph the prefilter needs several examples, one per lane.
    if (trellis_graph.offsets.empty() && (trellis_graph.is_dense || order.size() > 1)) {
      std::vector<size_t> others;
      for_chunks(most_prefiltered(trellis_graph), [&](auto& chunk, auto& chunk_out, auto numbers) {
        const auto found = prefilter_best<T>(trellis_graph, cast, chunk, chunk_out, max_bytes);
        for (size_t k = 0; k < found.size(); ++k)
          if (!found[k]) others.push_back(numbers[k]);
      });
      order = others;
    }
    if (order.empty()) return;
    BestLoop loop = BestLoop::terms;
    if (!trellis_graph.offsets.empty())
      loop = BestLoop::diagonals;
    else if (trellis_graph.is_dense && order.size() == 1)
      loop = BestLoop::matrix;
    const BestGraph<T> graph(trellis_graph, cast, is_unweighted, loop);
    for_chunks(loop == BestLoop::terms ? kLanes : 1, [&](auto& chunk, auto& chunk_out, auto) {
      const int32_t lanes = chunk.size() == 1 ? 1 : chunk.size() <= 4 ? 4 : 8;
      BestSolver<T> solver(graph, chunk, chunk_out, lanes, with_paths, max_bytes);
      if (!solver.find_scores())
        for (const Emissions& example : examples)
          if (has_bad_emission(trellis_graph, example))
            fail_bad_emission(op, trellis_graph.labels, example);
      if (with_paths) solver.find_paths();
    });
  };
  solve_as(float{});
  solve_as(double{});
  return out;
}

}  // namespace arcgrad::trellis
