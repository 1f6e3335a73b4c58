#include <algorithm>
#include <utility>

#include "arcgrad/stream.h"
#include "arcgrad/tape.h"

namespace arcgrad {
namespace {

/// Calls `f(scaled)` with the function that multiplies a weight by `factor`.
template <class From, class To, class Use>
void with_factor(double factor, const Use& f) {
  const auto narrow = static_cast<To>(factor);
  if (factor == 1.0)
    f([](From w) { return static_cast<To>(w); });
  else if (sizeof(From) <= sizeof(To) && static_cast<double>(narrow) == factor)
    f([narrow](From w) { return narrow * static_cast<To>(w); });  // rounds as a product in double
  else
    f([factor](From w) { return static_cast<To>(factor * w); });
}

/// Adds the part of moved weights that falls on output arcs from `begin` on, or sets it.
template <class From, class To>
void move_block(std::span<const From> from, const ArcMap& map, int64_t begin, double factor,
                bool is_first, std::span<To> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (!map.arcs().empty()) {
    if (is_first) std::ranges::fill(out, To{0});
    const int32_t* arc = map.arcs().data() + begin;
    // The choice of an address needs no jump, which would often be taken by surprise.
    const From none{0};
    with_factor<From, To>(factor, [&](const auto& scaled) {
      for (int64_t k = 0; k < count; ++k)
        out[k] += scaled(*(arc[k] < 0 ? &none : from.data() + arc[k]));
    });
    return;
  }
  const int64_t shift = begin + map.shift();
  const int64_t first = std::clamp<int64_t>(-shift, 0, count);
  const int64_t last = std::clamp<int64_t>(static_cast<int64_t>(from.size()) - shift, first, count);
  const From* in = from.data() + shift;
  with_factor<From, To>(factor, [&](const auto& scaled) {
    // The sum with 0 makes 0 of -0, which a loss of 0 should not be.
    if (is_first)
      for (int64_t k = first; k < last; ++k) out[k] = To{0} + scaled(in[k]);
    else
      for (int64_t k = first; k < last; ++k) out[k] += scaled(in[k]);
  });
  if (!is_first) return;
  std::fill(out.begin(), out.begin() + first, To{0});
  std::fill(out.begin() + last, out.end(), To{0});
}

template <class From, class To>
void add_scaled(const From* from, To* to, int64_t count, double factor) {
  with_factor<From, To>(factor, [&](const auto& scaled) {
    for (int64_t k = 0; k < count; ++k) to[k] += scaled(from[k]);
  });
}

class MovesRule final : public Rule {
 public:
  struct Input {
    TopologyPtr topology;
    DType dtype;
    ArcMap transpose;
    double factor;
  };
  explicit MovesRule(std::vector<Input> inputs) : inputs_(std::move(inputs)) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (grads[i]) inputs_[i].transpose.apply(deltas[0], *grads[i], inputs_[i].factor);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override;

 private:
  std::vector<Input> inputs_;
};

Graph make_moves(const char* op, TopologyPtr topology, DType dtype, std::vector<Moved> inputs) {
  Weights out;
  if (inputs.size() == 1 && inputs[0].map.is_identity() && inputs[0].factor == 1.0 &&
      inputs[0].graph.num_arcs() == topology->num_arcs()) {
    out = inputs[0].graph.weights().cast(dtype);  // shared, since weights are never written again
  } else {
    out = move_weights(topology->num_arcs(), dtype, inputs);
  }
  std::vector<Graph> graphs;
  graphs.reserve(inputs.size());
  for (const Moved& input : inputs) graphs.push_back(input.graph);
  std::unique_ptr<Rule> rule;
  if (tracks(graphs)) rule = make_moves_rule(inputs);
  return record(op, std::move(topology), std::move(out), graphs, std::move(rule));
}

std::vector<Graph> MovesRule::record(std::span<const Graph> deltas,
                                     const std::vector<bool>& wanted) const {
  std::vector<Graph> grads(inputs_.size(), nullptr);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (wanted[i])
      grads[i] = make_moves(op, inputs_[i].topology, inputs_[i].dtype,
                            {{deltas[0], inputs_[i].transpose, inputs_[i].factor}});
  return grads;
}

}  // namespace

void ArcMap::apply(const Weights& from, Weights& to, double factor) const {
  dispatch(from.dtype(), [&](auto from_kind) {
    dispatch(to.dtype(), [&](auto to_kind) {
      using To = decltype(to_kind);
      const auto* in = from.view<decltype(from_kind)>().data();
      To* out = to.fill<To>().data();
      if (!owner_) {
        if (transposed_)
          add_scaled(in + offset_, out, to.size(), factor);
        else
          add_scaled(in, out + offset_, from.size(), factor);
        return;
      }
      const std::span<const int32_t> arcs = arcs_;
      const size_t count = arcs.size();
      if (transposed_) {
        for (size_t k = 0; k < count; ++k)
          if (arcs[k] >= 0) out[arcs[k]] += static_cast<To>(factor * in[k]);
      } else {
        for (size_t k = 0; k < count; ++k)
          if (arcs[k] >= 0) out[k] += static_cast<To>(factor * in[arcs[k]]);
      }
    });
  });
}

Weights move_weights(int64_t size, DType dtype, std::span<const Moved> inputs) {
  // A scatter reaches every part of the output.
  if (std::ranges::any_of(inputs, [](const Moved& input) { return input.map.is_scatter(); })) {
    Weights out = Weights::zeros(size, dtype);
    for (const Moved& input : inputs) input.map.apply(input.graph.weights(), out, input.factor);
    return out;
  }
  Weights out = Weights::uninitialized(size, dtype);
  std::vector<Weights> weights;
  for (const Moved& input : inputs) weights.push_back(input.graph.weights());
  dispatch(dtype, [&](auto to_kind) {
    using To = decltype(to_kind);
    write_blocks(out.fill<To>(), [&](size_t begin, std::span<To> block) {
      if (inputs.empty()) std::ranges::fill(block, To{0});
      for (size_t i = 0; i < inputs.size(); ++i)
        dispatch(weights[i].dtype(), [&](auto kind) {
          const auto from = weights[i].view<decltype(kind)>();
          move_block(from, inputs[i].map, static_cast<int64_t>(begin), inputs[i].factor, i == 0,
                     block);
        });
    });
  });
  return out;
}

std::unique_ptr<Rule> make_moves_rule(std::span<const Moved> inputs) {
  std::vector<MovesRule::Input> saved;
  saved.reserve(inputs.size());
  for (const Moved& input : inputs)
    saved.push_back(
        {input.graph.topology_ptr(), input.graph.dtype(), input.map.transpose(), input.factor});
  return std::make_unique<MovesRule>(std::move(saved));
}

Graph record_moves(const char* op, TopologyPtr topology, std::vector<Moved> inputs) {
  DType dtype = inputs.empty() ? DType::float32 : inputs[0].graph.dtype();
  for (const Moved& input : inputs) dtype = promote(dtype, input.graph.dtype());
  return make_moves(op, std::move(topology), dtype, std::move(inputs));
}

Graph record_moves(const char* op, Arrays arrays, std::vector<Moved> inputs) {
  return record_moves(op, std::make_shared<Topology>(std::move(arrays)), std::move(inputs));
}

Graph record_cast(const Graph& graph, DType dtype) {
  if (graph.dtype() == dtype) return graph;
  return make_moves("cast", graph.topology_ptr(), dtype, {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
