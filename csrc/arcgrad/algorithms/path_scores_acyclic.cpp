#include "arcgrad/algorithms/path_scores_acyclic.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/runtime/interrupt_poll.h"

// The log semiring without cycles, in any order of nodes and arcs. Scores are Scaled numbers
// (mantissa and exponent): at each node the terms are brought to their largest exponent and added,
// so neither log nor exp is called per arc; the exponentials of the weights are computed in blocks
// by a vectorized loop. `term` and `inverse_sum` of the table are by-products of the sums.

namespace arcgrad {
namespace {

/// Prefetch distance for weights that are read through arc ids, in slots.
constexpr int32_t kAhead = 32;
/// Arcs whose exponentials are computed at once.
constexpr size_t kBlock = 512;

/// The sum of the empty path at a node.
Scaled begin_at(const PathTable& table, int32_t node) {
  if (!table.is_source[node]) return {};
  if (table.sources.empty()) return Scaled::one();
  const double score = table.begin(node);
  Scaled out;
  split_exp(&score, 1, &out.mantissa, &out.exponent);
  return out;
}

template <class T>
void run(PathTable& table, const T* weight) {
  const Adjacency& adjacency = *table.adjacency;
  const auto last_slot = static_cast<int32_t>(adjacency.node.size()) - 1;
  const int32_t* offset = adjacency.offset.data();
  const int32_t* src = adjacency.node.data();
  const int32_t* arcs = adjacency.arcs.empty() ? nullptr : adjacency.arcs.data();
  Buffer<Scaled>& scores = table.log_scores;
  const auto num_nodes = static_cast<int32_t>(scores.size());
  std::vector<double> gathered, mantissa, exponent, scratch;
  InterruptPoll poll;
  for (int32_t begin = 0, end; begin < num_nodes; begin = end) {
    // Gather the weights of a block of nodes, and prefetch the scores that the sums will read.
    size_t count = 0;
    for (end = begin; end < num_nodes && count < kBlock; ++end)
      count += static_cast<size_t>(offset[table.node(end) + 1] - offset[table.node(end)]);
    if (count > gathered.size())
      for (auto* column : {&gathered, &mantissa, &exponent, &scratch})
        column->resize(std::max(2 * kBlock, count));
    poll(static_cast<int64_t>(count) + end - begin);
    double* to = gathered.data();
    auto gather = [&](int32_t k) {
      *to++ = static_cast<double>(weight[arcs ? arcs[k] : k]);
      __builtin_prefetch(&scores[src[k]]);
      if (arcs) __builtin_prefetch(&weight[arcs[std::min(k + kAhead, last_slot)]]);
    };
    if (table.order.empty() && !table.is_reverse)
      for (int32_t k = offset[begin]; k < offset[end]; ++k) gather(k);
    else
      for (int32_t position = begin; position < end; ++position)
        for (int32_t k = offset[table.node(position)]; k < offset[table.node(position) + 1]; ++k)
          gather(k);
    split_exp(gathered.data(), static_cast<int64_t>(count), mantissa.data(), exponent.data());

    const double* m = mantissa.data();
    double* q = exponent.data();
    for (int32_t position = begin; position < end; ++position) {
      const int32_t d = table.node(position), first = offset[d], degree = offset[d + 1] - first;
      const Scaled source = begin_at(table, d);
      double* term = table.keep ? table.term + first : scratch.data();
      double top = source.exponent;
      for (int32_t k = 0; k < degree; ++k) {
        const Scaled& from = scores[src[first + k]];
        q[k] = std::min(q[k] + from.exponent, Scaled::kMost);
        term[k] = from.mantissa * m[k];
        top = std::max(top, q[k]);
      }
      if (top == kNegInf) {
        std::fill(term, term + degree, 0.0);
      } else {
        double sum = source.mantissa * pow2(source.exponent - top);
        if (table.keep) table.set_source_term(d, sum);
        for (int32_t k = 0; k < degree; ++k) {
          term[k] *= pow2(q[k] - top);
          sum += term[k];
        }
        scores[d] = renormalize(sum, top);
        if (table.keep) table.inverse_sum[d] = 1.0 / sum;
      }
      m += degree;
      q += degree;
    }
  }
}

template <class T>
void run_exact(PathTable& table, const T* weight) {
  const Adjacency& adjacency = *table.adjacency;
  Buffer<double>& scores = table.plain_scores;
  const auto num_nodes = static_cast<int32_t>(scores.size());
  InterruptPoll poll;
  for (int32_t position = 0; position < num_nodes; ++position) {
    const int32_t d = table.node(position);
    const int32_t first = adjacency.offset[d], last = adjacency.offset[d + 1];
    poll(1 + last - first);
    const auto arriving = [&](int32_t k) {
      return scores[adjacency.node[k]] + weight[adjacency.arc(k)];
    };
    double score = table.begin(d);
    for (int32_t k = first; k < last; ++k) score = logadd(score, arriving(k));
    scores[d] = score;
    if (!table.keep) continue;
    table.inverse_sum[d] = score > kNegInf ? 1.0 : 0.0;
    table.set_source_term(d, std::exp(table.begin(d) - score));
    for (int32_t k = first; k < last; ++k)
      table.term[k] = score > kNegInf ? std::exp(arriving(k) - score) : 0.0;
  }
}

}  // namespace

void run_acyclic(PathTable& table, const Weights& weights) {
  table.log_scores.resize(static_cast<size_t>(table.topology->num_nodes()));
  dispatch(weights.dtype(), [&](auto kind) { run(table, weights.view<decltype(kind)>().data()); });
}

void run_acyclic_exact(PathTable& table, const Weights& weights) {
  table.plain_scores.resize(static_cast<size_t>(table.topology->num_nodes()));
  dispatch(weights.dtype(),
           [&](auto kind) { run_exact(table, weights.view<decltype(kind)>().data()); });
}

}  // namespace arcgrad
