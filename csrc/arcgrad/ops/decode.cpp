#include <utility>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/encoder.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The weight of an arc is its own plus that of the arc that had the code first. Each graph whose
// arcs are used is an input of the op.

namespace arcgrad {

Graph decode(const Graph& graph, const Encoder& encoder) {
  constexpr const char* kOp = "decode";
  Encoder::Table& table = encoder.table();
  const Topology& t = graph.topology();
  const auto codes = t.ilabel(), olabel = t.olabel();
  std::lock_guard lock(table.mutex);
  const auto size = std::ssize(table.entries);
  Arrays arrays;
  arrays.num_nodes = t.num_nodes();
  arrays.start.assign(t.start().begin(), t.start().end());
  arrays.accept.assign(t.accept().begin(), t.accept().end());
  arrays.src.assign(t.src().begin(), t.src().end());
  arrays.dst.assign(t.dst().begin(), t.dst().end());
  std::vector<Column> taken(table.sources.size());
  InterruptPoll poll;
  for (int32_t a = 0; a < t.num_arcs(); ++a) {
    poll();
    require(codes[a] < size, kOp, "labels must be codes of the encoder, which has ", size,
            ", but arc ", a, " has label ", codes[a]);
    require(!table.labels || codes[a] == olabel[a], kOp,
            "both labels of an arc must be the same code, but arc ", a, " has ", codes[a], " and ",
            olabel[a]);
    if (codes[a] == kEpsilon) {
      arrays.ilabel.push_back(kEpsilon);
      arrays.olabel.push_back(olabel[a]);
      continue;
    }
    const Encoder::Table::Meaning& entry = table.entries[codes[a]];
    arrays.ilabel.push_back(entry.ilabel);
    arrays.olabel.push_back(table.labels ? entry.olabel : olabel[a]);
    if (!table.weights) continue;
    taken[entry.source].resize(static_cast<size_t>(a), -1);
    taken[entry.source].push_back(entry.arc);
  }
  if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  arrays.symbols = table.symbols;
  arrays.has_node_weights = t.has_node_weights();
  std::vector<Moved> moved{{graph, ArcMap::identity()}};
  for (size_t i = 0; i < taken.size(); ++i)
    if (!taken[i].empty()) moved.push_back({table.sources[i], ArcMap::gather(std::move(taken[i]))});
  return record_cast(
      record_moves(kOp, std::make_shared<Topology>(std::move(arrays)), std::move(moved)),
      graph.dtype());
}

}  // namespace arcgrad
