#include "arcgrad/search/grammar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

constexpr char kGraphOp[] = "graph_grammar";
constexpr float kNoScore = -std::numeric_limits<float>::infinity();

class NgramGrammar final : public Grammar {
 public:
  NgramGrammar(std::shared_ptr<const NgramModel> model, std::vector<int32_t> numbers,
               bool has_start, bool has_end)
      : model_(std::move(model)),
        numbers_(std::move(numbers)),
        has_start_(has_start),
        has_end_(has_end) {}

  class Session final : public GrammarSession {
   public:
    explicit Session(const NgramGrammar& grammar) : grammar_(grammar) {}
    uint32_t start() override { return grammar_.has_start_ ? grammar_.model_->start_state() : 0; }
    GrammarStep next(uint32_t state, int32_t word) override {
      const int32_t number = grammar_.number(word);
      if (number < 0) return {0, 0.0F};
      const NgramStep step = grammar_.model_->next(state, static_cast<uint32_t>(number));
      return {step.state, step.score};
    }
    float end_score(uint32_t state) override {
      return grammar_.has_end_ ? grammar_.model_->end_score(state) : 0.0F;
    }

   private:
    const NgramGrammar& grammar_;
  };

  std::unique_ptr<GrammarSession> session() const override {
    return std::make_unique<Session>(*this);
  }
  float estimate(int32_t word) const override {
    const int32_t at = number(word);
    return at < 0 ? 0.0F : model_->next(0, static_cast<uint32_t>(at)).score;
  }
  bool has_log_probs() const override { return true; }

 private:
  int32_t number(int32_t word) const {
    const int32_t own = word < 0 ? -1 : numbers_[static_cast<size_t>(word)];
    return own < 0 ? model_->unknown_word() : own;
  }

  std::shared_ptr<const NgramModel> model_;
  std::vector<int32_t> numbers_;
  bool has_start_, has_end_;
};

/// A state is a set of nodes with residuals, as in determinization; it is made when a search
/// reaches it.
class GraphGrammar final : public Grammar {
 public:
  GraphGrammar(const Graph& graph, Semiring semiring, int32_t unknown)
      : graph_(graph),
        weights_(graph.weights().to_vector()),
        semiring_(semiring),
        unknown_(unknown) {
    for (size_t a = 0; a < weights_.size(); ++a) {
      require(weights_[a] < std::numeric_limits<double>::infinity(), kGraphOp,
              "weights must be finite or -inf, but that of ",
              describe_weight(graph.topology(), static_cast<int64_t>(a)), " is ", weights_[a]);
      is_negative_ = is_negative_ && weights_[a] <= 0.0;
    }
    failures_ = find_failures(kGraphOp, graph_.topology(), Side::input);
    rank_epsilons();
  }

  class Session final : public GrammarSession {
   public:
    explicit Session(const GraphGrammar& grammar)
        : grammar_(grammar), index_(grammar.graph_.topology().index(Side::input)) {}

    uint32_t start() override {
      Reached reached;
      const Topology& topology = grammar_.graph_.topology();
      for (const int32_t node : topology.start())
        add(reached, node, grammar_.node_weight(topology.start_weight(node)));
      return number(reached, true).state;
    }
    GrammarStep next(uint32_t state, int32_t word) override {
      const int32_t label = word == kUnknownWord ? grammar_.unknown_ : word;
      Reached reached;
      if (label >= 0)
        for (const auto& [node, residual] : *subsets_[state])
          follow(reached, node, residual, label);
      if (reached.empty()) return {state, kNoScore};
      return number(reached);
    }
    float end_score(uint32_t state) override {
      const Topology& topology = grammar_.graph_.topology();
      const Failures* const failures = grammar_.failures_;
      double score = kNegInf;
      const auto end = [&](int32_t node, double residual) {
        if (topology.is_accept(node))
          score = grammar_.combine(score,
                                   residual + grammar_.node_weight(topology.accept_weight(node)));
      };
      for (auto [node, residual] : *subsets_[state]) {
        if (failures == nullptr || failures->ends(node)) {
          end(node, residual);
          continue;
        }
        while (node >= 0 && !failures->ends(node)) {
          const int32_t parent = failures->parent(node);
          if (parent >= 0) residual += grammar_.weights_[failures->arc(node)];
          node = parent;
        }
        if (node < 0) continue;
        Reached reached;
        add(reached, node, residual);
        follow_epsilons(reached);
        for (const auto& [place, value] : reached) end(place.second, value);
      }
      return static_cast<float>(score);
    }

   private:
    using Subset = std::vector<std::pair<int32_t, double>>;

    /// Scores of nodes, in the order in which epsilon arcs lead from node to node.
    using Reached = std::map<std::pair<int32_t, int32_t>, double>;

    void add(Reached& reached, int32_t node, double score) const {
      if (!(score > kNegInf)) return;
      const auto [known, is_new] = reached.try_emplace({grammar_.rank_[node], node}, score);
      if (!is_new) known->second = grammar_.combine(known->second, score);
    }
    /// Takes the arcs of a node with a label; whether there are any.
    bool take(Reached& reached, int32_t node, double score, int32_t label) const {
      const auto begin = index_.label.begin() + index_.offset[node];
      const auto end = index_.label.begin() + index_.offset[node + 1];
      const auto first = std::lower_bound(begin, end, label);
      for (auto at = first; at != end && *at == label; ++at) {
        const auto slot = at - index_.label.begin();
        add(reached, index_.dst[slot], score + grammar_.weights_[index_.arc[slot]]);
      }
      return first != end && *first == label;
    }
    /// Takes all arcs that match a label at a node: its own, its rest arcs, or those of the node
    /// that it backs off to.
    void follow(Reached& reached, int32_t node, double score, int32_t label) const {
      const Failures* const failures = grammar_.failures_;
      while (!take(reached, node, score, label) && failures != nullptr && label != kEpsilon) {
        if (take(reached, node, score, kRho) || failures->parent(node) < 0) return;
        score += grammar_.weights_[failures->arc(node)];
        node = failures->parent(node);
      }
    }
    void follow_epsilons(Reached& reached) const {
      // Nodes that are added come later in the order.
      for (const auto& [place, score] : reached) take(reached, place.second, score, kEpsilon);
    }

    /// The number of the state with these scores and those that epsilon arcs add, and their common
    /// score.
    GrammarStep number(Reached& reached, bool is_start = false) {
      follow_epsilons(reached);
      // Residuals of the start are scores.
      double common = is_start ? 0.0 : kNegInf;
      if (!is_start)
        for (const auto& [place, score] : reached) common = grammar_.combine(common, score);
      Subset subset;
      for (const auto& [place, score] : reached) subset.push_back({place.second, score - common});
      const auto [known, is_new] =
          numbers_.try_emplace(std::move(subset), static_cast<uint32_t>(subsets_.size()));
      if (is_new) subsets_.push_back(&known->first);
      return {known->second, static_cast<float>(common)};
    }

    const GraphGrammar& grammar_;
    const LabelIndex& index_;
    std::map<Subset, uint32_t> numbers_;
    std::vector<const Subset*> subsets_;
  };

  std::unique_ptr<GrammarSession> session() const override {
    return std::make_unique<Session>(*this);
  }
  float estimate(int32_t) const override { return 0.0F; }
  bool has_log_probs() const override { return is_negative_ && semiring_ == Semiring::tropical; }

 private:
  double combine(double a, double b) const {
    if (a < b) std::swap(a, b);
    if (semiring_ == Semiring::tropical || !(b > kNegInf)) return a;
    return a + std::log1p(std::exp(b - a));
  }

  /// The weight of a start or accept node by its index; 0 without node weights.
  double node_weight(int32_t index) const {
    return index < 0 ? 0.0 : weights_[static_cast<size_t>(index)];
  }
  /// Numbers nodes so that epsilon arcs lead to greater numbers.
  void rank_epsilons() {
    const Topology& topology = graph_.topology();
    Arrays epsilons;
    epsilons.num_nodes = topology.num_nodes();
    for (int32_t a = 0; a < topology.num_arcs(); ++a)
      if (topology.ilabel()[a] == kEpsilon) {
        epsilons.src.push_back(topology.src()[a]);
        epsilons.dst.push_back(topology.dst()[a]);
      }
    const Topology graph(std::move(epsilons));
    const Order& order = graph.order();
    require(order.is_acyclic(), kGraphOp,
            "epsilon arcs of a grammar must not form a cycle, but they do; use remove");
    rank_.resize(static_cast<size_t>(topology.num_nodes()));
    for (int32_t p = 0; p < topology.num_nodes(); ++p) rank_[order.node(p)] = p;
  }

  Graph graph_;
  const Failures* failures_ = nullptr;  // null without failure and rest arcs
  std::vector<double> weights_;
  std::vector<int32_t> rank_;
  Semiring semiring_;
  int32_t unknown_;
  bool is_negative_ = true;
};

}  // namespace

std::unique_ptr<Grammar> ngram_grammar(std::shared_ptr<const NgramModel> model,
                                       std::vector<int32_t> numbers, bool has_start, bool has_end) {
  for (const int32_t number : numbers)
    require(number < model->num_words(), "ngram_grammar", "numbers of words must be below ",
            model->num_words(), ", but one is ", number);
  return std::make_unique<NgramGrammar>(std::move(model), std::move(numbers), has_start, has_end);
}

std::unique_ptr<Grammar> graph_grammar(const Graph& graph, Semiring semiring, int32_t unknown) {
  require(graph.num_nodes() > 0, kGraphOp, "a grammar must have nodes, but the graph has none");
  require(graph.topology().is_acceptor(), kGraphOp,
          "a grammar must be an acceptor, but input and output labels of some arc differ; use "
          "project_input");
  return std::make_unique<GraphGrammar>(graph.detach(), semiring, unknown);
}

}  // namespace arcgrad
