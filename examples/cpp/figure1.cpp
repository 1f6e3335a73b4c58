// Figure 1 of the paper from C++: the ASG loss of the target "ab" and its gradients, compared with
// values computed by hand.

#include <arcgrad/arcgrad.h>

#include <cmath>
#include <cstdio>
#include <vector>

using arcgrad::Graph;

namespace {

constexpr int kFrames = 3;
constexpr int kA = 0;
constexpr int kB = 1;

/// The alignments of "ab": one or more a, then one or more b.
Graph make_target() {
  Graph target(false);
  target.add_node(true);
  target.add_node();
  target.add_node(false, true);
  target.add_arc(0, 1, kA, kA, 0.0);
  target.add_arc(1, 1, kA, kA, 0.0);
  target.add_arc(1, 2, kB, kB, 0.0);
  target.add_arc(2, 2, kB, kB, 0.0);
  return target;
}

/// The bigram graph of Figure 4a: node 0 is the start, node 1 + c follows token c.
Graph make_transitions() {
  Graph transitions;
  transitions.add_node(true, true);
  transitions.add_node(false, true);
  transitions.add_node(false, true);
  for (int node = 0; node < 3; ++node) {
    for (int token : {kA, kB}) transitions.add_arc(node, 1 + token, token, token, 0.0);
  }
  return transitions;
}

Graph asg_loss(const Graph& emissions, const Graph& transitions, const Graph& target) {
  const Graph constrained = arcgrad::intersect(arcgrad::intersect(target, transitions), emissions);
  const Graph normalizer = arcgrad::intersect(transitions, emissions);
  return arcgrad::negate(
      arcgrad::subtract(arcgrad::forward_score(constrained), arcgrad::forward_score(normalizer)));
}

bool check(const char* what, const std::vector<double>& found,
           const std::vector<double>& expected) {
  bool same = found.size() == expected.size();
  std::printf("%-22s", what);
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::printf(" %7.4f", found[i]);
    same = same && std::abs(found[i] - expected[i]) < 1e-6;
  }
  std::printf("%s\n", same ? "" : "  MISMATCH");
  return same;
}

}  // namespace

int main() {
  Graph emissions = arcgrad::linear_graph(kFrames, 2, true);
  emissions.set_weights(std::vector<double>(kFrames * 2, 0.0));
  Graph transitions = make_transitions();

  const Graph loss = asg_loss(emissions, transitions, make_target());
  emissions.zero_grad();
  transitions.zero_grad();
  arcgrad::backward(loss);

  // All weights are zero: 2 of the 8 paths spell "ab". A gradient is the expected number of uses
  // of the arc over all paths, minus its expected number of uses over the 2 paths.
  bool ok = check("loss", {loss.item()}, {std::log(8.0) - std::log(2.0)});
  ok &= check("emission gradients", emissions.grad().weights_to_vector(),
              {-0.5, 0.5, 0.0, 0.0, 0.5, -0.5});
  ok &= check("transition gradients", transitions.grad().weights_to_vector(),
              {-0.5, 0.5, 0.0, -0.5, 0.5, 0.0});
  return ok ? 0 : 1;
}
