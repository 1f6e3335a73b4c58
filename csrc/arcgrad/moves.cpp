#include <algorithm>
#include <type_traits>
#include <utility>

#include "arcgrad/later.h"
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

class Sum;

/// What is moved into a sum.
struct Term {
  Weights weights;
  ArcMap map;
  double factor;
  /// The sum that the weights stand for, if it is computed where it is needed.
  const Sum* hidden = nullptr;
};

/// Sets the entries of a sum from `begin` on.
template <class T>
void write_sum(std::span<const Term> terms, int64_t begin, std::span<T> out);

/// Sets all entries of a large sum, if each is an entry of one term times a factor of type T, or 0.
template <class T>
bool copy_terms(std::span<const Term> terms, std::span<T> out) {
  if (out.size_bytes() < kStreamed) return false;
  int64_t end = 0;
  for (const Term& term : terms) {
    const int64_t begin = -term.map.shift();
    const bool is_plain =
        term.map.is_shift() && !term.hidden && begin >= end &&
        static_cast<double>(static_cast<T>(term.factor)) == term.factor &&
        dispatch(term.weights.dtype(), [](auto kind) { return std::is_same_v<decltype(kind), T>; });
    end = begin + term.weights.size();
    if (!is_plain || end > static_cast<int64_t>(out.size())) return false;
  }
  size_t done = 0;
  for (const Term& term : terms) {
    const auto begin = static_cast<size_t>(-term.map.shift());
    const std::span<const T> from = term.weights.view<T>();
    std::ranges::fill(out.subspan(done, begin - done), T{0});
    const auto factor = static_cast<T>(term.factor);
    // The sum with 0 makes 0 of -0, which a loss of 0 should not be.
    copy_mapped(from, out.subspan(begin, from.size()),
                [factor](auto entry) { return T{0} + factor * entry; });
    done = begin + from.size();
  }
  std::ranges::fill(out.subspan(done), T{0});
  return true;
}

Weights compute_sum(std::span<const Term> terms, int64_t size, DType dtype) {
  Weights out = Weights::uninitialized(size, dtype);
  dispatch(dtype, [&](auto kind) {
    using T = decltype(kind);
    const std::span<T> to = out.fill<T>();
    if (copy_terms(terms, to)) return;
    write_blocks(to, [&](size_t begin, std::span<T> block) {
      write_sum(terms, static_cast<int64_t>(begin), block);
    });
  });
  return out;
}

/// A sum of moved weights that nobody has looked at yet.
class Sum final : public Formula {
 public:
  Sum(std::vector<Term> terms, int64_t size, DType dtype)
      : terms_(std::move(terms)), size_(size), dtype_(dtype) {
    for (const Term& term : terms_) {
      const Sum* sum = of(term.weights);
      depth_ = std::max(depth_, sum ? sum->depth_ + 1 : 1);
      kept_ += sum ? sum->kept_ : bytes(term.weights.size(), term.weights.dtype());
    }
  }
  /// The sum that weights stand for, if nobody has looked at them.
  static const Sum* of(const Weights& weights) {
    return static_cast<const Sum*>(weights.formula());
  }

  /// Whether it keeps little memory alive, and depends on few others that nobody has looked at.
  bool is_modest() const { return depth_ <= kMaxLater && kept_ <= 4 * bytes(size_, dtype_); }
  std::span<const Term> terms() const { return terms_; }

 private:
  static int64_t bytes(int64_t size, DType dtype) {
    return size * (dtype == DType::float32 ? 4 : 8);
  }
  Weights make() const override {
    prepare();
    Weights out = compute_sum(terms_, size_, dtype_);
    terms_.clear();
    return out;
  }
  /// Weights that nobody else can see are not stored, but computed block by block; others are.
  void prepare() const {
    for (Term& term : terms_) {
      const Sum* sum = of(term.weights);
      if (!sum) continue;
      if (term.weights.is_sole() && sum->hide())
        term.hidden = sum;
      else
        sum->made();
    }
  }
  /// Prepares its terms to be used in place of its weights, unless somebody has looked at these.
  bool hide() const {
    std::lock_guard lock(mutex_);
    if (is_made()) return false;
    prepare();
    return true;
  }

  mutable std::vector<Term> terms_;
  int64_t size_;
  DType dtype_;
  int32_t depth_ = 1;
  int64_t kept_ = 0;
};

/// Adds the part of moved weights that falls on output arcs from `begin` on, or sets it.
template <class From, class To>
void move_block(const Term& term, int64_t begin, bool is_first, std::span<To> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (const auto arcs = term.map.arcs(); !arcs.empty()) {
    if (is_first) std::ranges::fill(out, To{0});
    const int32_t* arc = arcs.data() + begin;
    const From* from = term.weights.view<From>().data();
    // The choice of an address needs no jump, which would often be taken by surprise.
    const From none{0};
    with_factor<From, To>(term.factor, [&](const auto& scaled) {
      for (int64_t k = 0; k < count; ++k) out[k] += scaled(*(arc[k] < 0 ? &none : from + arc[k]));
    });
    return;
  }
  const int64_t shift = begin + term.map.shift();
  const int64_t first = std::clamp<int64_t>(-shift, 0, count);
  const int64_t last = std::clamp<int64_t>(term.weights.size() - shift, first, count);
  From block[kBlockSize];
  const From* in = block;
  if (term.hidden && first < last)
    write_sum(term.hidden->terms(), first + shift,
              std::span(block, static_cast<size_t>(last - first)));
  else if (first < last)
    in = term.weights.view<From>().data() + (first + shift);
  To* const to = out.data() + first;
  with_factor<From, To>(term.factor, [&](const auto& scaled) {
    // The sum with 0 makes 0 of -0, which a loss of 0 should not be.
    if (is_first) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < last - first; ++k) to[k] = To{0} + scaled(in[k]);
    } else {
#pragma GCC unroll 4
      for (int64_t k = 0; k < last - first; ++k) to[k] += scaled(in[k]);
    }
  });
  if (!is_first) return;
  std::fill(out.begin(), out.begin() + first, To{0});
  std::fill(out.begin() + last, out.end(), To{0});
}

template <class T>
void write_sum(std::span<const Term> terms, int64_t begin, std::span<T> out) {
  if (terms.empty()) std::ranges::fill(out, T{0});
  for (size_t i = 0; i < terms.size(); ++i)
    dispatch(terms[i].weights.dtype(),
             [&](auto kind) { move_block<decltype(kind)>(terms[i], begin, i == 0, out); });
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

/// The inputs as terms of a sum.
std::vector<Term> terms_of(std::span<const Moved> inputs) {
  std::vector<Term> terms;
  terms.reserve(inputs.size());
  for (const Moved& input : inputs)
    terms.push_back({input.graph.weights(), input.map, input.factor});
  return terms;
}

/// The sum of what the inputs move, to be computed when somebody looks; no weights if it should
/// not wait.
Weights try_later(int64_t size, DType dtype, std::span<const Moved> inputs) {
  // What is borrowed may change before somebody looks.
  const auto can_wait = [](const Moved& input) {
    return input.map.is_shift() && !input.graph.raw_weights().is_borrowed();
  };
  if (!is_for_later(size) || !std::ranges::all_of(inputs, can_wait)) return {};
  auto sum = std::make_shared<const Sum>(terms_of(inputs), size, dtype);
  if (!sum->is_modest()) {
    for (const Moved& input : inputs) input.graph.raw_weights().data();
    sum = std::make_shared<const Sum>(terms_of(inputs), size, dtype);
    if (!sum->is_modest()) return {};
  }
  return Weights::later(std::move(sum), size, dtype);
}

Graph make_moves(const char* op, TopologyPtr topology, DType dtype, std::vector<Moved> inputs,
                 When when = When::now) {
  Weights out;
  if (inputs.size() == 1 && inputs[0].map.is_identity() && inputs[0].factor == 1.0 &&
      inputs[0].graph.num_arcs() == topology->num_arcs())
    out = inputs[0].graph.weights().cast(dtype);  // shared, since weights are never written again
  else if (when == When::at_first_look)
    out = try_later(topology->num_arcs(), dtype, inputs);
  if (!out) out = move_weights(topology->num_arcs(), dtype, inputs);
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
  return compute_sum(terms_of(inputs), size, dtype);
}

std::unique_ptr<Rule> make_moves_rule(std::span<const Moved> inputs) {
  std::vector<MovesRule::Input> saved;
  saved.reserve(inputs.size());
  for (const Moved& input : inputs)
    saved.push_back(
        {input.graph.topology_ptr(), input.graph.dtype(), input.map.transpose(), input.factor});
  return std::make_unique<MovesRule>(std::move(saved));
}

Graph record_moves(const char* op, TopologyPtr topology, std::vector<Moved> inputs, When when) {
  DType dtype = inputs.empty() ? DType::float32 : inputs[0].graph.dtype();
  for (const Moved& input : inputs) dtype = promote(dtype, input.graph.dtype());
  return make_moves(op, std::move(topology), dtype, std::move(inputs), when);
}

Graph record_moves(const char* op, Arrays arrays, std::vector<Moved> inputs) {
  return record_moves(op, std::make_shared<Topology>(std::move(arrays)), std::move(inputs));
}

Graph record_cast(const Graph& graph, DType dtype) {
  if (graph.dtype() == dtype) return graph;
  return make_moves("cast", graph.topology_ptr(), dtype, {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
