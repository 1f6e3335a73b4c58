// Token rules, alignments of targets, and spellings.

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "arcgrad/ops.h"
#include "arcgrad/tokens/alignments.h"
#include "arcgrad/tokens/tokens.h"
#include "arcgrad/tokens/trie.h"
#include "check.h"

using arcgrad::Graph;
using arcgrad::Tokens;

namespace {

using Labels = std::vector<int32_t>;

/// How many sequences of `num_frames` labels an acceptor without ambiguity accepts.
double count(const Graph& graph, int32_t num_frames, int32_t num_labels) {
  Graph emissions = arcgrad::linear_graph(num_frames, num_labels, false, arcgrad::DType::float64);
  return std::exp(arcgrad::forward_score(arcgrad::intersect(graph, emissions)).item());
}

/// The same number, by `collapse`.
double count_by_collapse(const Tokens& tokens, const Labels& target, int32_t num_frames) {
  Labels frames(static_cast<size_t>(num_frames));
  double found = 0.0;
  const auto all = static_cast<int32_t>(std::pow(tokens.num_labels(), num_frames));
  for (int32_t code = 0; code < all; ++code) {
    int32_t rest = code;
    for (int32_t& label : frames) {
      label = rest % tokens.num_labels();
      rest /= tokens.num_labels();
    }
    try {
      found += tokens.collapse(frames) == target;
    } catch (const std::invalid_argument&) {
      // No token sequence has these frames.
    }
  }
  return found;
}

void test_alignments_are_what_collapses_to_the_target() {
  for (const Tokens& tokens : {Tokens::ctc(3), Tokens::asg(3), Tokens::spike(3),
                               Tokens::limited(3, {.least = 1, .most = 2})}) {
    for (const Labels& target : {Labels{1, 2}, Labels{2, 1, 2}, Labels{1}}) {
      const Graph graph = arcgrad::alignment_graph(tokens, target);
      for (int32_t num_frames = 1; num_frames <= 5; ++num_frames)
        CHECK_CLOSE(count(graph, num_frames, 3), count_by_collapse(tokens, target, num_frames),
                    1e-5);
    }
  }
}

void test_equal_tokens_need_a_blank_between_them() {
  // 1-1 is the only way to spell 1 1 in 3 frames, where tokens last at most 2 frames.
  Tokens::Options options;
  options.blank = arcgrad::Blank::optional;
  options.allow_repeats = false;
  options.frames.most = 2;
  const Tokens tokens(3, options);
  CHECK_CLOSE(count(arcgrad::alignment_graph(tokens, Labels{1, 1}), 3, 3), 1.0, 1e-6);
  CHECK(tokens.collapse(Labels{1, 1, 0, 1}) == (Labels{1, 1}));
}

void test_ctc_graph() {
  // a b in 3 frames: aab abb -ab a-b ab-.
  CHECK_CLOSE(count(arcgrad::ctc_graph(Labels{1, 2}), 3, 3), 5.0, 1e-6);
  // Equal labels need a blank between them.
  CHECK_CLOSE(count(arcgrad::ctc_graph(Labels{1, 1}), 3, 3), 1.0, 1e-6);
  CHECK_THROWS(std::invalid_argument, "ctc_graph: ", arcgrad::ctc_graph(Labels{0}));
  arcgrad::Sequences targets;
  for (int32_t label : {1, 2}) {
    targets.labels.push_back(label);
    targets.end_sequence();
  }
  CHECK(arcgrad::ctc_graph(targets).size() == 2);
}

void test_token_graph() {
  const Tokens tokens = Tokens::ctc(3);
  CHECK(tokens.collapse(Labels{0, 1, 1, 0, 1, 2, 0}) == (Labels{1, 1, 2}));
  const Graph frames = arcgrad::chain_graph(Labels{0, 1, 1, 0, 1, 2, 0});
  const Graph found = arcgrad::remove(
      arcgrad::project_output(arcgrad::viterbi_path(arcgrad::compose(frames, tokens.graph()))));
  CHECK(arcgrad::isomorphic(found, arcgrad::chain_graph(Labels{1, 1, 2})));
  CHECK(tokens == Tokens::ctc(3));
  CHECK(!(tokens == Tokens::asg(3)));
  CHECK_THROWS(std::invalid_argument, "Tokens: ", Tokens::ctc(3, 3));
}

void test_trie() {
  // a, ab, b: two spellings of "ab".
  const arcgrad::Trie trie({{0}, {0, 1}, {1}}, {10, 11, 12});
  const Graph graph = trie.decompositions(Labels{0, 1});
  CHECK(graph.num_arcs() == 3);
  CHECK_CLOSE(std::exp(arcgrad::forward_score(graph).item()), 2.0, 1e-6);
  CHECK(trie.decompositions(Labels{2}).num_nodes() == 0);
  const Graph spelled = arcgrad::compose(arcgrad::chain_graph(Labels{0, 1}), trie.graph());
  CHECK_CLOSE(std::exp(arcgrad::forward_score(spelled).item()), 2.0, 1e-6);
}

}  // namespace

int main() {
  test_alignments_are_what_collapses_to_the_target();
  test_equal_tokens_need_a_blank_between_them();
  test_ctc_graph();
  test_token_graph();
  test_trie();
  return failures();
}
