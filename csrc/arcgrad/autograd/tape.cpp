// Records ops.

#include "arcgrad/autograd/tape.h"

#include <algorithm>
#include <utility>

#include "arcgrad/runtime/grad_mode.h"

namespace arcgrad {

bool tracks(std::span<const Graph> inputs) {
  return is_grad_enabled() &&
         std::ranges::any_of(inputs, [](const Graph& g) { return g.calc_grad(); });
}

void record_entry(const char* op, std::span<const Graph> outputs, std::span<const Graph> inputs,
                  size_t num_optional, std::unique_ptr<Rule> rule) {
  rule->op = op;
  auto body = std::make_shared<Body>();
  auto entry = std::make_shared<Entry>();
  entry->op = op;
  entry->num_outputs = static_cast<int32_t>(outputs.size());
  entry->level = rule->least_level();
  entry->work = rule->is_parallel() ? kParallelWork : 0;
  body->rule = std::move(rule);
  body->num_optional = num_optional;
  body->inputs.reserve(inputs.size());
  for (const Graph& input : inputs) {
    body->inputs.push_back(input.var());
    const auto& var = body->inputs.back();
    if (!var) continue;
    entry->work += var->size;
    if (!var->entry) continue;
    entry->level = std::max(entry->level, var->entry->level + 1);
    // Inputs may share entries, so the work is bounded to keep it from overflowing.
    entry->work = std::min(entry->work + var->entry->work, kParallelWork);
  }
  entry->body = std::move(body);
  for (size_t i = 0; i < outputs.size(); ++i) {
    GraphState& state = *outputs[i].state();
    auto var = std::make_shared<Var>();
    var->entry = entry;
    var->output = static_cast<int32_t>(i);
    var->size = state.weights.size();
    var->deferred = state.deferred;
    var->dtype = outputs[i].dtype();
    var->state = outputs[i].state();
    state.calc_grad = true;
    state.var = std::move(var);
  }
}

Graph record(const char* op, TopologyPtr topology, Weights weights, std::span<const Graph> inputs,
             std::unique_ptr<Rule> rule) {
  Graph out(std::move(topology), std::move(weights), false);
  if (rule && tracks(inputs)) record_entry(op, {&out, 1}, inputs, 0, std::move(rule));
  return out;
}

}  // namespace arcgrad
