#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// No upper limit on a number of frames.
inline constexpr int32_t kUnlimited = std::numeric_limits<int32_t>::max();

/// How many frames something lasts.
struct Frames {
  int32_t least = 1, most = kUnlimited;
  bool operator==(const Frames&) const = default;
  bool is_limited() const { return most != kUnlimited; }
  bool contains(size_t count) const {
    return count >= static_cast<size_t>(least) && count <= static_cast<size_t>(most);
  }
  /// How many frames have a node of their own in a graph; for more, the last one has a loop.
  int32_t num_counted() const { return is_limited() ? most : least; }
};

/// One token: consumes `frames` frames with its label and emits it with the first of them.
Graph token_graph(int32_t label, Frames frames = {});
/// The blank: consumes `frames` frames and emits nothing.
Graph blank_graph(int32_t blank = 0, Frames frames = {.least = 0});
/// Any sequence of tokens T_i: the closure of their union, or B (sum of T_i B)* with a blank B.
Graph closed_graph(const std::vector<Graph>& token_graphs, const Graph& blank_graph = nullptr);

/// Sequences of labels, stored one after the other.
struct Sequences {
  Column labels;
  /// Sequence i is at [offset[i], offset[i + 1]) of `labels`.
  std::vector<size_t> offset{0};

  size_t size() const { return offset.size() - 1; }
  std::span<const int32_t> operator[](size_t i) const {
    return std::span(labels).subspan(offset[i], offset[i + 1] - offset[i]);
  }
  void end_sequence() { offset.push_back(labels.size()); }
};

/// Whether there is no blank, or blanks must or may stand before, between and after tokens.
enum class Blank : uint8_t { none, forced, optional };

/// How frames spell tokens. Immutable; copies share the token graph.
class Tokens {
 public:
  struct Options {
    Blank blank = Blank::none;
    int32_t blank_label = 0;
    /// Whether equal tokens may follow one another without a blank between them.
    bool allow_repeats = true;
    /// How long a token lasts, and which tokens last otherwise.
    Frames frames;
    std::map<int32_t, Frames> overrides;
    /// How many blanks stand between two tokens.
    Frames blanks{.least = 0};
    bool operator==(const Options&) const = default;
  };

  /// Labels are below `num_labels`; all but that of the blank are tokens.
  Tokens(int32_t num_labels, Options options);
  static Tokens asg(int32_t num_labels);
  static Tokens ctc(int32_t num_labels, int32_t blank_label = 0);
  static Tokens spike(int32_t num_labels, int32_t blank_label = 0);
  static Tokens limited(int32_t num_labels, Frames frames, int32_t blank_label = 0);
  static Tokens spaced(int32_t num_labels, Frames blanks, int32_t blank_label = 0);

  int32_t num_labels() const;
  const Options& options() const;
  bool operator==(const Tokens& other) const;

  /// The transducer from frames to tokens, with one path for each way to cut frames into tokens.
  Graph graph() const;
  /// The shortest sequence of tokens that the frames spell.
  std::vector<int32_t> collapse(std::span<const int32_t> frames) const;
  std::vector<std::vector<int32_t>> collapse(const Sequences& frames) const;

  /// What builders of graphs need to know.
  struct Rules {
    int32_t num_labels = kUnlimited;
    Blank blank = Blank::none;
    int32_t blank_label = 0;
    Frames frames;
    std::span<const Frames> frames_of_label;  // empty if all tokens are alike
    /// How many blanks stand between two tokens, and whether one must between equal ones.
    Frames gap{.least = 0};
    bool separates_repeats = false;

    bool has_blank() const { return blank != Blank::none; }
    bool is_token(int32_t label) const {
      return label >= 0 && label < num_labels && !(has_blank() && label == blank_label);
    }
    const Frames& duration(int32_t label) const {
      return frames_of_label.empty() ? frames : frames_of_label[static_cast<size_t>(label)];
    }
    /// Which labels are tokens, for messages.
    std::string describe_tokens() const;
    /// Whether the one token may follow the other without a blank.
    bool may_touch(int32_t label, int32_t other) const {
      return gap.least == 0 && !(separates_repeats && label == other);
    }
  };
  const Rules& rules() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace arcgrad
