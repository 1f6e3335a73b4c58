// Applies arc maps: the loops over weights, and the rule that they share.

#include "arcgrad/autograd/arc_map.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "arcgrad/runtime/interrupt_poll.h"

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

/// Sets the entries of `out` from `begin` to `end`, or adds to them, from one input.
template <class From, class To>
void write_term(const Weights& weights, const ArcMap& map, double factor, bool is_set,
                int64_t begin, int64_t end, To* out) {
  const From zero{0};  // read in place of weights for arcs that take none
  const From* const from = weights.size() > 0 ? weights.view<From>().data() : &zero;
  const auto write = [&](const auto& entry) {
    // Adding 0 turns -0 into 0, so that a loss of 0 is not printed as -0.
    if (is_set) {
#pragma GCC unroll 4
      for (int64_t k = begin; k < end; ++k) out[k] = To{0} + entry(k);
    } else {
#pragma GCC unroll 4
      for (int64_t k = begin; k < end; ++k) out[k] += entry(k);
    }
  };
  with_factor<From, To>(factor, [&](const auto& scaled) {
    if (map.is_shift()) return write([=](int64_t k) { return scaled(from[k + map.shift()]); });
    const int32_t* const arcs = map.arcs().data();
    using Bits = std::conditional_t<sizeof(From) == 4, int32_t, int64_t>;
    // For -1, weight 0 is read and masked to 0, since a branch would often be mispredicted. The
    // empty asm statement prevents the compiler from turning the mask into a branch.
    write([=](int64_t k) {
      int32_t is_none = arcs[k] >> 31;
      asm("" : "+r"(is_none));
      const Bits bits = std::bit_cast<Bits>(from[arcs[k] & ~is_none]);
      return scaled(std::bit_cast<From>(bits & ~static_cast<Bits>(is_none)));
    });
  });
}

/// The sum of the inputs if no map is a scatter. The output is computed in blocks that stay in the
/// cache while the inputs are added. With many inputs, most blocks have terms of only one of them,
/// so one block is used.
template <class To>
void write_sum(std::span<const Moved> inputs, std::span<const Weights> weights, std::span<To> out) {
  constexpr size_t kFewInputs = 4;
  constexpr int64_t kBlock = 2048;
  const auto size = static_cast<int64_t>(out.size());
  const int64_t step = inputs.size() <= kFewInputs ? kBlock : std::max<int64_t>(size, 1);
  InterruptPoll poll;
  for (int64_t first = 0; first < size; first += step) {
    const int64_t last = std::min(first + step, size);
    int64_t done = first;  // entries [first, done) are set
    for (size_t i = 0; i < inputs.size(); ++i) {
      poll(std::min(step, 1 + weights[i].size()));
      const ArcMap& map = inputs[i].map;
      const auto count = map.is_shift() ? weights[i].size() : std::ssize(map.arcs());
      const int64_t shift = map.is_shift() ? map.shift() : 0;
      const int64_t begin = std::clamp(-shift, first, last);
      const int64_t end = std::clamp(count - shift, begin, last);
      if (begin > done) {
        std::fill(out.begin() + done, out.begin() + begin, To{0});
        done = begin;
      }
      dispatch(weights[i].dtype(), [&](auto kind) {
        const auto write = [&](bool is_set, int64_t from, int64_t to) {
          write_term<decltype(kind)>(weights[i], map, inputs[i].factor, is_set, from, to,
                                     out.data());
        };
        const int64_t middle = std::min(end, done);
        if (begin < middle) write(false, begin, middle);
        if (done < end) write(true, done, end);
      });
      done = std::max(done, end);
    }
    std::fill(out.begin() + done, out.begin() + last, To{0});
  }
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

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (grads[i]) inputs_[i].transpose.apply(deltas[0], grads[i]->sum(), inputs_[i].factor);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override;
  void add_sources(size_t input, int32_t arc, std::vector<int32_t>& to) const override {
    const Input& in = inputs_[input];
    const int64_t source = in.transpose.transpose().source(arc, in.topology->num_weights());
    if (source >= 0) to.push_back(static_cast<int32_t>(source));
  }

 private:
  std::vector<Input> inputs_;
};

Graph make_moves(const char* op, TopologyPtr topology, DType dtype, std::vector<Moved> inputs) {
  Weights out;
  if (inputs.size() == 1 && inputs[0].map.is_identity() && inputs[0].factor == 1.0 &&
      inputs[0].graph.num_weights() == topology->num_weights())
    out = inputs[0].graph.weights().cast(dtype);  // shares the buffer if the dtype is the same
  else
    out = move_weights(topology->num_weights(), dtype, inputs);
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
      InterruptPoll poll;
      if (transposed_) {
        for (size_t k = 0; k < count; ++k, poll())
          if (arcs[k] >= 0) out[arcs[k]] += static_cast<To>(factor * in[k]);
      } else {
        for (size_t k = 0; k < count; ++k, poll())
          if (arcs[k] >= 0) out[k] += static_cast<To>(factor * in[arcs[k]]);
      }
    });
  });
}

Weights move_weights(int64_t size, DType dtype, std::span<const Moved> inputs) {
  // A scatter writes at random positions, so the output is not computed in blocks.
  if (std::ranges::any_of(inputs, [](const Moved& input) { return input.map.is_scatter(); })) {
    Weights out = Weights::zeros(size, dtype);
    for (const Moved& input : inputs) input.map.apply(input.graph.weights(), out, input.factor);
    return out;
  }
  std::vector<Weights> weights;
  weights.reserve(inputs.size());
  for (const Moved& input : inputs) weights.push_back(input.graph.weights());
  Weights out = Weights::uninitialized(size, dtype);
  dispatch(dtype, [&](auto kind) { write_sum(inputs, weights, out.fill<decltype(kind)>()); });
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
  if (arrays.symbols.empty())
    for (const Moved& input : inputs) {
      const SymbolTables& symbols = input.graph.topology().symbols();
      if (symbols.empty()) continue;
      arrays.symbols.input = joined(op, arrays.symbols.input, symbols.input);
      arrays.symbols.output = joined(op, arrays.symbols.output, symbols.output);
    }
  return record_moves(op, std::make_shared<Topology>(std::move(arrays)), std::move(inputs));
}

Graph record_cast(const Graph& graph, DType dtype) {
  if (graph.dtype() == dtype) return graph;
  return make_moves("cast", graph.topology_ptr(), dtype, {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
