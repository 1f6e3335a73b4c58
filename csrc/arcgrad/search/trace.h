#pragma once

// What a search remembers: the lattice of its hypotheses, and the results that are read from it.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/buffer.h"

namespace arcgrad {

/// An edge of the lattice: a hypothesis is extended by a frame.
struct TraceEdge {
  static constexpr int32_t kNoWord = -1;
  uint32_t src;
  int32_t label;
  /// The word that ends here, kUnknownWord or kNoWord.
  int32_t word;
  /// Whether the frame begins a new token.
  bool is_new;
  /// The score of the label; that of the language model, not weighted; that of hotwords; and the
  /// scores of words and silences.
  float acoustic, language, hotword, other;
};

/// The symbol of a token in a history, which differs from those of words.
constexpr int32_t token_symbol(int32_t label) { return -3 - label; }

/// A result of a search.
struct Transcript {
  /// The weighted sum of the scores, and its parts; `language` is not weighted.
  double score = 0.0, acoustic = 0.0, language = 0.0, hotword = 0.0;
  /// Whether the last word is complete.
  bool is_complete = true;
  /// Tokens with their frames [begin, end).
  struct Token {
    int32_t label, begin, end;
  };
  std::vector<Token> tokens;
  /// Words with their tokens [begin, end).
  struct Word {
    int32_t word, begin, end;
    int32_t ended;  // the frame at which the search ended the word
    double confidence;
  };
  std::vector<Word> words;
  /// For partial results: how many words and tokens are final.
  int64_t stable_words = 0, stable_tokens = 0;
};

/// The kept hypotheses of all frames and the edges between them.
class SearchTrace {
 public:
  struct EdgeWeights {
    double language;
    double of(const TraceEdge& e) const {
      return static_cast<double>(e.acoustic) + language * static_cast<double>(e.language) +
             static_cast<double>(e.hotword) + static_cast<double>(e.other);
    }
  };
  /// An accepted end: a last edge without a label, from `edge.src`.
  struct Final {
    TraceEdge edge;
    double score;      // of the best path, or the sum of all
    uint64_t history;  // a hash of its words
    /// Of several ends with the same words, the best one by `rank` gives the score of the end.
    double rank;
    double end_score = 0.0;  // what `score` has, and other ends with the same words may lack
  };
  struct OtherEdge {
    uint32_t dst;
    TraceEdge edge;
  };

  /// Node 0 is the start.
  SearchTrace() { best_.push_back({}); }
  int64_t num_frames() const { return static_cast<int64_t>(first_node_.size()) - 1; }
  uint32_t num_nodes() const { return static_cast<uint32_t>(best_.size()); }

  /// The best edge into a new node.
  uint32_t add_node(const TraceEdge& best) {
    best_.push_back(best);
    return static_cast<uint32_t>(best_.size() - 1);
  }
  const TraceEdge& best_edge(uint32_t node) const { return best_[node]; }
  void add_other(uint32_t dst, const TraceEdge& edge) { others_.push_back({dst, edge}); }
  void end_frame() {
    first_node_.push_back(num_nodes());
    first_other_.push_back(others_.size());
  }

  /// How edges are read as tokens and words.
  struct Reading {
    EdgeWeights weights;
    int32_t blank;
    /// Whether a word that ends with an edge includes the token of that edge.
    bool word_has_token;
    /// Whether a token belongs to no word, by label.
    std::vector<bool> is_separator;
    /// Whether words are compared by their tokens too.
    bool is_open;
    /// The output label of unknown words in graphs.
    int32_t unknown_label;
  };

  /// The result at a final edge, along best edges.
  Transcript follow(const Reading& reading, const Final& end) const;
  /// The best paths with different words, by an A* search with exact scores to the end.
  std::vector<Transcript> best(const Reading& reading, std::span<const Final> ends,
                               int64_t n) const;
  /// The ends with the largest sums over ends with the same history.
  std::vector<Transcript> best_histories(const Reading& reading, std::span<const Final> ends,
                                         int64_t n) const;
  /// Sets the confidence of each word: the probability of the paths that end the same word between
  /// the ends of the words before and after it. Probabilities are proportional to exp(scale *
  /// score).
  void set_confidences(const Reading& reading, std::span<const Final> ends, double scale,
                       std::span<Transcript> results) const;
  /// All edges on paths within the beam. Without `acoustic`, weights lack the scores of the labels.
  Graph graph(const Reading& reading, std::span<const Final> ends, double lattice_beam,
              bool acoustic) const;
  /// The last node that the best paths to all of `nodes` have in common.
  uint32_t common_node(std::span<const uint32_t> nodes) const;
  /// The frame after which a node exists.
  int64_t frame_of(uint32_t node) const;

 private:
  /// An edge of the whole lattice. The last node is the common end.
  struct WeightedEdge {
    uint32_t src, dst;
    int32_t frame;  // the number of frames for edges to the end
    double weight;
    const TraceEdge* edge;
  };
  /// All edges in topological order.
  std::vector<WeightedEdge> edges(const EdgeWeights& weights, std::span<const Final> ends) const;
  static Buffer<double> scores_to_end(std::span<const WeightedEdge> edges, uint32_t num_nodes);
  Transcript read(const Reading& reading, std::span<const TraceEdge> path) const;

  Buffer<TraceEdge> best_;  // the edge into each node
  Buffer<OtherEdge> others_;
  /// Frame t has the nodes [first_node_[t], first_node_[t + 1]) and the other edges alike.
  std::vector<uint32_t> first_node_{1};
  std::vector<size_t> first_other_{0};
};

}  // namespace arcgrad
