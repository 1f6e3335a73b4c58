#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {
namespace {

Column relabelled(const char* side, std::span<const int32_t> labels,
                  const std::optional<NewLabels>& change) {
  Column out(labels.begin(), labels.end());
  if (!change) return out;
  std::unordered_map<int32_t, int32_t> to;
  for (size_t k = 0; k < change->from.size(); ++k) {
    require(change->from[k] >= kEpsilon && change->to[k] >= kEpsilon, "relabel",
            "labels must be 0 or more, or epsilon (-1), but ", change->from[k], " becomes ",
            change->to[k]);
    to[change->from[k]] = change->to[k];
  }
  InterruptPoll poll;
  for (size_t a = 0; a < out.size(); ++a) {
    poll();
    const auto found = to.find(out[a]);
    require(found != to.end() || !change->is_total || out[a] < 0, "relabel",
            "an array of new labels must have an entry for each ", side, " label, but arc ", a,
            " has label ", out[a], " and the array ", change->from.size(), " entries");
    if (found != to.end()) out[a] = found->second;
  }
  return out;
}

}  // namespace

Graph relabel(const Graph& graph, const std::optional<NewLabels>& ilabels,
              const std::optional<NewLabels>& olabels) {
  const Topology& t = graph.topology();
  Arrays arrays;
  arrays.num_nodes = t.num_nodes();
  const auto copy = [](std::span<const int32_t> from, Column& to) {
    to.assign(from.begin(), from.end());
  };
  copy(t.start(), arrays.start);
  copy(t.accept(), arrays.accept);
  copy(t.src(), arrays.src);
  copy(t.dst(), arrays.dst);
  arrays.has_node_weights = t.has_node_weights();
  arrays.ilabel = relabelled("input", t.ilabel(), ilabels);
  arrays.olabel = relabelled("output", t.olabel(), olabels);
  if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  // Symbols name labels, so those of new labels are not known.
  arrays.symbols = t.symbols();
  if (ilabels) arrays.symbols.input = nullptr;
  if (olabels) arrays.symbols.output = nullptr;
  return record_moves("relabel", std::make_shared<const Topology>(std::move(arrays)),
                      {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
