#include <utility>

#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/encoder.h"
#include "arcgrad/ops/weight_key.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

Encoder::Encoder(bool labels, bool weights) : table_(std::make_shared<Table>()) {
  require(labels || weights, "Encoder", "labels or weights must be encoded, but both are False");
  table_->labels = labels;
  table_->weights = weights;
}

int64_t Encoder::size() const {
  std::lock_guard lock(table_->mutex);
  return std::ssize(table_->entries);
}

Graph encode(const Graph& graph, const Encoder& encoder) {
  constexpr const char* kOp = "encode";
  Encoder::Table& table = encoder.table();
  const Topology& t = graph.topology();
  const auto ilabel = t.ilabel(), olabel = t.olabel();
  const Weights weights = graph.weights();
  Column codes(ilabel.size());
  std::lock_guard lock(table.mutex);
  table.symbols = {joined(kOp, table.symbols.input, t.symbols().input),
                   joined(kOp, table.symbols.output, t.symbols().output)};
  const size_t source = table.sources.size();
  InterruptPoll poll;
  for (int32_t a = 0; a < t.num_arcs(); ++a) {
    poll();
    const int32_t output = table.labels ? olabel[a] : kEpsilon;
    if (!table.weights && ilabel[a] == kEpsilon && output == kEpsilon) {
      codes[a] = kEpsilon;
      continue;
    }
    const Encoder::Table::Key key{ilabel[a], output, table.weights ? weight_key(weights[a]) : 0};
    const auto [at, is_new] =
        table.codes.try_emplace(key, static_cast<int32_t>(table.entries.size()));
    if (is_new) table.entries.push_back({ilabel[a], output, source, a});
    codes[a] = at->second;
  }
  if (table.weights && !table.entries.empty() && table.entries.back().source == source)
    table.sources.push_back(graph.snapshot());
  Arrays arrays;
  arrays.num_nodes = t.num_nodes();
  arrays.start.assign(t.start().begin(), t.start().end());
  arrays.accept.assign(t.accept().begin(), t.accept().end());
  arrays.src.assign(t.src().begin(), t.src().end());
  arrays.dst.assign(t.dst().begin(), t.dst().end());
  if (!table.labels && codes != Column(olabel.begin(), olabel.end()))
    arrays.olabel.assign(olabel.begin(), olabel.end());
  arrays.ilabel = std::move(codes);
  arrays.has_node_weights = t.has_node_weights();
  // Node weights are not encoded.
  const ArcMap map = table.weights
                         ? ArcMap::gather(with_node_weights(Column(t.src().size(), -1), t))
                         : ArcMap::identity();
  if (!table.labels) arrays.symbols.output = t.symbols().output;
  return record_moves(kOp, std::make_shared<Topology>(std::move(arrays)), {{graph, map}});
}

}  // namespace arcgrad
