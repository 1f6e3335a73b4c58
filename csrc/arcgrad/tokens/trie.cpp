#include "arcgrad/tokens/trie.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "arcgrad/runtime/error.h"

// The trie is built from sorted spellings, each of which shares its prefix with the one before. The
// children and entries of all nodes are arrays grouped by node.

namespace arcgrad {
namespace {

constexpr const char* kOp = "Trie";

/// Prefix sums of the group sizes: where each group begins in a grouped array.
std::vector<int32_t> offsets(const std::vector<int32_t>& groups, int32_t num_groups) {
  std::vector<int32_t> out(static_cast<size_t>(num_groups) + 1, 0);
  for (int32_t group : groups) ++out[group + 1];
  std::partial_sum(out.begin(), out.end(), out.begin());
  return out;
}

/// A stable argsort.
std::vector<int32_t> sorted_order(const std::vector<int32_t>& keys) {
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return keys[i]; });
  return order;
}

void add_arc(Arrays& arrays, int32_t src, int32_t dst, int32_t ilabel) {
  arrays.src.push_back(src);
  arrays.dst.push_back(dst);
  arrays.ilabel.push_back(ilabel);
}

Graph make_graph(Arrays arrays, bool calc_grad, DType dtype) {
  const auto count = static_cast<int64_t>(arrays.src.size());
  return {std::make_shared<Topology>(std::move(arrays)), Weights::zeros(count, dtype), calc_grad};
}

}  // namespace

Trie::Trie(const std::vector<std::vector<int32_t>>& spellings, std::vector<int32_t> labels)
    : labels_(std::move(labels)) {
  require(spellings.size() == labels_.size(), kOp,
          "there must be one label per spelling, but there are ", labels_.size(), " labels and ",
          spellings.size(), " spellings");
  int64_t total = 1;
  for (size_t i = 0; i < spellings.size(); ++i) {
    require(!spellings[i].empty(), kOp, "a spelling must not be empty, but the spelling of entry ",
            i, " is");
    require(labels_[i] >= 0, kOp, "labels must be 0 or more, but the label of entry ", i, " is ",
            labels_[i]);
    for (int32_t label : spellings[i])
      require(label >= 0, kOp, "labels must be 0 or more, but the spelling of entry ", i, " has ",
              label);
    total += static_cast<int64_t>(spellings[i].size());
  }
  require_size(kOp, "nodes", total);

  std::vector<int32_t> order(spellings.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t i, int32_t j) {
    return std::tie(spellings[i], labels_[i]) < std::tie(spellings[j], labels_[j]);
  });
  // The path of the previous spelling; the common prefix with the next one is reused.
  std::vector<int32_t> path{0}, parents, child_labels, ends;
  const std::vector<int32_t>* last = nullptr;
  for (int32_t i : order) {
    const std::vector<int32_t>& spelling = spellings[i];
    size_t common = 0;
    if (last) common = std::ranges::mismatch(*last, spelling).in1 - last->begin();
    path.resize(common + 1);
    for (size_t k = common; k < spelling.size(); ++k) {
      parents.push_back(path.back());
      child_labels.push_back(spelling[k]);
      path.push_back(static_cast<int32_t>(parents.size()));
    }
    ends.push_back(path.back());
    last = &spelling;
  }

  const auto num_nodes = static_cast<int32_t>(parents.size()) + 1;
  child_offset_ = offsets(parents, num_nodes);
  for (int32_t k : sorted_order(parents)) {
    child_label_.push_back(child_labels[k]);
    child_node_.push_back(k + 1);
  }
  entry_offset_ = offsets(ends, num_nodes);
  for (int32_t k : sorted_order(ends)) entries_.push_back(order[k]);
}

int32_t Trie::child(int32_t node, int32_t label) const {
  const auto begin = child_label_.begin() + child_offset_[node];
  const auto end = child_label_.begin() + child_offset_[node + 1];
  const auto found = std::lower_bound(begin, end, label);
  return found != end && *found == label ? child_node_[found - child_label_.begin()] : -1;
}

Graph Trie::graph(bool calc_grad, DType dtype) const {
  Arrays arrays;
  arrays.start = arrays.accept = {0};
  // Inner nodes of the trie become nodes of the graph; a completed entry returns to node 0.
  std::vector<int32_t> node(num_nodes(), 0);
  arrays.num_nodes = 1;
  for (int32_t n = 1; n < num_nodes(); ++n)
    if (child_offset_[n] < child_offset_[n + 1]) node[n] = arrays.num_nodes++;
  for (auto* column : {&arrays.src, &arrays.dst, &arrays.ilabel}) column->resize(labels_.size());
  arrays.olabel.assign(labels_.begin(), labels_.end());
  for (int32_t n = 0; n < num_nodes(); ++n)
    for (int32_t k = child_offset_[n]; k < child_offset_[n + 1]; ++k) {
      const int32_t next = child_node_[k];
      for (int32_t e = entry_offset_[next]; e < entry_offset_[next + 1]; ++e) {
        arrays.src[entries_[e]] = node[n];
        arrays.dst[entries_[e]] = 0;
        arrays.ilabel[entries_[e]] = child_label_[k];
      }
      if (node[next] == 0) continue;
      add_arc(arrays, node[n], node[next], child_label_[k]);
      arrays.olabel.push_back(kEpsilon);
    }
  return make_graph(std::move(arrays), calc_grad, dtype);
}

Graph Trie::decompositions(std::span<const int32_t> sequence, bool calc_grad, DType dtype) const {
  require_size("decompositions", "nodes", static_cast<int64_t>(sequence.size()) + 1);
  const auto length = static_cast<int32_t>(sequence.size());
  struct Match {
    int32_t src, dst, label;
  };
  std::vector<Match> matches;
  std::vector<bool> is_reached(length + 1, false), is_useful(length + 1, false);
  is_reached[0] = true;
  for (int32_t begin = 0; begin < length; ++begin) {
    if (!is_reached[begin]) continue;
    int32_t node = 0;
    for (int32_t end = begin; end < length;) {
      node = child(node, sequence[end++]);
      if (node < 0) break;
      for (int32_t e = entry_offset_[node]; e < entry_offset_[node + 1]; ++e) {
        matches.push_back({begin, end, labels_[entries_[e]]});
        is_reached[end] = true;
      }
    }
  }
  require_size("decompositions", "arcs", static_cast<int64_t>(matches.size()));
  is_useful[length] = is_reached[length];
  for (auto match = matches.rbegin(); match != matches.rend(); ++match)
    if (is_useful[match->dst]) is_useful[match->src] = true;

  Arrays arrays;
  std::vector<int32_t> node(length + 1);
  for (int32_t position = 0; position <= length; ++position)
    if (is_useful[position]) node[position] = arrays.num_nodes++;
  if (is_useful[length]) {
    arrays.start = {0};
    arrays.accept = {arrays.num_nodes - 1};
  }
  for (const Match& match : matches)
    if (is_useful[match.dst]) add_arc(arrays, node[match.src], node[match.dst], match.label);
  return make_graph(std::move(arrays), calc_grad, dtype);
}

}  // namespace arcgrad
