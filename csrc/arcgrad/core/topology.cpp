// Derives adjacency, label indices and orders from a topology.
//
// order(): if arcs go from lower to higher nodes, the identity; else Kahn's algorithm; and only if
// that finds a cycle, Tarjan's algorithm for strongly connected components.
//
// Invariant: an arc goes from a component to the same or a later one; nodes of a component ascend.
// Cost: O(nodes + arcs), plus sorting within components. No recursion, so long chains are safe.
// References: Kahn, Topological sorting of large networks, 1962; Tarjan, Depth-first search and
// linear graph algorithms, 1972.

#include "arcgrad/core/topology.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {
namespace {

bool contains(std::span<const int32_t> ascending, int32_t value) {
  return std::binary_search(ascending.begin(), ascending.end(), value);
}

/// The arcs grouped by the node `key`; `far` is the other node of each arc.
Adjacency group(int32_t num_nodes, std::span<const int32_t> key, std::span<const int32_t> far) {
  Adjacency out;
  out.offset.assign(static_cast<size_t>(num_nodes) + 1, 0);
  bool sorted = true;
  int32_t last = 0;
  for (int32_t k : key) {
    ++out.offset[k + 1];
    sorted &= k >= last;
    last = k;
  }
  std::partial_sum(out.offset.begin(), out.offset.end(), out.offset.begin());
  if (sorted) {
    out.node = far;
    return out;
  }
  out.arcs.resize(key.size());
  out.own_node.resize(key.size());
  Column next(out.offset.begin(), out.offset.end() - 1);
  InterruptPoll poll;
  for (int32_t a = 0; a < static_cast<int32_t>(key.size()); ++a) {
    poll();
    const int32_t slot = next[key[a]]++;
    out.arcs[slot] = a;
    out.own_node[slot] = far[a];
  }
  out.node = out.own_node;
  return out;
}

LabelIndex sort_by_label(const Adjacency& out, std::span<const int32_t> label) {
  LabelIndex index;
  const size_t count = label.size();
  index.offset = out.offset;
  index.label.resize(count);
  index.arc.resize(count);
  index.dst.resize(count);
  std::vector<std::pair<int32_t, int32_t>> run;  // label, slot
  InterruptPoll poll;
  for (size_t n = 0; n + 1 < out.offset.size(); ++n) {
    const int32_t begin = out.offset[n], end = out.offset[n + 1];
    poll(end - begin);
    run.clear();
    bool sorted = true;
    for (int32_t slot = begin; slot < end; ++slot) {
      run.emplace_back(label[out.arc(slot)], slot);
      sorted &= slot == begin || run[run.size() - 2].first <= run.back().first;
    }
    if (!sorted) interruptible_sort(run);
    for (int32_t k = begin; k < end; ++k) {
      const auto [l, slot] = run[static_cast<size_t>(k - begin)];
      index.label[k] = l;
      index.arc[k] = out.arc(slot);
      index.dst[k] = out.node[slot];
    }
  }
  return index;
}

/// Kahn's algorithm. The result lacks the nodes on and after cycles.
std::vector<int32_t> topological_order(const Adjacency& in, const Adjacency& out) {
  const size_t num_nodes = in.offset.size() - 1;
  std::vector<int32_t> missing(num_nodes), order;
  order.reserve(num_nodes);
  for (size_t n = 0; n < num_nodes; ++n) {
    missing[n] = in.offset[n + 1] - in.offset[n];
    if (missing[n] == 0) order.push_back(static_cast<int32_t>(n));
  }
  InterruptPoll poll;
  for (size_t head = 0; head < order.size(); ++head) {
    const int32_t n = order[head];
    poll(1 + out.offset[n + 1] - out.offset[n]);
    for (int32_t slot = out.offset[n]; slot < out.offset[n + 1]; ++slot)
      if (--missing[out.node[slot]] == 0) order.push_back(out.node[slot]);
  }
  return order;
}

/// Tarjan's algorithm without recursion. It finds components in reverse topological order.
Order components(const Adjacency& out) {
  const auto num_nodes = static_cast<int32_t>(out.offset.size() - 1);
  constexpr int32_t kUnseen = -1;
  std::vector<int32_t> index(num_nodes, kUnseen), low(num_nodes), next(num_nodes), open, path;
  std::vector<bool> is_open(num_nodes);
  std::vector<int32_t> nodes, sizes;
  int32_t count = 0;
  auto enter = [&](int32_t n) {
    index[n] = low[n] = count++;
    next[n] = out.offset[n];
    open.push_back(n);
    is_open[n] = true;
    path.push_back(n);
  };
  InterruptPoll poll;
  for (int32_t root = 0; root < num_nodes; ++root) {
    if (index[root] != kUnseen) continue;
    enter(root);
    while (!path.empty()) {
      poll();
      const int32_t n = path.back();
      if (next[n] < out.offset[n + 1]) {
        const int32_t d = out.node[next[n]++];
        if (index[d] == kUnseen)
          enter(d);
        else if (is_open[d])
          low[n] = std::min(low[n], index[d]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[n]);
      if (low[n] != index[n]) continue;
      int32_t size = 0, member;
      do {
        member = open.back();
        open.pop_back();
        is_open[member] = false;
        nodes.push_back(member);
        ++size;
      } while (member != n);
      sizes.push_back(size);
    }
  }
  Order order;
  order.nodes.assign(nodes.rbegin(), nodes.rend());
  order.component.push_back(0);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)
    order.component.push_back(order.component.back() + *size);
  for (size_t c = 0; c + 1 < order.component.size(); ++c)
    std::sort(order.nodes.begin() + order.component[c],
              order.nodes.begin() + order.component[c + 1]);
  return order;
}

int32_t rank(std::span<const int32_t> ascending, int32_t value) {
  return static_cast<int32_t>(std::ranges::lower_bound(ascending, value) - ascending.begin());
}

bool equal_spans(std::span<const int32_t> a, std::span<const int32_t> b) {
  return a.data() == b.data() ? a.size() == b.size() : std::ranges::equal(a, b);
}

}  // namespace

void require_size(std::string_view op, std::string_view what, int64_t count) {
  require(count <= std::numeric_limits<int32_t>::max(), op, "a graph holds at most 2^31 - 1 ", what,
          ", but this one would have ", count);
}

Topology::Topology(Arrays arrays) : arrays_(std::move(arrays)) {}

Topology::Topology(int32_t frames, int32_t labels) : dense_(Dense{frames, labels}) {
  arrays_.start = {0};
  arrays_.accept = {frames};
}

Topology::Topology(std::shared_ptr<const Topology> base, Change change)
    : base_(std::move(base)), change_(change) {
  const SymbolTables& symbols = base_->symbols();
  arrays_.symbols = {symbols.of(change.ilabel), symbols.of(change.olabel)};
  // A base never has a base itself: the two changes are combined.
  if (base_->base_) {
    const Change& first = base_->change_;
    auto side = [&](Side s) { return s == Side::input ? first.ilabel : first.olabel; };
    change_ = {first.is_reversed != change.is_reversed, side(change.ilabel), side(change.olabel)};
    base_ = base_->base_;
  }
  arrays_.num_nodes = base_->num_nodes();
  arrays_.start = base_->arrays_.start;
  arrays_.accept = base_->arrays_.accept;
  arrays_.has_node_weights = base_->has_node_weights();
  if (change_.is_reversed) arrays_.start.swap(arrays_.accept);
}

Topology::Topology(std::shared_ptr<const Topology> base, SymbolTables symbols)
    : Topology(std::move(base), Change{}) {
  if (base_->dense_) {  // has no arrays to share
    dense_ = base_->dense_;
    base_.reset();
  }
  arrays_.symbols = std::move(symbols);
}

bool Topology::is_start(int32_t node) const { return contains(arrays_.start, node); }
bool Topology::is_accept(int32_t node) const { return contains(arrays_.accept, node); }

int32_t Topology::start_weight(int32_t node) const {
  return has_node_weights() ? first_start_weight() + rank(start(), node) : -1;
}
int32_t Topology::accept_weight(int32_t node) const {
  return has_node_weights() ? first_accept_weight() + rank(accept(), node) : -1;
}

const Arrays& Topology::arrays() const {
  if (dense_)
    arrays_once_.call([this] {
      const DeferredInterrupts deferred;
      const auto [frames, labels] = *dense_;
      arrays_.num_nodes = frames + 1;
      for (auto* column : {&arrays_.src, &arrays_.dst, &arrays_.ilabel})
        column->resize(static_cast<size_t>(num_arcs()));
      InterruptPoll poll;
      for (int32_t t = 0, a = 0; t < frames; ++t) {
        poll(labels);
        for (int32_t c = 0; c < labels; ++c, ++a) {
          arrays_.src[a] = t;
          arrays_.dst[a] = t + 1;
          arrays_.ilabel[a] = c;
        }
      }
    });
  if (base_)
    arrays_once_.call([this] {
      const DeferredInterrupts deferred;
      auto copy = [](std::span<const int32_t> from, Column& to) {
        to.assign(from.begin(), from.end());
      };
      copy(src(), arrays_.src);
      copy(dst(), arrays_.dst);
      copy(ilabel(), arrays_.ilabel);
      if (!is_acceptor()) copy(olabel(), arrays_.olabel);
    });
  return arrays_;
}

Topology::Derived& Topology::derived() const {
  derived_once_.call([this] { derived_ = std::make_unique<Derived>(); });
  return *derived_;
}

bool Topology::is_acceptor() const {
  if (base_) return change_.ilabel == change_.olabel || base_->is_acceptor();
  if (dense_ || arrays_.olabel.empty()) return true;
  return derived().is_acceptor.get([this] { return arrays_.ilabel == arrays_.olabel; });
}

bool Topology::has_special_labels(Side side) const {
  if (dense_) return false;
  if (base_)
    return base_->has_special_labels(side == Side::input ? change_.ilabel : change_.olabel);
  if (arrays_.olabel.empty()) side = Side::input;
  return derived().has_special_labels[static_cast<int>(side)].get([&] {
    int32_t found = 0;  // not a bool, so that the loop runs in vectors
    for (const int32_t l : label(side)) found |= static_cast<int32_t>(l < kEpsilon);
    return found != 0;
  });
}

const Adjacency& Topology::in() const {
  if (base_) return change_.is_reversed ? base_->out() : base_->in();
  return derived().in.get([this] { return group(num_nodes(), dst(), src()); });
}

const Adjacency& Topology::out() const {
  if (base_) return change_.is_reversed ? base_->in() : base_->out();
  return derived().out.get([this] { return group(num_nodes(), src(), dst()); });
}

const LabelIndex& Topology::index(Side side) const {
  if (is_acceptor()) side = Side::input;
  if (base_ && !change_.is_reversed)
    return base_->index(side == Side::input ? change_.ilabel : change_.olabel);
  return derived().index[static_cast<int>(side)].get(
      [&] { return sort_by_label(out(), label(side)); });
}

const TopologyPtr& Topology::sorted(Side side) const {
  return derived().sorted[static_cast<int>(side)].get([&]() -> TopologyPtr {
    const LabelIndex& index = this->index(side);
    bool is_sorted = true;
    for (size_t k = 0; k < index.arc.size(); ++k)
      is_sorted &= index.arc[k] == static_cast<int32_t>(k);
    if (is_sorted) return nullptr;
    Arrays out{num_nodes(), arrays_.start, arrays_.accept, {}, {}, {}, {}, arrays_.symbols};
    out.has_node_weights = has_node_weights();
    out.dst.assign(index.dst.begin(), index.dst.end());
    out.src.resize(index.arc.size());
    for (int32_t n = 0; n < num_nodes(); ++n)
      std::fill(&out.src[0] + index.offset[n], &out.src[0] + index.offset[n + 1], n);
    auto take = [&](Side from) {
      if (from == side || is_acceptor()) return Column(index.label.begin(), index.label.end());
      const auto labels = label(from);
      Column column(index.arc.size());
      for (size_t k = 0; k < column.size(); ++k) column[k] = labels[index.arc[k]];
      return column;
    };
    out.ilabel = take(Side::input);
    if (!is_acceptor()) out.olabel = take(Side::output);
    return std::make_shared<Topology>(std::move(out));
  });
}

const Order& Topology::order() const {
  if (base_ && !change_.is_reversed) return base_->order();
  return derived().order.get([this]() -> Order {
    if (dense_) return {};
    bool forward = true;
    const auto from = src(), to = dst();
    for (size_t a = 0; a < from.size(); ++a) forward &= from[a] < to[a];
    if (forward) return {};
    Order order;
    order.nodes = topological_order(in(), out());
    if (order.nodes.size() == static_cast<size_t>(num_nodes())) return order;
    return components(out());
  });
}

const Column& Topology::num_in() const {
  if (base_ && !change_.is_reversed) return base_->num_in();
  return derived().num_in.get([this] {
    Column count(static_cast<size_t>(num_nodes()), 0);
    for (int32_t n : dst()) ++count[n];
    return count;
  });
}

Arrays Topology::release() && {
  arrays();
  dense_.reset();
  base_.reset();
  return std::move(arrays_);
}

const TopologyPtr& scalar_topology() {
  static const TopologyPtr topology =
      std::make_shared<Topology>(Arrays{2, {0}, {1}, {0}, {1}, {kEpsilon}, {}});
  return topology;
}

void require_acyclic(std::string_view op, const Topology& topology) {
  if (topology.is_acyclic()) return;
  const auto refuse = [&](int32_t node) {
    fail(op, "the graph must have no cycle, but node ", node, " lies on one");
  };
  const Order& order = topology.order();
  for (size_t c = 0; c + 1 < order.component.size(); ++c)
    if (order.component[c + 1] - order.component[c] > 1) refuse(order.nodes[order.component[c]]);
  const auto src = topology.src(), dst = topology.dst();
  for (size_t a = 0; a < src.size(); ++a)
    if (src[a] == dst[a]) refuse(src[a]);
}

bool same_structure(const Topology& a, const Topology& b) {
  if (&a == &b) return true;
  if (a.num_nodes() != b.num_nodes() || a.num_arcs() != b.num_arcs() ||
      a.has_node_weights() != b.has_node_weights())
    return false;
  if (a.dense() && b.dense()) return a.dense()->labels == b.dense()->labels;
  // Topologies do not change, so equal ones are compared only once and then marked. A thread that
  // does not get the lock compares them instead of waiting.
  static std::mutex mutex;
  auto &known = a.derived().structure, &other = b.derived().structure;
  if (std::unique_lock lock(mutex, std::try_to_lock); lock && known && known == other) return true;
  const bool is_same = equal_spans(a.start(), b.start()) && equal_spans(a.accept(), b.accept()) &&
                       equal_spans(a.src(), b.src()) && equal_spans(a.dst(), b.dst()) &&
                       equal_spans(a.ilabel(), b.ilabel()) && equal_spans(a.olabel(), b.olabel());
  if (!is_same) return false;
  if (std::unique_lock lock(mutex, std::try_to_lock); lock) {
    if (!known) known = other ? other : std::make_shared<const int>();
    other = known;
  }
  return true;
}

}  // namespace arcgrad
