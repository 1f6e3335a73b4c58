// The backward pass over the tape.
//
// The constructor collects the entries that the roots depend on and sorts them by level, then marks
// those that lead to a target. A run visits the levels from the top. A rule adds vector-Jacobian
// products to the gradients of its inputs.
//
// Invariants: an entry has a higher level than all entries that made its inputs, so the entries of
// one level do not depend on each other and run in parallel, and the gradient of an output is
// complete when its entry is visited. Entries of a level that share an input add to its gradient
// one after the other in a fixed order, so the result does not depend on the threads.
//
// Cost: the rules, plus O(n log n) for n entries. Memory: the gradients between entries that were
// visited and entries that were not, and those of targets.
// Reference: Griewank and Walther, Evaluating Derivatives, 2008, chapter 3 (reverse mode).

#include "arcgrad/autograd/walk.h"

#include <algorithm>
#include <list>
#include <typeinfo>
#include <utility>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"

namespace arcgrad {
namespace {

/// The seed gradient of root i in the dtype of the root; by default ones.
Weights seed_weights(const char* op, const Graph& root, std::span<const Graph> seeds, size_t i) {
  if (seeds.empty()) {
    Weights ones = Weights::uninitialized(root.num_weights(), root.dtype());
    dispatch(root.dtype(),
             [&](auto kind) { std::ranges::fill(ones.fill<decltype(kind)>(), decltype(kind){1}); });
    return ones;
  }
  require(seeds[i].num_arcs() == root.num_arcs(), op,
          "a seed gradient needs one weight per arc of its graph, ", root.num_arcs(),
          " in all, but it has ", seeds[i].num_arcs());
  require(seeds[i].num_weights() == root.num_weights(), op,
          "a seed gradient needs the node weights of its graph, ",
          root.num_weights() - root.num_arcs(), " in all, but it has ",
          seeds[i].num_weights() - seeds[i].num_arcs());
  return seeds[i].weights().cast(root.dtype());
}

/// Calls `f` with the number of each root. If there are several, an error names the root.
template <class F>
void for_each_root(const char* op, std::span<const Graph> roots, F f) {
  for (size_t i = 0; i < roots.size(); ++i) try {
      f(i);
    } catch (...) {
      if (roots.size() > 1) rethrow_for_element(op, i, roots.size());
      throw;
    }
}

/// The rows [begin, end) of a leaf in the gradient buffer of its external array.
Gradient leaf_rows(const ExternalArray& source, const Weights& buffer, size_t leaf, int64_t begin,
                   int64_t end) {
  const int64_t offset = source.begin(leaf) + begin * source.row_stride;
  return dispatch(source.dtype, [&](auto kind) {
    using T = decltype(kind);
    T* const data = static_cast<T*>(const_cast<void*>(buffer.data())) + offset;
    return Gradient(Weights::borrow(buffer.owner(), data,
                                    {end - begin, source.num_cols(leaf), source.row_stride, 1},
                                    source.dtype));
  });
}

}  // namespace

Walk::Walk(const char* op, std::span<const Graph> roots, const IsTarget& is_target)
    : op_(op), roots_(roots) {
  for_each_root(op_, roots_, [&](size_t i) {
    if (auto var = roots[i].var()) visit(std::move(var));
  });
  while (!stack_.empty()) {
    const size_t at = stack_.back();
    stack_.pop_back();
    const std::shared_ptr<const Body> body = nodes_[at].body;
    for (size_t i = 0; i < body->inputs.size(); ++i) {
      const auto& input = body->inputs[i];
      if (input && (i >= body->num_optional || is_target(*input))) visit(input);
    }
  }
  order_.resize(nodes_.size());
  for (size_t k = 0; k < order_.size(); ++k) order_[k] = k;
  const auto is_before = [&](size_t a, size_t b) {
    return nodes_[a].entry->level > nodes_[b].entry->level;
  };
  if (!std::ranges::is_sorted(order_, is_before)) std::ranges::stable_sort(order_, is_before);
  // Mark the entries that lead to a target.
  is_target_.resize(vars_.size());
  for (size_t i = 0; i < vars_.size(); ++i)
    if (is_target(*vars_[i])) {
      is_target_[i] = true;
      if (vars_[i]->entry) node_of(*vars_[i]).keep = true;
    }
  for (auto k = order_.rbegin(); k != order_.rend(); ++k) {
    Node& node = nodes_[*k];
    for (size_t i = 0; i < node.body->inputs.size(); ++i) node.needed |= is_wanted(*node.body, i);
  }
}

void Walk::run(std::span<const Graph> seeds) {
  leaves_.resize(vars_.size());
  for_each_root(op_, roots_, [&](size_t i) {
    const Weights seed = seed_weights(op_, roots_[i], seeds, i);
    const auto var = roots_[i].var();
    if (var && is_wanted(*var)) gradient_of(*var).sum().add(seed);
  });
  for (size_t begin = 0, end; begin < order_.size(); begin = end) {
    poll_interrupt();
    const int32_t level = nodes_[order_[begin]].entry->level;
    for (end = begin + 1; end < order_.size() && nodes_[order_[end]].entry->level == level;) ++end;
    run_level({order_.data() + begin, end - begin});
  }
}

void Walk::run_recorded(std::span<const Graph> seeds) {
  const GradMode recording(true);
  recorded_leaves_.resize(vars_.size(), nullptr);
  for_each_root(op_, roots_, [&](size_t i) {
    const auto var = roots_[i].var();
    Weights weights = seed_weights(op_, roots_[i], seeds, i);
    if (!var || !is_wanted(*var)) return;
    add_recorded(*var, seeds.empty() ? Graph(roots_[i].topology_ptr(), std::move(weights))
                                     : record_cast(seeds[i], roots_[i].dtype()));
  });
  for (size_t k : order_) {
    poll_interrupt();
    Node& node = nodes_[k];
    if (!node.needed || node.recorded.empty()) continue;
    node.recorded.resize(node.entry->num_outputs, nullptr);
    std::vector<bool> wanted;
    for (size_t i = 0; i < node.body->inputs.size(); ++i)
      wanted.push_back(is_wanted(*node.body, i));
    const std::vector<Graph> grads = node.body->rule->record(node.recorded, wanted);
    for (size_t i = 0; i < grads.size(); ++i)
      if (wanted[i] && grads[i]) add_recorded(*node.body->inputs[i], grads[i]);
    if (!node.keep) node.recorded.clear();
  }
}

Graph Walk::gradient(const Var& var, const TopologyPtr& topology) {
  if (!is_target(var)) return nullptr;
  if (Graph* recorded = find_recorded(var)) return *recorded;
  Gradient* found = find_gradient(var);
  return found ? Graph(topology, found->sum()) : Graph(nullptr);
}

Weights Walk::gradient(const std::shared_ptr<const ExternalArray>& source) {
  const Weights& whole = buffer_of(source);
  std::vector<int64_t> done(source->leaves.size());
  for (const auto& var : vars_) {
    if (var->source != source) continue;
    Gradient* found = find_gradient(*var);
    if (!found) continue;
    found->sum();
    done[var->leaf] = source->num_rows(var->leaf);
  }
  for (size_t i = 0; i < done.size(); ++i)
    if (done[i] < source->rows) leaf_rows(*source, whole, i, done[i], source->rows).sum();
  return whole;
}

void Walk::free() {
  for (Node& node : nodes_) {
    node.body.reset();
    node.entry->free();
  }
}

void Walk::visit(std::shared_ptr<Var> var) {
  if (!seen_.add(var.get()).second) return;
  if (var->entry && entries_.add(var->entry.get()).second) {
    stack_.push_back(nodes_.size());
    nodes_.push_back({var->entry, var->entry->get(op_), false, false, {}, {}, {}});
  }
  vars_.push_back(std::move(var));
}

bool Walk::is_target(const Var& var) const {
  const size_t i = seen_.find(&var);
  return i != seen_.kNone && is_target_[i];
}

bool Walk::is_wanted(const Var& var) {
  if (is_target(var)) return true;
  return var.entry && node_of(var).needed;
}

bool Walk::is_wanted(const Body& body, size_t i) {
  const auto& input = body.inputs[i];
  if (!input) return false;
  return i < body.num_optional ? is_target(*input) : is_wanted(*input);
}

Gradient* Walk::find_gradient(const Var& var) {
  if (!var.entry) {
    if (leaves_.empty()) return nullptr;
    Gradient& found = leaves_[seen_.find(&var)];
    return found ? &found : nullptr;
  }
  std::vector<Gradient>& sums = node_of(var).sums;
  const auto output = static_cast<size_t>(var.output);
  return output < sums.size() && sums[output] ? &sums[output] : nullptr;
}

Gradient& Walk::gradient_of(const Var& var) {
  Gradient* out;
  if (var.entry) {
    Node& node = node_of(var);
    node.sums.resize(static_cast<size_t>(node.entry->num_outputs));
    out = &node.sums[static_cast<size_t>(var.output)];
  } else {
    out = &leaves_[seen_.find(&var)];
  }
  if (*out) return *out;
  if (var.source) {
    const ExternalArray& source = *var.source;
    *out = leaf_rows(source, buffer_of(var.source), var.leaf, 0, source.num_rows(var.leaf));
    return *out;
  }
  *out = Gradient(var.num_weights(), var.dtype);
  return *out;
}

const Weights& Walk::buffer_of(const std::shared_ptr<const ExternalArray>& source) {
  const auto [i, is_new] = sources_.add(source.get());
  if (is_new) buffers_.emplace_back();
  Weights& out = buffers_[i];
  if (!out) out = Weights::uninitialized(source->size(), source->dtype);
  return out;
}

void Walk::run_entry(size_t entry) {
  Node& node = nodes_[entry];
  if (!node.needed || node.sums.empty()) return;
  for (Gradient& sum : node.sums) node.deltas.push_back(sum ? sum.sum() : Weights());
  if (!node.keep) node.sums.clear();
  std::vector<Gradient*> grads;
  grads.reserve(node.body->inputs.size());
  for (size_t k = 0; k < node.body->inputs.size(); ++k)
    grads.push_back(is_wanted(*node.body, k) ? &gradient_of(*node.body->inputs[k]) : nullptr);
  add({&entry, 1}, {&grads, 1});
  node.deltas.clear();
}

void Walk::run_level(std::span<const size_t> level) {
  if (level.size() == 1) return run_entry(level[0]);
  std::vector<size_t> active;
  for (size_t k : level)
    if (nodes_[k].needed && !nodes_[k].sums.empty()) active.push_back(k);
  for (size_t k : active) {
    Node& node = nodes_[k];
    for (Gradient& sum : node.sums) node.deltas.push_back(sum ? sum.sum() : Weights());
    if (!node.keep) node.sums.clear();
  }
  KeyIndex<const void*> used;
  std::vector<size_t> user;  // the first entry that uses each input
  std::vector<bool> is_shared_input;
  if (active.size() > 1)
    for (size_t i = 0; i < active.size(); ++i)
      for (const auto& input : nodes_[active[i]].body->inputs) {
        if (!input) continue;
        const auto [at, is_new] = used.add(input.get());
        if (is_new) user.push_back(i);
        is_shared_input.resize(user.size());
        if (user[at] != i) is_shared_input[at] = true;
      }
  const auto is_common = [&](const Var& input) {
    const size_t at = used.find(&input);
    return at != used.kNone && is_shared_input[at];
  };
  // For each entry, the gradients that only this entry adds to, and the others, in input order.
  std::vector<std::vector<Gradient*>> own(active.size()), common(active.size());
  std::vector<size_t> independent;  // entries whose rules run on one thread
  for (size_t i = 0; i < active.size(); ++i) {
    const Body& body = *nodes_[active[i]].body;
    const bool is_parallel = body.rule->is_parallel();
    if (!is_parallel) independent.push_back(i);
    for (size_t k = 0; k < body.inputs.size(); ++k) {
      Gradient* grad = is_wanted(body, k) ? &gradient_of(*body.inputs[k]) : nullptr;
      const bool is_shared = grad && (is_parallel || is_common(*body.inputs[k]));
      own[i].push_back(is_shared ? nullptr : grad);
      common[i].push_back(is_shared ? grad : nullptr);
    }
  }
  int64_t size = 0;
  for (size_t i : independent)
    for (const Weights& delta : nodes_[active[i]].deltas) size += delta.size();
  const auto add_own = [&](size_t k) {
    const size_t i = independent[k];
    add({&active[i], 1}, {&own[i], 1});
  };
  if (size < thresholds.small_batch)
    serial_for(independent.size(), add_own);
  else
    parallel_for(independent.size(), add_own);
  // Common gradients, one entry after the other. Rules that use the thread pool themselves have
  // only such gradients, and all rules of one class run together.
  std::vector<bool> done(active.size());
  for (size_t i = 0; i < active.size(); ++i) {
    if (done[i]) continue;
    if (std::ranges::all_of(common[i], [](Gradient* grad) { return grad == nullptr; })) {
      nodes_[active[i]].deltas.clear();
      continue;
    }
    std::vector<size_t> same_class = {active[i]};
    std::vector<std::vector<Gradient*>> grads = {std::move(common[i])};
    const Rule& rule = *nodes_[active[i]].body->rule;
    for (size_t j = i + 1; rule.is_parallel() && j < active.size(); ++j) {
      const Rule& other = *nodes_[active[j]].body->rule;
      if (done[j] || typeid(other) != typeid(rule)) continue;
      done[j] = true;
      same_class.push_back(active[j]);
      grads.push_back(std::move(common[j]));
    }
    add(same_class, grads);
    for (size_t k : same_class) nodes_[k].deltas.clear();
  }
}

void Walk::add(std::span<const size_t> entries, std::span<std::vector<Gradient*>> grads) const {
  std::vector<Rule::Call> calls;
  // A rule that needs contiguous gradients gets a copy in place of a strided one.
  struct Strided {
    Gradient contiguous;
    Gradient* target;
  };
  std::list<Strided> copies;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (std::ranges::all_of(grads[i], [](Gradient* grad) { return grad == nullptr; })) continue;
    const Node& node = nodes_[entries[i]];
    const Rule& rule = *node.body->rule;
    for (Gradient*& grad : grads[i]) {
      if (rule.takes_strided() || !grad || grad->layout().is_contiguous()) continue;
      copies.push_back({Gradient(grad->size(), grad->dtype()), grad});
      grad = &copies.back().contiguous;
    }
    calls.push_back({&rule, node.deltas, grads[i]});
  }
  if (calls.empty()) return;
  calls[0].rule->add_together(calls);
  for (Strided& copy : copies) copy.target->sum().add(copy.contiguous.sum());
}

Graph* Walk::find_recorded(const Var& var) {
  if (!var.entry) {
    if (recorded_leaves_.empty()) return nullptr;
    Graph& found = recorded_leaves_[seen_.find(&var)];
    return found ? &found : nullptr;
  }
  std::vector<Graph>& recorded = node_of(var).recorded;
  const auto output = static_cast<size_t>(var.output);
  return output < recorded.size() && recorded[output] ? &recorded[output] : nullptr;
}

void Walk::add_recorded(const Var& var, const Graph& delta) {
  Graph* sum;
  if (var.entry) {
    Node& node = node_of(var);
    node.recorded.resize(static_cast<size_t>(node.entry->num_outputs), nullptr);
    sum = &node.recorded[static_cast<size_t>(var.output)];
  } else {
    sum = &recorded_leaves_[seen_.find(&var)];
  }
  if (!*sum)
    *sum = delta;
  else
    *sum = record_moves("add", delta.topology_ptr(),
                        {{*sum, ArcMap::identity()}, {delta, ArcMap::identity()}});
}

}  // namespace arcgrad
