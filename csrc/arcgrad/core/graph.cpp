// Building, editing and reading graphs, with the checks of arguments.

#include "arcgrad/core/graph.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "arcgrad/core/graph_state.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

void check_node(const char* op, const char* what, int32_t node, int32_t num_nodes) {
  require(node >= 0 && node < num_nodes, op, "the ", what, " node must be one of the ", num_nodes,
          " nodes of the graph, but it is ", node);
}

void check_label(const char* op, const char* what, int32_t label) {
  require(label >= kLeastLabel, op, "the ", what,
          " must be 0 or more, or epsilon (-1), phi (-2) or rho (-3), but it is ", label);
}

void check_arc(const char* op, int32_t arc, int32_t num_arcs) {
  require(arc >= 0 && arc < num_arcs, op, "the arc must be one of the ", num_arcs,
          " arcs of the graph, but it is ", arc);
}

/// Sorts node ids and checks them.
void normalize_nodes(const char* what, Column& nodes, int32_t num_nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (!nodes.empty()) {
    check_node("from_arrays", what, nodes.front(), num_nodes);
    check_node("from_arrays", what, nodes.back(), num_nodes);
  }
}

/// Sorts the weights of nodes, which begin at `first`, by node id.
void sort_node_weights(const char* what, const Column& nodes, int64_t first, Weights& weights) {
  if (std::ranges::is_sorted(nodes, std::less_equal())) return;
  std::vector<std::pair<int32_t, double>> pairs;
  for (const int32_t n : nodes)
    pairs.emplace_back(n, weights[first + static_cast<int64_t>(pairs.size())]);
  std::ranges::sort(pairs, {}, &std::pair<int32_t, double>::first);
  for (size_t i = 0; i < pairs.size(); ++i) {
    require(i == 0 || pairs[i - 1].first != pairs[i].first, "from_arrays", "each ", what,
            " node must have one weight, but node ", pairs[i].first, " is given twice");
    weights.set(first + static_cast<int64_t>(i), pairs[i].second);
  }
}

void check_range(const Column& values, int32_t low, int32_t high, const char* what) {
  int32_t is_bad = 0;  // not a bool, so that the loop is vectorized
  for (int32_t v : values) is_bad |= static_cast<int32_t>(v < low) | static_cast<int32_t>(v > high);
  if (is_bad == 0) [[likely]]
    return;
  const auto bad = std::ranges::find_if(values, [&](int32_t v) { return v < low || v > high; });
  fail("from_arrays", what, " must be between ", low, " and ", high, ", but arc ",
       bad - values.begin(), " has ", *bad);
}

std::shared_ptr<GraphState> make_state(TopologyPtr topology, Weights weights, bool calc_grad) {
  auto state = std::make_shared<GraphState>();
  state->topology = std::move(topology);
  state->weights = std::move(weights);
  state->calc_grad = calc_grad;
  return state;
}

/// Makes room for one more entry.
void make_room(Column& column) {
  constexpr size_t kLeast = 16;
  if (column.size() == column.capacity()) column.reserve(std::max(kLeast, 2 * column.size()));
}

}  // namespace

Graph::Graph(bool calc_grad, DType dtype)
    : Graph(std::make_shared<Topology>(Arrays{}), Weights::zeros(0, dtype), calc_grad) {}

Graph::Graph(TopologyPtr topology, Weights weights, bool calc_grad)
    : state_(make_state(std::move(topology), std::move(weights), calc_grad)) {}

Graph Graph::from_arrays(Arrays arrays, Weights weights, bool calc_grad) {
  const size_t count = arrays.src.size();
  const auto num_node_weights =
      arrays.has_node_weights ? std::ssize(arrays.start) + std::ssize(arrays.accept) : 0;
  const int64_t num_weights = static_cast<int64_t>(count) + num_node_weights;
  require_size("from_arrays", num_node_weights > 0 ? "weights" : "arcs", num_weights);
  require(arrays.num_nodes >= 0, "from_arrays", "num_nodes must be 0 or more, but it is ",
          arrays.num_nodes);
  require(arrays.dst.size() == count && arrays.ilabel.size() == count &&
              (arrays.olabel.empty() || arrays.olabel.size() == count) &&
              weights.size() == num_weights,
          "from_arrays", "all arrays must have one entry per arc, but src has ", count, ", dst ",
          arrays.dst.size(), ", ilabel ", arrays.ilabel.size(), ", olabel ",
          arrays.olabel.empty() ? count : arrays.olabel.size(), " and weight ",
          weights.size() - num_node_weights);
  const int32_t last = arrays.num_nodes - 1;
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  check_range(arrays.src, 0, last, "src");
  check_range(arrays.dst, 0, last, "dst");
  check_range(arrays.ilabel, kLeastLabel, kMax, "ilabel");
  check_range(arrays.olabel, kLeastLabel, kMax, "olabel");
  if (arrays.has_node_weights) {
    const auto first = static_cast<int64_t>(count);
    sort_node_weights("start", arrays.start, first, weights);
    sort_node_weights("accept", arrays.accept, first + std::ssize(arrays.start), weights);
  }
  normalize_nodes("start", arrays.start, arrays.num_nodes);
  normalize_nodes("accept", arrays.accept, arrays.num_nodes);
  return {std::make_shared<Topology>(std::move(arrays)), std::move(weights), calc_grad};
}

void Graph::leave_snapshot() {
  if (!state_->is_snapshot) return;
  Graph out(state_->topology, state_->all_weights(), state_->calc_grad);
  out.state_->deferred = state_->deferred;
  out.state_->var = state_->var;
  out.state_->grad = state_->grad;
  state_ = std::move(out.state_);
}

void Graph::materialize() {
  leave_snapshot();
  GraphState& state = *state_;
  if (!state.deferred) return;
  const Deferred::Built& built = state.deferred->built();
  state.topology = built.topology;
  state.weights = built.weights;
  state.deferred.reset();
}

Arrays& Graph::edit() {
  materialize();
  GraphState& state = *state_;
  // The only owner of a topology may change it in place, unless values were derived from it.
  auto& own = const_cast<Topology&>(*state.topology);
  const bool alone = is_sole(state.topology);
  if (!alone)
    state.topology = std::make_shared<Topology>(Arrays(state.topology->arrays()));
  else if (!own.is_pristine())
    state.topology = std::make_shared<Topology>(std::move(own).release());
  // The edited graph is a new leaf.
  state.var.reset();
  state.grad.reset();
  Arrays& arrays = const_cast<Topology&>(*state.topology).pristine();
  if (arrays.has_node_weights) edit_node_weights(arrays);
  return arrays;
}

NodeWeights& Graph::edit_node_weights(Arrays& arrays) {
  GraphState& state = *state_;
  if (state.node_weights) return *state.node_weights;
  auto own = std::make_unique<NodeWeights>(NodeWeights{start_weights(), accept_weights()});
  state.weights.truncate(std::ssize(arrays.src));
  arrays.has_node_weights = true;
  state.node_weights = std::move(own);
  state.has_own_node_weights = true;
  return *state.node_weights;
}

std::vector<double>* Graph::reserve_end(Arrays& arrays, bool is_start, bool has_weight) {
  if (has_weight) edit_node_weights(arrays);
  Column& nodes = is_start ? arrays.start : arrays.accept;
  make_room(nodes);
  NodeWeights* const own = state_->node_weights.get();
  if (!own) return nullptr;
  std::vector<double>& weights = is_start ? own->start : own->accept;
  weights.reserve(nodes.capacity());
  return &weights;
}

void Graph::insert_end(Arrays& arrays, int32_t node, bool is_start, std::optional<double> weight) {
  std::vector<double>* const weights = reserve_end(arrays, is_start, weight.has_value());
  Column& nodes = is_start ? arrays.start : arrays.accept;
  const auto at = std::ranges::lower_bound(nodes, node);
  const auto k = at - nodes.begin();
  if (at == nodes.end() || *at != node) {
    nodes.insert(at, node);
    if (weights) weights->insert(weights->begin() + k, 0.0);
  }
  if (weight) (*weights)[static_cast<size_t>(k)] = *weight;
}

int32_t Graph::add_node(bool start, bool accept, std::optional<double> start_weight,
                        std::optional<double> accept_weight) {
  require_size("add_node", "nodes", int64_t{num_nodes()} + 1);
  require(start || !start_weight, "add_node",
          "only a start node has a start weight, but start is false");
  require(accept || !accept_weight, "add_node",
          "only an accept node has an accept weight, but accept is false");
  Arrays& arrays = edit();
  // What may fail for lack of memory comes first, so that the graph then stays as it was.
  if (start) reserve_end(arrays, true, start_weight.has_value());
  if (accept) reserve_end(arrays, false, accept_weight.has_value());
  const int32_t node = arrays.num_nodes;
  if (start) insert_end(arrays, node, true, start_weight);
  if (accept) insert_end(arrays, node, false, accept_weight);
  ++arrays.num_nodes;
  return node;
}

int32_t Graph::add_arc(int32_t src, int32_t dst, int32_t label) {
  return add_arc(src, dst, label, label);
}

int32_t Graph::add_arc(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel, double weight) {
  check_node("add_arc", "source", src, num_nodes());
  check_node("add_arc", "destination", dst, num_nodes());
  check_label("add_arc", "input label", ilabel);
  check_label("add_arc", "output label", olabel);
  require_size("add_arc", "arcs", int64_t{num_arcs()} + 1);
  Arrays& arrays = edit();
  // What may fail for lack of memory comes first, so that the graph then stays as it was.
  for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel}) make_room(*column);
  const bool is_transducer = ilabel != olabel || !arrays.olabel.empty();
  Column olabels;
  if (is_transducer && arrays.olabel.empty()) {
    olabels.reserve(arrays.ilabel.capacity());
    olabels = arrays.ilabel;
  } else if (is_transducer) {
    make_room(arrays.olabel);
  }
  state_->weights.append(weight);
  if (is_transducer && arrays.olabel.empty()) arrays.olabel.swap(olabels);
  arrays.src.push_back(src);
  arrays.dst.push_back(dst);
  arrays.ilabel.push_back(ilabel);
  if (is_transducer) arrays.olabel.push_back(olabel);
  return static_cast<int32_t>(arrays.src.size()) - 1;
}

void Graph::make_start(int32_t node, std::optional<double> weight) {
  check_node("make_start", "start", node, num_nodes());
  insert_end(edit(), node, true, weight);
}

void Graph::make_accept(int32_t node, std::optional<double> weight) {
  check_node("make_accept", "accept", node, num_nodes());
  insert_end(edit(), node, false, weight);
}

void Graph::set_symbols(SymbolTables symbols) {
  materialize();
  TopologyPtr& topology = state_->topology;
  // Only the labels have other names, so the place on the tape stays.
  if (is_sole(topology) && topology->is_pristine())
    const_cast<Topology&>(*topology).pristine().symbols = std::move(symbols);
  else
    topology = std::make_shared<Topology>(topology, std::move(symbols));
}

const TopologyPtr& Graph::topology_ptr() const {
  return state_->deferred ? state_->deferred->built().topology : state_->topology;
}
Weights Graph::weights() const { return raw_weights().contiguous(); }
const Weights& Graph::raw_weights() const {
  return state_->deferred ? state_->deferred->built().weights : state_->all_weights();
}
DType Graph::dtype() const {
  return state_->deferred ? state_->deferred->dtype() : state_->all_weights().dtype();
}

std::vector<int32_t> Graph::arcs_of(int32_t node, size_t end) const {
  const Topology& t = topology();
  check_node(end == 0 ? "out_arcs" : "in_arcs", "given", node, t.num_nodes());
  std::vector<int32_t> found;
  // Grouping all arcs by node for each call would be quadratic while arcs are added.
  std::unique_lock lock(state_->mutex, std::defer_lock);
  if (!t.is_pristine() || !lock.try_lock()) {
    const Adjacency& adjacency = end == 0 ? t.out() : t.in();
    for (int32_t k = adjacency.offset[node]; k < adjacency.offset[node + 1]; ++k)
      found.push_back(adjacency.arc(k));
    return found;
  }
  if (!state_->arc_lists) state_->arc_lists = std::make_unique<ArcLists[]>(2);
  ArcLists& lists = state_->arc_lists[end];
  const auto ends = end == 0 ? t.src() : t.dst();
  lists.last.resize(static_cast<size_t>(t.num_nodes()), -1);
  for (auto a = lists.previous.size(); a < ends.size(); ++a)
    lists.previous.push_back(std::exchange(lists.last[ends[a]], static_cast<int32_t>(a)));
  for (int32_t a = lists.last[node]; a >= 0; a = lists.previous[a]) found.push_back(a);
  std::ranges::reverse(found);
  return found;
}

double Graph::weight(int32_t arc) const {
  check_arc("weight", arc, num_arcs());
  return raw_weights()[arc];
}

double Graph::item() const {
  require(num_arcs() == 1, "item", "the graph must have exactly one arc, but it has ", num_arcs());
  return raw_weights()[0];
}

void Graph::set_weights(Weights weights) {
  require(weights.size() == num_arcs(), "set_weights", "the graph needs one weight per arc, ",
          num_arcs(), " in all, but got ", weights.size());
  materialize();
  if (state_->var && (state_->var->entry || state_->var->source)) state_->var.reset();
  if (has_node_weights()) {
    const Weights& old = state_->all_weights();
    for (int64_t k = num_arcs(); k < old.size(); ++k) weights.append(old[k]);
  }
  state_->weights = std::move(weights);
}

void Graph::set_weights(std::span<const double> weights) {
  set_weights(Weights::from(weights, dtype()));
}

void Graph::set_weight(int32_t arc, double weight) {
  check_arc("set_weight", arc, num_arcs());
  replace_weight(arc, weight);
}

void Graph::replace_weight(int32_t index, double weight) {
  materialize();
  if (state_->var && (state_->var->entry || state_->var->source)) state_->var.reset();
  state_->all_weights();
  state_->weights.set(index, weight);
}

void Graph::set_start_weight(int32_t node, double weight) {
  set_end_weight("set_start_weight", node, true, weight);
}
void Graph::set_accept_weight(int32_t node, double weight) {
  set_end_weight("set_accept_weight", node, false, weight);
}

void Graph::set_end_weight(const char* op, int32_t node, bool is_start, double weight) {
  check_node(op, "given", node, num_nodes());
  const Topology& t = topology();
  require(is_start ? t.is_start(node) : t.is_accept(node), op, "the node must be ",
          is_start ? "a start" : "an accept", " node, but node ", node, " is not one; use ",
          is_start ? "make_start" : "make_accept");
  if (t.has_node_weights())
    replace_weight(is_start ? t.start_weight(node) : t.accept_weight(node), weight);
  else
    insert_end(edit(), node, is_start, weight);
}

namespace {

/// `count` weights from `first` on; zeros if the graph has no node weights.
std::vector<double> node_weights(const Graph& graph, int32_t first, size_t count) {
  std::vector<double> out(count);
  if (!graph.has_node_weights()) return out;
  const Weights& all = graph.raw_weights();
  for (size_t k = 0; k < count; ++k) out[k] = all[first + static_cast<int64_t>(k)];
  return out;
}

}  // namespace

bool Graph::has_node_weights() const {
  return state_->deferred ? state_->deferred->has_node_weights()
                          : state_->topology->has_node_weights();
}
std::vector<double> Graph::start_weights() const {
  const Topology& t = topology();
  return node_weights(*this, t.first_start_weight(), t.start().size());
}
std::vector<double> Graph::accept_weights() const {
  const Topology& t = topology();
  return node_weights(*this, t.first_accept_weight(), t.accept().size());
}

std::vector<double> Graph::weights_to_vector() const {
  std::vector<double> out = raw_weights().to_vector();
  out.resize(static_cast<size_t>(num_arcs()));
  return out;
}

bool Graph::calc_grad() const { return state_->calc_grad; }

void Graph::set_calc_grad(bool calc_grad) {
  if (state_->calc_grad == calc_grad) return;
  leave_snapshot();
  GraphState& state = *state_;
  if (calc_grad) materialize();
  state.calc_grad = calc_grad;
  if (state.var && state.var->entry)
    state.var.reset();
  else if (state.var)
    state.var->calc_grad = calc_grad;
  if (!calc_grad) state.grad.reset();
}

Graph Graph::grad() const {
  std::lock_guard lock(state_->mutex);
  if (!state_->calc_grad) throw TapeError("grad: the graph has calc_grad switched off");
  if (!state_->grad)
    throw TapeError(state_->var && state_->var->entry
                        ? "grad: no gradient is kept for a graph that an op made; call "
                          "retain_grad() on it before backward"
                        : "grad: the graph has no gradient yet; call backward first");
  return Graph(state_->grad);
}

bool Graph::is_grad_available() const {
  std::lock_guard lock(state_->mutex);
  return state_->grad != nullptr;
}

void Graph::zero_grad() {
  std::shared_ptr<GraphState> old;
  std::lock_guard lock(state_->mutex);
  old.swap(state_->grad);
}

Graph& Graph::retain_grad() {
  if (!state_->calc_grad) throw TapeError("retain_grad: the graph has calc_grad switched off");
  if (state_->deferred && state_->deferred->is_bypassed())
    throw TapeError(text("retain_grad: ", kBypassed));
  var()->retain_grad = true;
  return *this;
}

Graph Graph::detach() const {
  Graph out(state_->topology, state_->all_weights(), false);
  out.state_->deferred = state_->deferred;
  return out;
}

std::shared_ptr<Var> Graph::var() const {
  GraphState& state = *state_;
  if (!state.calc_grad) return nullptr;
  state.all_weights();
  std::lock_guard lock(state.mutex);
  if (!state.var) {
    state.var = std::make_shared<Var>();
    state.var->size = state.weights.size();
    state.var->dtype = state.weights.dtype();
    state.var->state = state_;
  }
  return state.var;
}

Graph Graph::snapshot() const {
  if (state_->is_snapshot) return *this;
  Graph out(state_->topology, state_->all_weights(), state_->calc_grad);
  out.state_->deferred = state_->deferred;
  out.state_->var = var();
  out.state_->is_snapshot = true;
  return out;
}

bool is_emissions(const Graph& graph) {
  return !graph.state()->deferred && graph.topology().dense().has_value();
}

Graph linear_graph(int32_t frames, int32_t labels, bool calc_grad, DType dtype) {
  require(frames >= 0 && labels >= 0, "linear_graph",
          "the numbers of frames and labels must be 0 or more, but they are ", frames, " and ",
          labels);
  require_size("linear_graph", "nodes", int64_t{frames} + 1);
  require_size("linear_graph", "arcs", int64_t{frames} * labels);
  return {std::make_shared<Topology>(frames, labels),
          Weights::zeros(int64_t{frames} * labels, dtype), calc_grad};
}

Graph scalar_graph(double weight, bool calc_grad, DType dtype) {
  return {scalar_topology(), Weights::scalar(weight, dtype), calc_grad};
}

Graph chain_graph(std::span<const int32_t> ilabels, std::span<const int32_t> olabels,
                  bool calc_grad, DType dtype) {
  require(olabels.empty() || olabels.size() == ilabels.size(), "chain_graph",
          "there must be as many output labels as input labels, but there are ", olabels.size(),
          " and ", ilabels.size());
  require_size("chain_graph", "arcs", static_cast<int64_t>(ilabels.size()));
  for (int32_t label : ilabels) check_label("chain_graph", "input label", label);
  for (int32_t label : olabels) check_label("chain_graph", "output label", label);
  const auto count = static_cast<int32_t>(ilabels.size());
  Arrays arrays;
  arrays.num_nodes = count + 1;
  arrays.start = {0};
  arrays.accept = {count};
  arrays.src.resize(count);
  arrays.dst.resize(count);
  std::iota(arrays.src.begin(), arrays.src.end(), 0);
  std::iota(arrays.dst.begin(), arrays.dst.end(), 1);
  arrays.ilabel.assign(ilabels.begin(), ilabels.end());
  arrays.olabel.assign(olabels.begin(), olabels.end());
  return {std::make_shared<Topology>(std::move(arrays)), Weights::zeros(count, dtype), calc_grad};
}

}  // namespace arcgrad
