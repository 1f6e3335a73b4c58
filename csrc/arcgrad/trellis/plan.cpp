// Groups the products of a list by their graph factors, and limits the memory of kept frames.

#include "arcgrad/trellis/plan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/key_index.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/testing.h"

namespace arcgrad::trellis {
namespace {

std::atomic<int32_t> forced_stride{0};
std::atomic<int64_t> history_limit{int64_t{256} << 20};

/// Collects distinct factors: those that differ in tape entry, topology or weight buffer.
class Distinct {
 public:
  explicit Distinct(std::vector<Graph>& graphs) : graphs_(graphs) {}
  size_t operator()(const Graph& graph) {
    const auto [index, is_new] =
        index_.add({graph.var().get(), graph.topology_ptr().get(), graph.raw_weights().data()});
    if (is_new) graphs_.push_back(graph);
    return index;
  }

 private:
  std::vector<Graph>& graphs_;
  KeyIndex<std::array<const void*, 3>> index_;
};

/// Adds examples to a plan.
class PlanBuilder {
 public:
  explicit PlanBuilder(Plan& plan)
      : plan_(plan), graph_of_(plan.graphs), emissions_of_(plan.emissions) {
    plan.examples.reserve(plan.list_size);
  }

  void add(const Graph& graph, const Graph& emissions, Side side, Graph product, size_t position) {
    const size_t g = graph_of_(graph), e = emissions_of_(emissions);
    group_of_.resize(plan_.graphs.size(), {kNone, kNone});
    size_t& group = group_of_[g][side == Side::input ? 0 : 1];
    if (group == kNone) {
      group = plan_.groups.size();
      plan_.groups.push_back({g, side, {}});
    }
    plan_.groups[group].examples.push_back(plan_.examples.size());
    plan_.examples.push_back({std::move(product), g, e, view_emissions(emissions), position});
  }

 private:
  Plan& plan_;
  Distinct graph_of_, emissions_of_;
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<std::array<size_t, 2>> group_of_;  // of each graph and side
};

}  // namespace

void force_history_stride(int32_t stride) { forced_stride = stride; }

void set_history_limit(int64_t bytes) {
  require(bytes >= 0, "set_history_limit", "the number of bytes must be 0 or more, but it is ",
          bytes);
  history_limit = bytes;
}
int64_t get_history_limit() { return history_limit; }

int32_t history_stride(int64_t num_frames, int64_t frame_bytes, int64_t num_examples) {
  if (const int32_t stride = forced_stride) return stride;
  // In double, because the product of the three may overflow an integer.
  const double bytes = static_cast<double>(num_frames) * static_cast<double>(frame_bytes) *
                       static_cast<double>(num_examples);
  if (bytes <= static_cast<double>(history_limit.load())) return 1;
  return std::max(1, static_cast<int32_t>(std::sqrt(static_cast<double>(num_frames))));
}

bool is_graph_factor(const char* op, const Graph& graph, const Graph& factor) {
  require(graph.product() != nullptr, op,
          "wrt needs the product of a graph with a dense linear graph, but the graph is not one");
  const auto is_same = [&](const Graph& g) {
    return g.topology_ptr() == factor.topology_ptr() &&
           g.raw_weights().data() == factor.raw_weights().data();
  };
  if (is_same(graph.product()->graph())) return true;
  require(
      is_same(graph.product()->emissions()), op,
      "wrt must be one of the two graphs the product was made of, with the weights it had then");
  return false;
}

Plan::Plan(const char* op, const std::vector<Graph>& list) : list_size(list.size()) {
  PlanBuilder builder(*this);
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].product()) {
      (is_emissions(list[i]) ? linear : with_arcs).push_back(i);
      continue;
    }
    const Product& product = *list[i].product();
    // No gradient flows to the factors of a product that was detached from the tape.
    const bool flows = list[i].calc_grad();
    builder.add(flows ? product.graph() : product.graph().detach(),
                flows ? product.emissions() : product.emissions().detach(), product.side(),
                list[i].snapshot(), i);
  }
  resolve_graphs(op);
}

Plan::Plan(const char* op, const std::vector<Graph>& acceptors, const std::vector<Graph>& matched)
    : list_size(matched.size()) {
  PlanBuilder builder(*this);
  for (size_t i = 0; i < matched.size(); ++i)
    builder.add(acceptors[acceptors.size() == 1 ? 0 : i], matched[i], Side::output, nullptr, i);
  resolve_graphs(op);
}

void Plan::resolve_graphs(const char* op) {
  const std::vector<Graph> originals(graphs);
  const auto needs = [&](const Group& group) {
    return originals[group.graph].topology().has_special_labels(group.side);
  };
  if (std::ranges::none_of(groups, needs)) return;
  for (Group& group : groups) {
    int32_t labels = 0;
    for (size_t i : group.examples) labels = std::max(labels, examples[i].view.labels);
    ResolvedGraph graph = resolve_failures(op, originals[group.graph], group.side, labels);
    resolved.resize(graphs.size(), {nullptr});
    if (resolved[group.graph].graph) {  // for the other side
      group.graph = graphs.size();
      for (size_t i : group.examples) examples[i].graph = group.graph;
      graphs.push_back(nullptr);
      resolved.push_back({nullptr});
    }
    graphs[group.graph] = graph.graph;
    resolved[group.graph] = std::move(graph);
  }
}

void Plan::rethrow(const char* op, size_t example) const {
  if (list_size == 1) throw;
  rethrow_for_element(op, examples[example].position, list_size);
}

void Plan::rethrow(const char* op, const TrellisGraph& trellis_graph,
                   std::span<const size_t> together) const {
  for (size_t i : together) {
    try {
      for (int32_t t = 0; t < examples[i].view.frames; ++t)
        check_emissions(op, trellis_graph.labels, examples[i].view, t);
    } catch (const std::invalid_argument&) {
      rethrow(op, i);
    }
  }
  rethrow(op, together.front());
}

int64_t Plan::work() const {
  constexpr int64_t kPerExample = 200, kCellsPerArc = 10;
  int64_t work = 0;
  for (const Example& example : examples)
    work += kPerExample + graphs[example.graph].num_arcs() * example.view.frames / kCellsPerArc;
  return work;
}

std::vector<Graph> Plan::tape_inputs() const {
  std::vector<Graph> inputs;
  for (const Example& example : examples) inputs.push_back(example.product);
  for (const auto* factors : {&graphs, &emissions})
    inputs.insert(inputs.end(), factors->begin(), factors->end());
  return inputs;
}

const KernelEntry& Plan::choose(const char* op, const Group& group, std::string* reason) const {
  int32_t frames = 0;
  for (size_t i : group.examples) frames = std::max(frames, examples[i].view.frames);
  return choose_kernel(op, {*trellis_graph(group), group.examples.size(), frames}, reason);
}

std::vector<Choice> explain(const std::vector<Graph>& graphs) {
  std::vector<Choice> out(graphs.size());
  const Plan plan("explain", graphs);
  for (size_t i : plan.linear)
    out[i] = {Kernel::frames, "the frames of a dense linear graph are summed one by one"};
  for (size_t i : plan.with_arcs)
    out[i].reason = "it is not the product of a graph with a dense linear graph";
  for (const Plan::Group& group : plan.groups) {
    Choice choice;
    choice.kernel = plan.choose("explain", group, &choice.reason).kernel;
    for (size_t i : group.examples) out[plan.examples[i].position] = choice;
  }
  return out;
}

}  // namespace arcgrad::trellis
