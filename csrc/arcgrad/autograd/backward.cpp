// backward(), grad() and hvp(): which variables are the targets, and where their gradients go.

#include "arcgrad/autograd/backward.h"

#include <algorithm>
#include <mutex>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/autograd/walk.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/key_index.h"

namespace arcgrad {
namespace {

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
  // A graph without handles needs no gradient, even if it was marked with retain_grad().
  Walk walk("backward", roots, [](const Var& var) {
    return var.calc_grad && (!var.entry || (var.retain_grad && !var.state.expired()));
  });
  // Adding to a stored gradient is an op too. With create_graph it is recorded.
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
          "backward: graphs must keep their nodes and arcs between an op and its gradient, but one "
          "was changed after an op used it; differentiate before editing, or edit a clone");
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
    // The sum is computed without the lock: a child forked meanwhile would wait for it forever.
    Graph sum = fresh;
    for (std::shared_ptr<GraphState> old;;) {
      {
        std::lock_guard lock(state->mutex);
        if (state->grad == old) {
          state->grad = sum.state();
          break;
        }
        old = state->grad;
      }
      sum = fresh;
      if (!old) continue;
      const Graph before(old), both[] = {before, fresh};
      if (tracks(both)) {
        sum = record_moves("add", topology,
                           {{before, ArcMap::identity()}, {fresh, ArcMap::identity()}});
      } else {
        Weights weights = Weights::zeros(var->num_weights(), var->dtype);
        weights.add(before.weights());
        weights.add(fresh.weights());
        sum = Graph(topology, std::move(weights));
      }
    }
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
  // An input that was edited has a new variable, so its gradient would be zero without this check.
  for (const auto& var : walk.vars()) {
    const auto state = var->entry ? nullptr : var->state.lock();
    if (!state || state->var == var) continue;
    for (const auto& input : vars)
      if (input->state.lock() == state)
        throw TapeError(
            "grad: inputs must keep their nodes and arcs between an op and its gradient, but one "
            "was changed after an op used it; differentiate before editing, or edit a clone");
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
                              Weights::zeros(inputs[i].num_weights(), inputs[i].dtype())));
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

/// Returns a predicate: whether a variable is a leaf of one of `sources`.
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
        out[k][i] = Graph(topology, Weights::zeros(topology->num_weights(), sources[k]->dtype));
  return out;
}

std::vector<Graph> hvp(std::span<const Graph> outputs, std::span<const Graph> inputs,
                       std::span<const Graph> vectors) {
  require(vectors.size() == inputs.size(), "hvp", "there must be one vector per input, ",
          inputs.size(), " in all, but there are ", vectors.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(vectors[i].num_arcs() == inputs[i].num_arcs(), "hvp", "vector ", i,
            " must have one weight per arc of its input, ", inputs[i].num_arcs(),
            " in all, but it has ", vectors[i].num_arcs());
    require(vectors[i].num_weights() == inputs[i].num_weights(), "hvp", "vector ", i,
            " must have the node weights of its input, ",
            inputs[i].num_weights() - inputs[i].num_arcs(), " in all, but it has ",
            vectors[i].num_weights() - vectors[i].num_arcs());
  }
  const std::vector<Graph> first = grad(outputs, inputs, {}, true);
  // A gradient that does not depend on the weights is not on the tape; its derivative is zero.
  std::vector<Graph> recorded, seeds;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].calc_grad()) {
      recorded.push_back(first[i]);
      seeds.push_back(vectors[i].detach());
    }
  if (!recorded.empty()) return grad(recorded, inputs, seeds);
  std::vector<Graph> zeros;
  for (const Graph& input : inputs)
    zeros.emplace_back(input.topology_ptr(), Weights::zeros(input.num_weights(), input.dtype()));
  return zeros;
}

}  // namespace arcgrad
