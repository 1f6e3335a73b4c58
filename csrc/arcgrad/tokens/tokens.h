#pragma once

// Token rules (CTC, ASG and variants) and the graphs that they define.

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

/// A range for a number of frames, both ends included.
struct FrameRange {
  int32_t least = 1, most = kUnlimited;
  bool operator==(const FrameRange&) const = default;
  bool is_limited() const { return most != kUnlimited; }
  bool contains(size_t count) const {
    return count >= static_cast<size_t>(least) && count <= static_cast<size_t>(most);
  }
  /// The number of frames that get their own node in a graph; a self-loop counts the rest.
  int32_t num_counted() const { return is_limited() ? most : least; }
};

/// One token: consumes `frames` frames with its label and emits the label on the first.
Graph token_graph(int32_t label, FrameRange frames = {});
/// The blank: consumes `frames` frames and emits nothing.
Graph blank_graph(int32_t blank = 0, FrameRange frames = {.least = 0});
/// Any sequence of tokens T_i: the closure of their union, or B ((T_1 + ... + T_C) B)* with blank
/// B.
Graph closed_graph(const std::vector<Graph>& token_graphs, const Graph& blank_graph = nullptr);

/// Label sequences, concatenated.
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

/// Whether a blank exists and, if so, is required or optional before, between and after tokens.
enum class Blank : uint8_t { none, forced, optional };

/// The rules by which frames collapse to tokens. Immutable; copies share the token graph.
class Tokens {
 public:
  struct Options {
    Blank blank = Blank::none;
    int32_t blank_label = 0;
    /// Whether equal tokens may follow each other without a blank between them.
    bool allow_repeats = true;
    /// The duration of a token, and exceptions by label.
    FrameRange frames;
    std::map<int32_t, FrameRange> overrides;
    /// The number of blanks between two tokens.
    FrameRange blanks{.least = 0};
    bool operator==(const Options&) const = default;
  };

  /// Labels are 0 to `num_labels` - 1; all labels except the blank are tokens.
  Tokens(int32_t num_labels, Options options);
  static Tokens asg(int32_t num_labels);
  static Tokens ctc(int32_t num_labels, int32_t blank_label = 0);
  static Tokens spike(int32_t num_labels, int32_t blank_label = 0);
  static Tokens limited(int32_t num_labels, FrameRange frames, int32_t blank_label = 0);
  static Tokens spaced(int32_t num_labels, FrameRange blanks, int32_t blank_label = 0);

  int32_t num_labels() const;
  const Options& options() const;
  bool operator==(const Tokens& other) const;

  /// The transducer from frames to tokens, with one path per segmentation.
  Graph graph() const;
  /// Returns the shortest token sequence that the frames collapse to.
  std::vector<int32_t> collapse(std::span<const int32_t> frames) const;
  std::vector<std::vector<int32_t>> collapse(const Sequences& frames) const;

  /// The same rules in the form that graph builders read.
  struct Rules {
    int32_t num_labels = kUnlimited;
    Blank blank = Blank::none;
    int32_t blank_label = 0;
    FrameRange frames;
    std::span<const FrameRange> frames_of_label;  // empty without exceptions
    /// The number of blanks between two tokens, and whether equal tokens need one.
    FrameRange gap{.least = 0};
    bool separates_repeats = false;

    bool has_blank() const { return blank != Blank::none; }
    bool is_token(int32_t label) const {
      return label >= 0 && label < num_labels && !(has_blank() && label == blank_label);
    }
    const FrameRange& duration(int32_t label) const {
      return frames_of_label.empty() ? frames : frames_of_label[static_cast<size_t>(label)];
    }
    /// Describes the valid token labels in error messages.
    std::string describe_tokens() const;
    /// Whether one token may follow the other without a blank.
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
