#include "arcgrad/algorithms/subset_forest.h"

#include <utility>

#include "arcgrad/algorithms/distances.h"

namespace arcgrad {
namespace {

class ForestRule final : public Rule {
 public:
  ForestRule(const char* name, Graph graph, SubsetForest forest, Semiring semiring)
      : name_(name),
        graph_(std::move(graph)),
        semiring_(semiring),
        direct_(ArcMap::gather(std::move(forest.direct)).transpose()),
        plus_(ArcMap::gather(std::move(forest.plus)).transpose()),
        minus_(ArcMap::gather(std::move(forest.minus)).transpose()),
        forest_(std::move(forest)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    Weights scores = Weights::zeros(num_scores(), DType::float64);
    plus_.apply(deltas[0], scores, 1.0);
    minus_.apply(deltas[0], scores, -1.0);
    distances().add({&scores, 1}, grads);
    direct_.apply(deltas[0], grads[0]->sum(), 1.0);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    const Rule& rule = distances();
    const Graph scores =
        record_moves(op, distances_topology(num_scores()),
                     {{record_cast(deltas[0], DType::float64), plus_}, {deltas[0], minus_, -1.0}});
    const std::vector<Graph> grads = rule.record({&scores, 1}, wanted);
    return {record_moves(op, graph_.topology_ptr(),
                         {{grads[0], ArcMap::identity()}, {deltas[0], direct_}})};
  }

 private:
  int64_t num_scores() const { return std::ssize(forest_.targets); }
  const Rule& distances() const {
    once_.call([&] {
      Arrays arrays;
      arrays.num_nodes = forest_.num_nodes;
      arrays.src = forest_.src;
      arrays.dst = forest_.dst;
      arrays.ilabel.assign(forest_.arcs.size(), kEpsilon);
      Weights weights = Weights::zeros(std::ssize(forest_.arcs), DType::float64);
      ArcMap::gather(forest_.arcs).apply(graph_.weights(), weights, 1.0);
      PathScores scores(std::make_shared<Topology>(std::move(arrays)), weights, forest_.sources,
                        {.op = name_,
                         .semiring = semiring_,
                         .keep = true,
                         .targets = forest_.targets,
                         .exact_sums = true});
      distances_ =
          make_distances_rule(name_, graph_, {std::move(scores), forest_.arcs, forest_.targets});
    });
    return *distances_;
  }

  const char* name_;
  Graph graph_;
  Semiring semiring_;
  ArcMap direct_, plus_, minus_;
  SubsetForest forest_;
  mutable ForkSafeOnce once_;
  mutable std::unique_ptr<Rule> distances_;
};

}  // namespace

std::unique_ptr<Rule> make_forest_rule(const char* op, const Graph& graph, SubsetForest forest,
                                       Semiring semiring) {
  return std::make_unique<ForestRule>(op, graph.snapshot(), std::move(forest), semiring);
}

}  // namespace arcgrad
