#include "arcgrad/gtn/arc_order.h"

namespace arcgrad::gtn {

ArcList::ArcList(const Topology& topology, Side side, const ArcOrder& order) {
  const Column *offset, *arcs;
  if (order.side) {
    const LabelIndex& sorted = topology.index(*order.side);
    offset = &sorted.offset;
    arcs = &sorted.arc;
  } else {
    offset = &topology.out().offset;
    arcs = &topology.out().arcs;
  }
  offset_ = offset->data();
  arcs_ = arcs->empty() ? nullptr : arcs->data();
  dst_ = topology.dst().data();
  const auto label = topology.label(side);
  label_ = label.data();
  has_epsilon_ = std::ranges::find(label, kEpsilon) != label.end();
  int32_t most = 0;
  for (size_t n = 0; n + 1 < offset->size(); ++n)
    most = std::max(most, (*offset)[n + 1] - (*offset)[n]);
  // Arcs with equal labels keep their order in the index, unless another side decides it.
  const bool is_indexed = !order.side || *order.side == side || topology.is_acceptor();
  if (most > kScanned && is_indexed) index_ = &topology.index(side);
}

}  // namespace arcgrad::gtn
