#include <algorithm>
#include <bit>
#include <mutex>
#include <type_traits>
#include <utility>

#include "arcgrad/autograd/tape.h"
#include "arcgrad/runtime/stream_copy.h"

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

/// What is moved into a sum.
struct Term {
  Weights weights;
  ArcMap map;
  double factor;
  /// The entries of the sum that it is part of, if weights are not listed but moved together.
  int64_t begin() const { return -map.shift(); }
  int64_t end() const { return begin() + weights.size(); }
};

struct Terms {
  explicit Terms(std::span<const Moved> inputs) {
    list.reserve(inputs.size());
    int64_t end = 0;
    for (const Moved& input : inputs) {
      list.push_back({input.graph.weights(), input.map, input.factor});
      is_sequence = is_sequence && input.map.is_shift() && list.back().begin() >= end;
      end = list.back().end();
    }
  }
  std::vector<Term> list;
  /// Whether every term begins after the one before it ends, as in a union.
  bool is_sequence = true;
};

/// How a sum is computed. Terms that nobody else can see are computed where they are needed.
struct Plan {
  const Terms* terms;
  std::shared_ptr<const Terms> owner = nullptr;
  std::vector<std::unique_ptr<const Plan>> hidden = {};  // for each term, if there are any
};

/// A sum of moved weights that nobody has looked at yet.
class Sum final : public Formula {
 public:
  Sum(std::span<const Moved> inputs, int64_t size, DType dtype)
      : terms_(std::make_shared<const Terms>(inputs)), size_(size), dtype_(dtype) {
    for (const Term& term : terms_->list) {
      const Sum* sum = of(term.weights);
      depth_ = std::max(depth_, sum ? sum->depth_ + 1 : 1);
      kept_ += sum ? sum->kept_ : bytes(term.weights.size(), term.weights.dtype());
    }
  }
  /// The sum that weights stand for, if nobody has looked at them. There are no other formulas.
  static const Sum* of(const Weights& weights) {
    return static_cast<const Sum*>(weights.formula());
  }
  /// Whether it keeps little memory alive, and depends on few others that nobody has looked at.
  bool is_modest() const { return depth_ <= kMaxLater && kept_ <= 4 * bytes(size_, dtype_); }

 private:
  static int64_t bytes(int64_t size, DType dtype) {
    return size * (dtype == DType::float32 ? 4 : 8);
  }
  std::shared_ptr<const Terms> terms() const {
    std::lock_guard lock(mutex_);
    return terms_;
  }
  static Plan make_plan(std::shared_ptr<const Terms> terms);
  Weights make() const override;
  void forget() const override {
    std::shared_ptr<const Terms> old;
    std::lock_guard lock(mutex_);
    old.swap(terms_);
  }

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Terms> terms_;  // null once they are summed
  int64_t size_;
  DType dtype_;
  int32_t depth_ = 1;
  int64_t kept_ = 0;
};

Plan Sum::make_plan(std::shared_ptr<const Terms> terms) {
  Plan plan{terms.get(), terms};
  for (size_t i = 0; i < terms->list.size(); ++i) {
    const Weights& weights = terms->list[i].weights;
    const Sum* sum = of(weights);
    if (!sum) continue;
    auto inner = weights.is_held_alone() ? sum->terms() : nullptr;
    if (!inner) {
      sum->made();
      continue;
    }
    plan.hidden.resize(terms->list.size());
    plan.hidden[i] = std::make_unique<const Plan>(make_plan(std::move(inner)));
  }
  return plan;
}

/// Sets the entries of a sum from `begin` on.
template <class T>
void write_sum(const Plan& plan, int64_t begin, std::span<T> out);

/// Adds to or sets the entries from `begin` on, which a term is part of.
template <class From, class To>
void add_term(const Term& term, const Plan* hidden, int64_t begin, bool is_first,
              std::span<To> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (!term.map.is_shift()) {
    const From none{0};
    const auto values = term.weights.view<From>();
    const From* from = values.empty() ? &none : values.data();
    const int32_t* arc = term.map.arcs().data() + begin;
    using Bits = std::conditional_t<sizeof(From) == 4, int32_t, int64_t>;
    // An entry is read in any case and then blanked out, since a jump would often be taken by
    // surprise; the compiler would make one again if it saw through this.
    const auto taken = [=](int64_t k) {
      int32_t is_none = arc[k] >> 31;
      asm("" : "+r"(is_none));
      const Bits bits = std::bit_cast<Bits>(from[arc[k] & ~is_none]);
      return std::bit_cast<From>(bits & ~static_cast<Bits>(is_none));
    };
    with_factor<From, To>(term.factor, [&](const auto& scaled) {
      if (is_first)
        for (int64_t k = 0; k < count; ++k) out[k] = To{0} + scaled(taken(k));
      else
        for (int64_t k = 0; k < count; ++k) out[k] += scaled(taken(k));
    });
    return;
  }
  From block[kBlockSize];
  const From* in = block;
  if (hidden)
    write_sum(*hidden, begin - term.begin(), std::span(block, out.size()));
  else
    in = term.weights.view<From>().data() + (begin - term.begin());
  with_factor<From, To>(term.factor, [&](const auto& scaled) {
    // The sum with 0 makes 0 of -0, which a loss of 0 should not be.
    if (is_first) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < count; ++k) out[k] = To{0} + scaled(in[k]);
    } else {
#pragma GCC unroll 4
      for (int64_t k = 0; k < count; ++k) out[k] += scaled(in[k]);
    }
  });
}

template <class T>
void write_sum(const Plan& plan, int64_t begin, std::span<T> out) {
  const std::vector<Term>& terms = plan.terms->list;
  const auto count = static_cast<int64_t>(out.size());
  const auto clear = [&](int64_t from, int64_t to) {
    std::fill(out.begin() + from, out.begin() + to, T{0});
  };
  // The entries that a term is part of.
  const auto covered = [&](const Term& term) -> std::pair<int64_t, int64_t> {
    if (!term.map.is_shift())
      return {0,
              std::clamp(static_cast<int64_t>(term.map.arcs().size()) - begin, int64_t{0}, count)};
    const int64_t from = std::clamp<int64_t>(term.begin() - begin, 0, count);
    return {from, std::clamp(term.end() - begin, from, count)};
  };
  const auto add = [&](size_t i, int64_t from, int64_t to, bool is_first) {
    if (from == to) return;
    const Plan* hidden = plan.hidden.empty() ? nullptr : plan.hidden[i].get();
    dispatch(terms[i].weights.dtype(), [&](auto kind) {
      add_term<decltype(kind)>(
          terms[i], hidden, begin + from, is_first,
          out.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
    });
  };
  if (!plan.terms->is_sequence) {
    for (size_t i = 0; i < terms.size(); ++i) {
      const auto [from, to] = covered(terms[i]);
      add(i, from, to, i == 0);
      if (i > 0) continue;
      clear(0, from);
      clear(to, count);
    }
    return;
  }
  // There may be many terms, so those before `begin` are passed over.
  const auto first = std::ranges::upper_bound(terms, begin, {}, &Term::end);
  int64_t done = 0;
  for (auto i = static_cast<size_t>(first - terms.begin()); i < terms.size(); ++i) {
    const auto [from, to] = covered(terms[i]);
    if (from == count) break;
    clear(done, from);
    add(i, from, to, true);
    done = to;
  }
  clear(done, count);
}

/// Sets all entries of a large sum, if each is an entry of one term times a factor of type T, or 0.
template <class T>
bool copy_terms(const Plan& plan, std::span<T> out) {
  if (out.size_bytes() < kStreamed || !plan.terms->is_sequence || !plan.hidden.empty())
    return false;
  const std::vector<Term>& terms = plan.terms->list;
  const bool is_plain = std::ranges::all_of(terms, [](const Term& term) {
    return static_cast<double>(static_cast<T>(term.factor)) == term.factor &&
           dispatch(term.weights.dtype(),
                    [](auto kind) { return std::is_same_v<decltype(kind), T>; });
  });
  if (!is_plain || (!terms.empty() && terms.back().end() > static_cast<int64_t>(out.size())))
    return false;
  auto done = out.begin();
  for (const Term& term : terms) {
    const std::span<const T> from = term.weights.view<T>();
    std::fill(done, out.begin() + term.begin(), T{0});
    const auto factor = static_cast<T>(term.factor);
    // The sum with 0 makes 0 of -0, which a loss of 0 should not be.
    copy_mapped(from, out.subspan(static_cast<size_t>(term.begin()), from.size()),
                [factor](auto entry) { return T{0} + factor * entry; });
    done = out.begin() + term.end();
  }
  std::fill(done, out.end(), T{0});
  return true;
}

Weights compute_sum(const Plan& plan, int64_t size, DType dtype) {
  Weights out = Weights::uninitialized(size, dtype);
  dispatch(dtype, [&](auto kind) {
    using T = decltype(kind);
    const std::span<T> to = out.fill<T>();
    if (copy_terms(plan, to)) return;
    write_blocks(to, [&](size_t begin, std::span<T> block) {
      write_sum(plan, static_cast<int64_t>(begin), block);
    });
  });
  return out;
}

Weights Sum::make() const { return compute_sum(make_plan(terms()), size_, dtype_); }

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

 private:
  std::vector<Input> inputs_;
};

/// The sum of what the inputs move, to be computed when somebody looks; no weights if it should
/// not wait.
Weights try_later(int64_t size, DType dtype, std::span<const Moved> inputs) {
  // What is borrowed may change before somebody looks.
  const auto can_wait = [](const Moved& input) {
    return input.map.is_shift() && !input.graph.raw_weights().is_borrowed();
  };
  if (!is_for_later(size) || !std::ranges::all_of(inputs, can_wait)) return {};
  auto sum = std::make_shared<const Sum>(inputs, size, dtype);
  if (!sum->is_modest()) {
    for (const Moved& input : inputs) input.graph.raw_weights().data();
    sum = std::make_shared<const Sum>(inputs, size, dtype);
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
  const Terms terms(inputs);
  return compute_sum({&terms}, size, dtype);
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
