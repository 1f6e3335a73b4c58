#include "arcgrad/autograd/backward.h"

#include <algorithm>
#include <list>
#include <typeinfo>
#include <utility>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/key_index.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"

// The backward pass. The constructor of Walk collects the entries that the roots depend on and
// sorts them by level; an entry is above all entries that made its inputs. It then marks those that
// lead to a target. A run visits the levels from the top. Entries of one level do not depend on
// each other, so their rules run in parallel. A rule adds to the gradients of its inputs; where
// several rules of a level share an input, they run one after the other in a fixed order, so that
// the result does not depend on the threads. Rules that use the thread pool themselves run
// together. For gradients that are differentiated again, run_recorded() calls Rule::record()
// instead, in the same order.

namespace arcgrad {
namespace {

/// A root's seed as weights of the root's dtype.
Weights seed_weights(const char* op, const Graph& root, std::span<const Graph> seeds, size_t i) {
  if (seeds.empty()) {
    Weights ones = Weights::uninitialized(root.num_arcs(), root.dtype());
    dispatch(root.dtype(),
             [&](auto kind) { std::ranges::fill(ones.fill<decltype(kind)>(), decltype(kind){1}); });
    return ones;
  }
  require(seeds[i].num_arcs() == root.num_arcs(), op,
          "a seed gradient needs one weight per arc of its graph, ", root.num_arcs(),
          " in all, but it has ", seeds[i].num_arcs());
  return seeds[i].weights().cast(root.dtype());
}

/// The part of the tape below some roots, and the gradients that flow through it.
class Walk {
 public:
  /// `is_target` tells of which variables the gradient is wanted.
  template <class IsTarget>
  Walk(const char* op, std::span<const Graph> roots, IsTarget is_target) : op_(op), roots_(roots) {
    for_roots([&](size_t i) {
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
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return nodes_[a].entry->level > nodes_[b].entry->level;
    });
    // Mark what must be visited to reach the targets.
    is_target_.resize(vars_.size());
    for (size_t i = 0; i < vars_.size(); ++i)
      if (is_target(*vars_[i])) {
        is_target_[i] = true;
        if (vars_[i]->entry) at(*vars_[i]).keep = true;
      }
    for (auto k = order_.rbegin(); k != order_.rend(); ++k) {
      Node& node = nodes_[*k];
      for (size_t i = 0; i < node.body->inputs.size(); ++i) node.needed |= is_wanted(*node.body, i);
    }
  }

  bool is_empty() const { return vars_.empty(); }
  const std::vector<std::shared_ptr<Var>>& vars() const { return vars_; }

  /// First order: gradients are added into buffers, independent entries in parallel.
  void run(std::span<const Graph> seeds) {
    leaves_.resize(vars_.size());
    for_roots([&](size_t i) {
      const Weights seed = seed_weights(op_, roots_[i], seeds, i);
      const auto var = roots_[i].var();
      if (var && is_wanted(*var)) gradient_of(*var).sum().add(seed);
    });
    for (size_t begin = 0, end; begin < order_.size(); begin = end) {
      const int32_t level = nodes_[order_[begin]].entry->level;
      for (end = begin + 1; end < order_.size() && nodes_[order_[end]].entry->level == level;)
        ++end;
      run_level({order_.data() + begin, end - begin});
    }
  }

  /// Second order: gradients are graphs on the tape, which is asked for even under no_grad.
  void run_recorded(std::span<const Graph> seeds) {
    const GradMode recording(true);
    recorded_leaves_.resize(vars_.size(), nullptr);
    for_roots([&](size_t i) {
      const auto var = roots_[i].var();
      Weights weights = seed_weights(op_, roots_[i], seeds, i);
      if (!var || !is_wanted(*var)) return;
      add_recorded(*var, seeds.empty() ? Graph(roots_[i].topology_ptr(), std::move(weights))
                                       : record_cast(seeds[i], roots_[i].dtype()));
    });
    for (size_t k : order_) {
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

  /// The gradient of a target after a run; no graph if nothing flowed there.
  Graph gradient(const Var& var, const TopologyPtr& topology) {
    if (!is_target(var)) return nullptr;
    if (Graph* recorded = find_recorded(var)) return *recorded;
    Gradient* found = find_gradient(var);
    return found ? Graph(topology, found->sum()) : Graph(nullptr);
  }

  /// The gradient of a source after a first-order run.
  Weights gradient(const std::shared_ptr<const ExternalArray>& source) {
    const Weights& whole = slab(source);
    std::vector<int64_t> done(source->leaves.size());
    for (const auto& var : vars_) {
      if (var->source != source) continue;
      Gradient* found = find_gradient(*var);
      if (!found) continue;
      found->sum();
      done[var->leaf] = source->num_rows(var->leaf);
    }
    for (size_t i = 0; i < done.size(); ++i)
      if (done[i] < source->rows) part(*source, whole, i, done[i], source->rows).sum();
    return whole;
  }

  void free() {
    for (Node& node : nodes_) {
      node.body.reset();
      node.entry->free();
    }
  }

 private:
  struct Node {
    std::shared_ptr<Entry> entry;
    std::shared_ptr<const Body> body;
    bool needed = false, keep = false;
    std::vector<Gradient> sums;   // of the outputs
    std::vector<Weights> deltas;  // the same, complete
    std::vector<Graph> recorded;
  };

  /// Calls `f` with each root; of several, an error names which one.
  template <class F>
  void for_roots(F f) {
    for (size_t i = 0; i < roots_.size(); ++i) try {
        f(i);
      } catch (...) {
        if (roots_.size() > 1) rethrow_for_element(op_, i, roots_.size());
        throw;
      }
  }
  void visit(std::shared_ptr<Var> var) {
    if (!seen_.add(var.get()).second) return;
    if (var->entry && entries_.add(var->entry.get()).second) {
      stack_.push_back(nodes_.size());
      nodes_.push_back({var->entry, var->entry->get(op_), false, false, {}, {}, {}});
    }
    vars_.push_back(std::move(var));
  }

  Node& at(const Var& var) { return nodes_[entries_.find(var.entry.get())]; }

  bool is_target(const Var& var) const {
    const size_t i = seen_.find(&var);
    return i != seen_.kNone && is_target_[i];
  }
  bool is_wanted(const Var& var) {
    if (is_target(var)) return true;
    return var.entry && at(var).needed;
  }
  /// The same for input i of an entry.
  bool is_wanted(const Body& body, size_t i) {
    const auto& input = body.inputs[i];
    if (!input) return false;
    return i < body.num_optional ? is_target(*input) : is_wanted(*input);
  }

  Gradient* find_gradient(const Var& var) {
    if (!var.entry) {
      if (leaves_.empty()) return nullptr;
      Gradient& found = leaves_[seen_.find(&var)];
      return found ? &found : nullptr;
    }
    std::vector<Gradient>& sums = at(var).sums;
    const auto output = static_cast<size_t>(var.output);
    return output < sums.size() && sums[output] ? &sums[output] : nullptr;
  }

  /// The gradient of a variable as far as it is summed.
  Gradient& gradient_of(const Var& var) {
    Gradient* out;
    if (var.entry) {
      Node& node = at(var);
      node.sums.resize(static_cast<size_t>(node.entry->num_outputs));
      out = &node.sums[static_cast<size_t>(var.output)];
    } else {
      out = &leaves_[seen_.find(&var)];
    }
    if (*out) return *out;
    if (var.source) {
      const ExternalArray& source = *var.source;
      *out = part(source, slab(var.source), var.leaf, 0, source.num_rows(var.leaf));
      return *out;
    }
    *out = Gradient(var.num_weights(), var.dtype);
    return *out;
  }

  /// The buffer for the gradients of all leaves of a source.
  const Weights& slab(const std::shared_ptr<const ExternalArray>& source) {
    const auto [i, is_new] = sources_.add(source.get());
    if (is_new) slabs_.emplace_back();
    Weights& out = slabs_[i];
    if (!out) out = Weights::uninitialized(source->size(), source->dtype);
    return out;
  }
  /// Rows of it that belong to one leaf.
  static Gradient part(const ExternalArray& source, const Weights& slab, size_t leaf, int64_t begin,
                       int64_t end) {
    const int64_t offset = source.begin(leaf) + begin * source.row_stride;
    return dispatch(source.dtype, [&](auto kind) {
      using T = decltype(kind);
      T* const data = static_cast<T*>(const_cast<void*>(slab.data())) + offset;
      return Gradient(Weights::borrow(slab.owner(), data,
                                      {end - begin, source.num_cols(leaf), source.row_stride, 1},
                                      source.dtype));
    });
  }

  /// Runs entries of one level, none of which depends on another. An input that several of them
  /// share is summed in their order, so that the result does not depend on the threads.
  void run_level(std::span<const size_t> level) {
    std::vector<size_t> active;
    for (size_t k : level)
      if (nodes_[k].needed && !nodes_[k].sums.empty()) active.push_back(k);
    for (size_t k : active) {
      Node& node = nodes_[k];
      for (Gradient& sum : node.sums) node.deltas.push_back(sum ? sum.sum() : Weights());
      if (!node.keep) node.sums.clear();
    }
    KeyIndex<const void*> used;
    std::vector<size_t> user;  // the first of each
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
    std::vector<std::vector<Gradient*>> own(active.size()), common(active.size());
    std::vector<size_t> alone;
    for (size_t i = 0; i < active.size(); ++i) {
      const Body& body = *nodes_[active[i]].body;
      const bool is_parallel = body.rule->is_parallel();
      if (!is_parallel) alone.push_back(i);
      for (size_t k = 0; k < body.inputs.size(); ++k) {
        Gradient* grad = is_wanted(body, k) ? &gradient_of(*body.inputs[k]) : nullptr;
        const bool is_shared = grad && (is_parallel || is_common(*body.inputs[k]));
        own[i].push_back(is_shared ? nullptr : grad);
        common[i].push_back(is_shared ? grad : nullptr);
      }
    }
    int64_t size = 0;
    for (size_t i : alone)
      for (const Weights& delta : nodes_[active[i]].deltas) size += delta.size();
    const auto add_own = [&](size_t k) {
      const size_t i = alone[k];
      add({&active[i], 1}, {&own[i], 1});
    };
    if (size < thresholds.small_batch)
      serial_for(alone.size(), add_own);
    else
      parallel_for(alone.size(), add_own);
    // An op that uses all threads runs with all others of its kind, in the turn of the first.
    std::vector<bool> done(active.size());
    for (size_t i = 0; i < active.size(); ++i) {
      if (done[i]) continue;
      if (std::ranges::all_of(common[i], [](Gradient* grad) { return grad == nullptr; })) {
        nodes_[active[i]].deltas.clear();
        continue;
      }
      std::vector<size_t> kin = {active[i]};
      std::vector<std::vector<Gradient*>> grads = {std::move(common[i])};
      const Rule& rule = *nodes_[active[i]].body->rule;
      for (size_t j = i + 1; rule.is_parallel() && j < active.size(); ++j) {
        const Rule& other = *nodes_[active[j]].body->rule;
        if (done[j] || typeid(other) != typeid(rule)) continue;
        done[j] = true;
        kin.push_back(active[j]);
        grads.push_back(std::move(common[j]));
      }
      add(kin, grads);
      for (size_t k : kin) nodes_[k].deltas.clear();
    }
  }

  /// Adds what entries of one kind pull back to their gradients, in their order.
  void add(std::span<const size_t> entries, std::span<std::vector<Gradient*>> grads) const {
    std::vector<Rule::Call> calls;
    struct Apart {
      Gradient together;
      Gradient* apart;
    };
    std::list<Apart> moved;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (std::ranges::all_of(grads[i], [](Gradient* grad) { return grad == nullptr; })) continue;
      const Node& node = nodes_[entries[i]];
      const Rule& rule = *node.body->rule;
      for (Gradient*& grad : grads[i]) {
        if (rule.takes_strided() || !grad || grad->layout().is_contiguous()) continue;
        moved.push_back({Gradient(grad->size(), grad->dtype()), grad});
        grad = &moved.back().together;
      }
      calls.push_back({&rule, node.deltas, grads[i]});
    }
    if (calls.empty()) return;
    calls[0].rule->add_together(calls);
    for (Apart& each : moved) each.apart->sum().add(each.together.sum());
  }

  Graph* find_recorded(const Var& var) {
    if (!var.entry) {
      if (recorded_leaves_.empty()) return nullptr;
      Graph& found = recorded_leaves_[seen_.find(&var)];
      return found ? &found : nullptr;
    }
    std::vector<Graph>& recorded = at(var).recorded;
    const auto output = static_cast<size_t>(var.output);
    return output < recorded.size() && recorded[output] ? &recorded[output] : nullptr;
  }

  void add_recorded(const Var& var, const Graph& delta) {
    Graph* sum;
    if (var.entry) {
      Node& node = at(var);
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

  const char* op_;
  std::span<const Graph> roots_;
  std::vector<Node> nodes_;
  std::vector<size_t> stack_, order_;
  KeyIndex<const void*> entries_;  // of the nodes
  KeyIndex<const void*> seen_;     // the variables, and what belongs to each
  std::vector<std::shared_ptr<Var>> vars_;
  std::vector<bool> is_target_;
  std::vector<Gradient> leaves_;
  std::vector<Graph> recorded_leaves_;
  KeyIndex<const void*> sources_;
  std::vector<Weights> slabs_;
};

void check_seeds(const char* op, size_t num_roots, std::span<const Graph> seeds) {
  require(seeds.empty() || seeds.size() == num_roots, op,
          "there must be one seed gradient per graph, ", num_roots, " in all, but there are ",
          seeds.size());
}

}  // namespace

void backward(std::span<const Graph> roots, std::span<const Graph> seeds, bool retain_graph,
              bool create_graph) {
  check_seeds("backward", roots.size(), seeds);
  for (size_t i = 0; i < roots.size(); ++i)
    if (!roots[i].calc_grad())
      throw TapeError(text("backward: graph ", i, " of ", roots.size(),
                           " has no gradient to compute: it was not made from a graph with "
                           "calc_grad, or under no_grad"));
  // What nobody holds any more keeps no gradient, however it was marked.
  Walk walk("backward", roots, [](const Var& var) {
    return var.calc_grad && (!var.entry || (var.retain_grad && !var.state.expired()));
  });
  // A gradient that is stored on top of another one is on the tape if it is asked to be.
  const GradMode recording(create_graph || is_grad_enabled());
  struct Sink {
    std::shared_ptr<GraphState> state;
    const Var* var;
  };
  std::vector<Sink> sinks;
  for (const auto& var : walk.vars()) {
    if (!var->calc_grad || (var->entry && !var->retain_grad)) continue;
    auto state = var->state.lock();
    if (!state) continue;
    if (state->var != var) {
      if (var->entry) continue;
      throw TapeError(
          "backward: the nodes or arcs of a graph were changed after an op used it, so its "
          "gradient has no place; differentiate before editing, or edit a clone");
    }
    sinks.push_back({std::move(state), var.get()});
  }
  if (create_graph)
    walk.run_recorded(seeds);
  else
    walk.run(seeds);
  for (const auto& [state, var] : sinks) {
    const TopologyPtr topology = Graph(state).topology_ptr();
    Graph fresh = walk.gradient(*var, topology);
    if (!fresh) fresh = Graph(topology, Weights::zeros(var->num_weights(), var->dtype));
    std::lock_guard lock(state->mutex);
    if (state->grad) {
      std::vector<Moved> both{{Graph(state->grad), ArcMap::identity()},
                              {fresh, ArcMap::identity()}};
      fresh = record_moves("add", topology, std::move(both));
    }
    state->grad = fresh.state();
  }
  if (!retain_graph && !create_graph) walk.free();
}

std::vector<Graph> grad(std::span<const Graph> outputs, std::span<const Graph> inputs,
                        std::span<const Graph> seeds, bool create_graph) {
  check_seeds("grad", outputs.size(), seeds);
  KeyIndex<const void*> wanted;
  std::vector<std::shared_ptr<Var>> vars;
  for (size_t i = 0; i < inputs.size(); ++i) {
    vars.push_back(inputs[i].var());
    if (!vars.back())
      throw TapeError(
          text("grad: input ", i, " of ", inputs.size(), " has calc_grad switched off"));
    wanted.add(vars.back().get());
  }
  Walk walk("grad", outputs, [&](const Var& var) { return wanted.contains(&var); });
  if (walk.is_empty())
    throw TapeError(
        "grad: no output has a gradient to compute: they were not made from a graph with "
        "calc_grad, or under no_grad");
  // A graph that was edited since has a new place on the tape, and would seem not to matter.
  for (const auto& var : walk.vars()) {
    const auto state = var->entry ? nullptr : var->state.lock();
    if (!state || state->var == var) continue;
    for (const auto& input : vars)
      if (input->state.lock() == state)
        throw TapeError(
            "grad: the nodes or arcs of an input were changed after an op used it, so its gradient "
            "has no place; differentiate before editing, or edit a clone");
  }
  for (const auto& var : vars)
    if (var->deferred && var->deferred->is_bypassed()) throw TapeError(text("grad: ", kBypassed));
  if (create_graph)
    walk.run_recorded(seeds);
  else
    walk.run(seeds);
  std::vector<Graph> grads;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Graph g = walk.gradient(*vars[i], inputs[i].topology_ptr());
    grads.push_back(g ? g
                      : Graph(inputs[i].topology_ptr(),
                              Weights::zeros(inputs[i].num_arcs(), inputs[i].dtype())));
  }
  return grads;
}

std::vector<std::shared_ptr<const ExternalArray>> find_sources(std::span<const Graph> graphs) {
  const Walk walk("find_sources", graphs, [](const Var&) { return false; });
  std::vector<std::shared_ptr<const ExternalArray>> out;
  KeyIndex<const void*> seen;
  for (const auto& var : walk.vars())
    if (var->source && var->calc_grad && seen.add(var->source.get()).second)
      out.push_back(var->source);
  return out;
}

namespace {

/// Tells whether a variable is a leaf of one of some sources.
auto is_leaf_of(std::span<const std::shared_ptr<const ExternalArray>> sources) {
  return [sources](const Var& var) {
    return var.source && std::ranges::find(sources, var.source) != sources.end();
  };
}

}  // namespace

std::vector<Weights> grad(std::span<const Graph> outputs,
                          std::span<const std::shared_ptr<const ExternalArray>> sources,
                          std::span<const Graph> seeds) {
  check_seeds("grad", outputs.size(), seeds);
  Walk walk("grad", outputs, is_leaf_of(sources));
  walk.run(seeds);
  std::vector<Weights> out;
  for (const auto& source : sources) out.push_back(walk.gradient(source));
  return out;
}

std::vector<std::vector<Graph>> record_grad(
    std::span<const Graph> outputs, std::span<const std::shared_ptr<const ExternalArray>> sources,
    std::span<const Graph> seeds) {
  check_seeds("grad", outputs.size(), seeds);
  Walk walk("grad", outputs, is_leaf_of(sources));
  walk.run_recorded(seeds);
  KeyIndex<const void*> index;
  std::vector<std::vector<Graph>> out;
  for (const auto& source : sources) {
    index.add(source.get());
    out.emplace_back(source->leaves.size(), nullptr);
  }
  for (const auto& var : walk.vars())
    if (const size_t found = index.find(var->source.get()); found != index.kNone)
      out[found][var->leaf] = walk.gradient(*var, var->source->leaves[var->leaf]);
  for (size_t k = 0; k < out.size(); ++k)
    for (size_t i = 0; i < out[k].size(); ++i)
      if (const TopologyPtr& topology = sources[k]->leaves[i]; !out[k][i])
        out[k][i] = Graph(topology, Weights::zeros(topology->num_arcs(), sources[k]->dtype));
  return out;
}

std::vector<Graph> hvp(std::span<const Graph> outputs, std::span<const Graph> inputs,
                       std::span<const Graph> vectors) {
  require(vectors.size() == inputs.size(), "hvp", "there must be one vector per input, ",
          inputs.size(), " in all, but there are ", vectors.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    require(vectors[i].num_arcs() == inputs[i].num_arcs(), "hvp", "vector ", i,
            " must have one weight per arc of its input, ", inputs[i].num_arcs(),
            " in all, but it has ", vectors[i].num_arcs());
  const std::vector<Graph> first = grad(outputs, inputs, {}, true);
  // A gradient that does not depend on the weights has no tape; its derivative is zero.
  std::vector<Graph> curved, seeds;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].calc_grad()) {
      curved.push_back(first[i]);
      seeds.push_back(vectors[i].detach());
    }
  if (!curved.empty()) return grad(curved, inputs, seeds);
  std::vector<Graph> zeros;
  for (const Graph& input : inputs)
    zeros.emplace_back(input.topology_ptr(), Weights::zeros(input.num_arcs(), input.dtype()));
  return zeros;
}

}  // namespace arcgrad
