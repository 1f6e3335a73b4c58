#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

// The index of the library: one declaration per op, one file per op in ops/. What each op means,
// its arguments, errors and gradient are described once, in the documentation of its Python name.

namespace arcgrad {

// Scores
// The scores of a list of graphs are computed as one batch.
Graph forward_score(const Graph& graph);
std::vector<Graph> forward_score(const std::vector<Graph>& graphs);
/// The forward score of the emissions, if `normalize`, minus the forward score of their
/// intersection with a graph of alignments.
Graph sequence_loss(const Graph& graph, const Graph& emissions, bool normalize = true);
std::vector<Graph> sequence_loss(const std::vector<Graph>& graphs,
                                 const std::vector<Graph>& emissions, bool normalize = true);
Graph viterbi_score(const Graph& graph);
std::vector<Graph> viterbi_score(const std::vector<Graph>& graphs);
Graph viterbi_path(const Graph& graph);
std::vector<Graph> viterbi_path(const std::vector<Graph>& graphs);
/// One row per window of the emissions (0: all frames), one column per graph.
Graph outer_score(const std::vector<Graph>& graphs, const std::vector<Graph>& emissions,
                  int32_t window = 0, int32_t stride = 1, int32_t dilation = 1,
                  Semiring semiring = Semiring::log);
Graph shortest_distance(const Graph& graph, bool reverse = false,
                        Semiring semiring = Semiring::log);
Graph arc_posteriors(const Graph& graph, Semiring semiring = Semiring::log);
Graph arc_posteriors(const Graph& product, const Graph& wrt, Semiring semiring = Semiring::log);

// Distributions
// A path of a graph has the probability exp(score - forward_score).
/// The expected sum of the weights of `costs` along a path. Both graphs have the same structure.
Graph expected(const Graph& graph, const Graph& costs);
Graph entropy(const Graph& graph);
Graph kl_divergence(const Graph& p, const Graph& q);
Graph sample(const Graph& graph, int64_t max_length = 1000,
             std::optional<uint64_t> seed = std::nullopt);
/// `n` independent paths.
std::vector<Graph> sample(const Graph& graph, int64_t n, int64_t max_length,
                          std::optional<uint64_t> seed);

// Products
Graph compose(const Graph& first, const Graph& second,
              std::optional<int64_t> max_arcs = std::nullopt);
Graph intersect(const Graph& first, const Graph& second,
                std::optional<int64_t> max_arcs = std::nullopt);

// Sets of strings and rules
Graph difference(const Graph& first, const Graph& second,
                 std::optional<int64_t> max_arcs = std::nullopt);
Graph complement(const Graph& graph, std::vector<int32_t> labels,
                 std::optional<int64_t> max_arcs = std::nullopt);
Graph cross(const Graph& first, const Graph& second,
            std::optional<int64_t> max_arcs = std::nullopt);
/// The order in which places are rewritten: the context on that side is compared with the output.
enum class RuleOrder : uint8_t { left_to_right, right_to_left, simultaneous };
/// How a rule is applied.
struct Rewriting {
  bool is_obligatory = true;
  RuleOrder order = RuleOrder::left_to_right;
  int64_t max_arcs = 100'000'000;
};
/// The labels before and after each string, which contexts of rules may have.
inline constexpr int32_t kBegin = std::numeric_limits<int32_t>::max() - 1, kEnd = kBegin + 1;
Graph rewrite(const Graph& rule, const Graph& left, const Graph& right, std::vector<int32_t> labels,
              const Rewriting& rewriting = {});

// Decoding
/// The limits of a beam search; by default it prunes nothing.
struct Pruning {
  double beam = std::numeric_limits<double>::infinity();
  int64_t max_active = std::numeric_limits<int64_t>::max();
  double lattice_beam = std::numeric_limits<double>::infinity();
};
Graph beam_search(const Graph& graph, const Graph& emissions, const Pruning& pruning = {});
std::vector<Graph> beam_search(const std::vector<Graph>& graphs,
                               const std::vector<Graph>& emissions, const Pruning& pruning = {});
/// The best paths of a graph, the best first.
std::vector<Graph> best_paths(const Graph& graph, int64_t n, bool unique = false);
std::vector<std::vector<Graph>> best_paths(const std::vector<Graph>& graphs, int64_t n,
                                           bool unique = false);

// Rational operations
Graph union_(const std::vector<Graph>& graphs);
Graph concat(const std::vector<Graph>& graphs);
Graph closure(const Graph& graph);
Graph plus(const Graph& graph);
Graph optional(const Graph& graph);
Graph power(const Graph& graph, int64_t n);

// Weights
Graph negate(const Graph& graph);
Graph add(const Graph& first, const Graph& second);
Graph subtract(const Graph& first, const Graph& second);
Graph scale(const Graph& graph, double factor);
/// A function of each weight, and its derivatives, which may be missing.
struct MappedWeights {
  Weights values, first, second;
};
Graph map_weights(const Graph& graph, MappedWeights mapped);

// Structure
Graph clone(const Graph& graph);
Graph project_input(const Graph& graph);
Graph project_output(const Graph& graph);
Graph invert(const Graph& graph);
Graph reverse(const Graph& graph);
Graph connect(const Graph& graph);
Graph remove(const Graph& graph, int32_t ilabel = kEpsilon,
             std::optional<int32_t> olabel = std::nullopt, Semiring semiring = Semiring::log);
Graph determinize(const Graph& graph, Semiring semiring = Semiring::log,
                  std::optional<int64_t> max_nodes = std::nullopt);
Graph disambiguate(const Graph& graph, Semiring semiring = Semiring::log,
                   std::optional<int64_t> max_nodes = std::nullopt);
Graph epsilon_normalize(const Graph& graph, Side side = Side::input,
                        Semiring semiring = Semiring::log,
                        std::optional<int64_t> max_nodes = std::nullopt);
Graph synchronize(const Graph& graph, Semiring semiring = Semiring::log,
                  std::optional<int64_t> max_nodes = std::nullopt);
Graph push(const Graph& graph, bool weights = true, bool labels = false, bool to_start = true,
           Semiring semiring = Semiring::log);
Graph minimize(const Graph& graph);
/// The result has at most `max_growth` times the arcs of the graph.
Graph optimize(const Graph& graph, Semiring semiring = Semiring::log, double max_growth = 2.0);
Graph prune(const Graph& graph, double threshold, Semiring semiring = Semiring::tropical);
Graph delete_nodes(const Graph& graph, std::span<const int32_t> nodes);
Graph delete_arcs(const Graph& graph, std::span<const int32_t> arcs);
/// Label from[k] becomes to[k]. Other labels stay, or are an error if `is_total`; epsilon stays.
struct NewLabels {
  Column from, to;
  bool is_total = false;
};
Graph relabel(const Graph& graph, const std::optional<NewLabels>& ilabels,
              const std::optional<NewLabels>& olabels);
/// The graph that takes the place of the arcs with a label.
struct Replacement {
  int32_t label;
  Graph graph;
};
Graph replace(const Graph& root, std::span<const Replacement> replacements,
              std::optional<int64_t> max_arcs = std::nullopt);
Graph arc_sort(const Graph& graph, bool olabel = false);
Graph top_sort(const Graph& graph);

// Labels
/// Which labels and weights the codes of encode() stand for. Copies have one table in common.
class Encoder {
 public:
  struct Table;
  explicit Encoder(bool labels = true, bool weights = false);
  /// The number of codes.
  int64_t size() const;
  Table& table() const { return *table_; }

 private:
  std::shared_ptr<Table> table_;
};
Graph encode(const Graph& graph, const Encoder& encoder);
Graph decode(const Graph& graph, const Encoder& encoder);

// Properties
bool is_acceptor(const Graph& graph);
bool is_acyclic(const Graph& graph);
bool is_connected(const Graph& graph);
bool is_deterministic(const Graph& graph);
bool is_epsilon_free(const Graph& graph, std::optional<Side> side = std::nullopt);
bool is_functional(const Graph& graph);
bool is_string(const Graph& graph);
bool is_unambiguous(const Graph& graph);

// Comparison
bool equal(const Graph& a, const Graph& b);
bool isomorphic(const Graph& a, const Graph& b);
bool equivalent(const Graph& a, const Graph& b, double tol = 1e-4,
                Semiring semiring = Semiring::log, std::optional<int64_t> max_nodes = std::nullopt);
bool rand_equivalent(const Graph& a, const Graph& b, int64_t num_samples = 100, double tol = 1e-4,
                     int64_t max_length = 1000, std::optional<uint64_t> seed = std::nullopt,
                     Semiring semiring = Semiring::log);

}  // namespace arcgrad
