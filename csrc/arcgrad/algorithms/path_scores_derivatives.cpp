#include "arcgrad/algorithms/path_scores_derivatives.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

// Passes over the local posteriors p of the arcs; see path_scores.cpp. In a strongly connected
// component, mass and tangents are the solutions of linear systems with the stored LU factors.

namespace arcgrad {
namespace {

/// Prefetch distance in slots.
constexpr int32_t kAhead = 32;

/// The part of beginning at a source in the sum of its node.
double local_posterior(const PathTable& table, const WeightedSource& source) {
  return source.term * table.inverse_sum[source.node];
}

/// Calls `on_node(node)` or `on_component(component)` in the order of the recursion or its reverse.
template <class OnNode, class OnComponent>
void visit(const PathTable& table, bool backwards, OnNode on_node, OnComponent on_component) {
  const int32_t num_nodes = table.topology->num_nodes();
  InterruptPoll poll;
  for (int32_t i = 0; i < num_nodes; ++i) {
    const int32_t n = table.node(backwards ? num_nodes - 1 - i : i);
    poll(1 + table.adjacency->offset[n + 1] - table.adjacency->offset[n]);
    if (const FactoredComponent* component = table.component(n)) {
      on_component(*component);
      i += static_cast<int32_t>(component->nodes.size()) - 1;
    } else {
      on_node(n);
    }
  }
}

}  // namespace

void add_vjp(const PathTable& table, Buffer<double> mass, Weights& grad) {
  const Adjacency& adjacency = *table.adjacency;
  dispatch(grad.dtype(), [&](auto kind) {
    using T = decltype(kind);
    T* out = grad.fill<T>().data();
    // `inside` is the component whose own arcs pass no mass on, since it is solved already.
    auto spread = [&](int32_t d, const FactoredComponent* inside) {
      const double scaled_mass = mass[d] * table.inverse_sum[d];
      if (scaled_mass == 0.0) return;
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        // Nodes are visited backwards, so the data needed soon lies before slot k.
        const int32_t soon = std::max(k - kAhead, 0);
        __builtin_prefetch(&mass[adjacency.node[soon]], 1);
        __builtin_prefetch(&out[adjacency.arc(soon)], 1);
        const double g = scaled_mass * table.term[k];
        const int32_t s = adjacency.node[k];
        if (!inside || table.component(s) != inside) mass[s] += g;
        out[adjacency.arc(k)] += static_cast<T>(g);
      }
    };
    visit(
        table, true, [&](int32_t d) { spread(d, nullptr); },
        [&](const FactoredComponent& component) {
          component.solve_mass(mass);
          for (int32_t d : component.nodes) spread(d, &component);
        });
    for (const WeightedSource& source : table.sources)
      out[source.weight] += static_cast<T>(mass[source.node] * local_posterior(table, source));
  });
}

Buffer<double> jvp(const PathTable& table, const Weights& tangent) {
  const Adjacency& adjacency = *table.adjacency;
  Buffer<double> score_tangent(static_cast<size_t>(table.topology->num_nodes()), 0.0);
  dispatch(tangent.dtype(), [&](auto kind) {
    const auto* arc_tangent = tangent.view<decltype(kind)>().data();
    auto mean = [&](int32_t d, const FactoredComponent* inside) {
      double sum = 0.0;
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        const int32_t s = adjacency.node[k];
        const double before = inside && table.component(s) == inside ? 0.0 : score_tangent[s];
        sum += table.term[k] * (before + arc_tangent[adjacency.arc(k)]);
      }
      if (!table.sources.empty() && table.is_source[d]) {
        const WeightedSource& source = table.sources[table.source_of[d]];
        sum += source.term * arc_tangent[source.weight];
      }
      return sum * table.inverse_sum[d];
    };
    visit(
        table, false, [&](int32_t d) { score_tangent[d] = mean(d, nullptr); },
        [&](const FactoredComponent& component) {
          const std::vector<int32_t>& nodes = component.nodes;
          std::vector<double> x;
          for (size_t i = 0; i < nodes.size(); ++i)
            x.push_back(component.scale[i] * mean(nodes[i], &component));
          component.lu.solve_transposed(x);
          for (size_t i = 0; i < x.size(); ++i) score_tangent[nodes[i]] = x[i] / component.scale[i];
        });
  });
  return score_tangent;
}

void add_vjp_tangent(const PathTable& table, Buffer<double> mass, Buffer<double> mass_tangent,
                     const Weights& tangent, const Buffer<double>& score_tangent, double factor,
                     Weights& grad) {
  const Adjacency& adjacency = *table.adjacency;
  dispatch(tangent.dtype(), [&](auto tangent_kind) {
    dispatch(grad.dtype(), [&](auto kind) {
      using T = decltype(kind);
      const auto* arc_tangent = tangent.view<decltype(tangent_kind)>().data();
      T* out = grad.fill<T>().data();
      // The tangent of the local posterior of slot k of node d, times the mass of d.
      auto change = [&](int32_t d, int32_t k) {
        return mass[d] * table.inverse_sum[d] * table.term[k] *
               (arc_tangent[adjacency.arc(k)] + score_tangent[adjacency.node[k]] -
                score_tangent[d]);
      };
      auto spread = [&](int32_t d, const FactoredComponent* inside) {
        for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
          const double posterior = table.inverse_sum[d] * table.term[k];
          const double g = mass_tangent[d] * posterior + change(d, k);
          const int32_t s = adjacency.node[k];
          if (!inside || table.component(s) != inside) {
            mass[s] += mass[d] * posterior;
            mass_tangent[s] += g;
          }
          out[adjacency.arc(k)] += static_cast<T>(factor * g);
        }
      };
      visit(
          table, true, [&](int32_t d) { spread(d, nullptr); },
          [&](const FactoredComponent& component) {
            component.solve_mass(mass);
            for (int32_t d : component.nodes)
              for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k)
                if (table.component(adjacency.node[k]) == &component)
                  mass_tangent[adjacency.node[k]] += change(d, k);
            component.solve_mass(mass_tangent);
            for (int32_t d : component.nodes) spread(d, &component);
          });
      for (const WeightedSource& source : table.sources) {
        const int32_t d = source.node;
        const double change = mass[d] * (arc_tangent[source.weight] - score_tangent[d]);
        out[source.weight] +=
            static_cast<T>(factor * local_posterior(table, source) * (mass_tangent[d] + change));
      }
    });
  });
}

}  // namespace arcgrad
