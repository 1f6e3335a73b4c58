#pragma once

// The table of encode and decode.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "arcgrad/ops.h"

namespace arcgrad {

struct Encoder::Table {
  /// What a code stands for. Without labels, `olabel` is epsilon and not used.
  struct Meaning {
    int32_t ilabel, olabel;
    size_t source;  // the graph that had the entry first, and its arc there
    int32_t arc;
  };
  struct Key {
    int32_t ilabel, olabel;
    uint64_t weight;
    auto operator<=>(const Key&) const = default;
  };

  bool labels, weights;
  std::mutex mutex;
  std::vector<Meaning> entries;
  std::map<Key, int32_t> codes;
  SymbolTables symbols;  // of the encoded graphs, which agree
  /// Where decode takes weights from, so that gradients flow to these graphs.
  std::vector<Graph> sources;
};

}  // namespace arcgrad
