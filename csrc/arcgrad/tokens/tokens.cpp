#include "arcgrad/tokens/tokens.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/parallel.h"

// The token graph is a transducer from frame labels to tokens; composed with a target, it accepts
// the alignments of the target (CTC: Graves et al. 2006; ASG: Collobert et al. 2016).

namespace arcgrad {
namespace {

/// "2 to 3", "2 or more" or "2".
std::string describe(FrameRange frames) {
  if (!frames.is_limited()) return text(frames.least, " or more");
  if (frames.least == frames.most) return text(frames.least);
  return text(frames.least, " to ", frames.most);
}

void require_range(const char* op, const std::string& what, FrameRange frames, int32_t least) {
  require(frames.least >= least, op, "the least number of ", what, " must be ", least,
          " or more, but it is ", frames.least);
  require(frames.most >= frames.least, op, "the most ", what,
          " must not be fewer than the least, but they are ", frames.most, " and ", frames.least);
}

/// Builds an unweighted topology node by node and arc by arc.
class TopologyBuilder {
 public:
  explicit TopologyBuilder(const char* op) : op_(op) {}

  /// Throws if `count` more nodes would exceed the id range.
  void require_room(int64_t count) const { require_size(op_, "nodes", arrays_.num_nodes + count); }
  int32_t node(bool start = false, bool accept = false) {
    require_room(1);
    const int32_t n = arrays_.num_nodes++;
    if (start) arrays_.start.push_back(n);
    if (accept) arrays_.accept.push_back(n);
    return n;
  }
  void arc(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel = kEpsilon) {
    poll_();
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arrays_.ilabel.push_back(ilabel);
    arrays_.olabel.push_back(olabel);
  }
  void epsilon(int32_t src, int32_t dst) { arc(src, dst, kEpsilon); }

  TopologyPtr topology() && {
    require_size(op_, "arcs", static_cast<int64_t>(arrays_.src.size()));
    return std::make_shared<Topology>(std::move(arrays_));
  }

 private:
  InterruptPoll poll_;
  const char* op_;
  Arrays arrays_;
};

Graph unweighted(TopologyPtr topology) {
  Weights weights = Weights::zeros(topology->num_arcs(), DType::float32);
  return {std::move(topology), std::move(weights)};
}

/// A chain that consumes `frames` frames of `label` and emits `first` on the first frame.
Graph run_graph(const char* op, int32_t label, int32_t first, FrameRange frames) {
  TopologyBuilder builder(op);
  builder.require_room(int64_t{1} + frames.num_counted());
  int32_t last = builder.node(true, frames.least == 0);
  for (int32_t count = 1; count <= frames.num_counted(); ++count) {
    const int32_t next = builder.node(false, count >= frames.least);
    builder.arc(last, next, label, count == 1 ? first : kEpsilon);
    last = next;
  }
  if (!frames.is_limited()) builder.arc(last, last, label);
  return unweighted(std::move(builder).topology());
}

/// Builds the transducer from frames to all token sequences.
///
/// One part handles the gap between tokens (blanks, counted where their number is limited), the
/// other has a chain of nodes per token, one node per counted frame. If equal tokens must be
/// separated by a blank, a token may be followed directly by every other token. Epsilon arcs along
/// a binary tree over the tokens then take the place of C^2 arcs (see join_different()).
///
/// Nodes and arcs: O(total of the counted frames + blanks).
class TokenTransducer {
 public:
  explicit TokenTransducer(const Tokens::Rules& rules) : rules_(rules), builder_("Tokens.graph") {}

  TopologyPtr build() && {
    check_size();
    add_gap();
    for (int32_t label = 0; label < rules_.num_labels; ++label)
      if (rules_.is_token(label)) add_token(label);
    if (rules_.gap.least == 0 && rules_.separates_repeats) join_different();
    return std::move(builder_).topology();
  }

 private:
  /// Throws if the tokens alone have too many nodes or arcs, before any of them is made.
  void check_size() const {
    int64_t num_nodes = 0, num_arcs = 0;
    const auto add = [&](FrameRange frames, int64_t count) {
      num_nodes += count * frames.num_counted();
      // A chain that enters the token, a loop or further ends, and an arc that leaves it.
      num_arcs += count * (int64_t{frames.num_counted()} + (frames.is_limited() ? 1 : 2));
    };
    if (rules_.frames_of_label.empty())
      add(rules_.frames, int64_t{rules_.num_labels} - (rules_.has_blank() ? 1 : 0));
    for (const FrameRange& frames : rules_.frames_of_label) add(frames, 1);
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    require(std::max(num_nodes, num_arcs) <= kMost, "Tokens.graph",
            "a graph holds at most 2^31 - 1 nodes and arcs, but that of ", rules_.num_labels,
            " labels would have at least ", num_nodes, " nodes and ", num_arcs, " arcs");
  }

  /// Adds the nodes before the first token, between tokens and after the last one. A chain of nodes
  /// counts the blanks since the last token; all of them accept, because the target may end there.
  void add_gap() {
    if (!rules_.has_blank()) {
      enter_ = after_token_ = builder_.node(true, true);
      return;
    }
    const bool is_forced = rules_.blank == Blank::forced;
    const int32_t start = is_forced ? builder_.node(true) : -1;
    const int32_t least = std::max(rules_.gap.least, rules_.separates_repeats ? 1 : 0);
    const FrameRange gap{least, rules_.gap.most};
    // From `lead`, a token may follow after any number of blanks.
    const int32_t lead = builder_.node(!is_forced, true);
    blank_arc(lead, lead);
    if (is_forced) blank_arc(start, lead);
    enter_ = gap.is_limited() ? builder_.node() : lead;
    if (gap.is_limited()) builder_.epsilon(lead, enter_);

    builder_.require_room(gap.num_counted());
    int32_t last = -1;
    for (int32_t count = least == 0 ? 0 : 1; count <= gap.num_counted(); ++count) {
      const bool is_lead = !gap.is_limited() && count == least;
      const int32_t next = is_lead ? lead : builder_.node(false, true);
      if (last >= 0)
        blank_arc(last, next);
      else
        (count == 0 ? after_token_ : after_token_and_blank_) = next;
      if (gap.is_limited() && count >= least) builder_.epsilon(next, enter_);
      last = next;
    }
    if (gap.is_limited()) {
      const int32_t rest = builder_.node(false, true);
      blank_arc(last, rest);
      blank_arc(rest, rest);
    }
  }

  void add_token(int32_t label) {
    const FrameRange frames = rules_.duration(label);
    builder_.require_room(frames.num_counted());
    int32_t last = enter_;
    std::vector<int32_t> ends;
    const bool has_own_end = after_token_ < 0;
    const bool accepts = has_own_end && rules_.blank == Blank::optional;
    for (int32_t count = 1; count <= frames.num_counted(); ++count) {
      const bool is_end = count >= frames.least;
      const int32_t next = builder_.node(false, is_end && accepts);
      builder_.arc(last, next, label, count == 1 ? label : kEpsilon);
      if (count == 1) first_.push_back(next);
      if (is_end) ends.push_back(next);
      last = next;
    }
    if (!frames.is_limited()) builder_.arc(last, last, label);
    labels_.push_back(label);
    int32_t end = after_token_;
    if (has_own_end) {
      end = ends.size() == 1 ? last : builder_.node();
      blank_arc(end, after_token_and_blank_);
      end_.push_back(end);
    }
    for (int32_t node : ends)
      if (node != end) builder_.epsilon(node, end);
  }

  /// Joins each token to every other token, but not to itself, by epsilon paths along a binary tree
  /// with the tokens as leaves: up to the lowest common ancestor, across to the sibling subtree,
  /// and down. Node v of the tree has the children 2v and 2v + 1; the root needs no node.
  void join_different() {
    const auto num_tokens = static_cast<int32_t>(labels_.size());
    std::vector<int32_t> up(static_cast<size_t>(num_tokens)), down(up.size());
    for (int32_t v = 2; v < num_tokens; ++v) {
      up[v] = builder_.node();
      down[v] = builder_.node();
    }
    const auto go_down = [&](int32_t from, int32_t v) {
      if (v < num_tokens) return builder_.epsilon(from, down[v]);
      const int32_t token = v - num_tokens;
      builder_.arc(from, first_[token], labels_[token], labels_[token]);
    };
    for (int32_t v = 2; v < 2 * num_tokens; ++v) {
      const int32_t from = v < num_tokens ? up[v] : end_[v - num_tokens];
      go_down(from, v % 2 == 0 ? v + 1 : v - 1);
      if (v / 2 > 1) builder_.epsilon(from, up[v / 2]);
      if (v < num_tokens) {
        go_down(down[v], 2 * v);
        go_down(down[v], 2 * v + 1);
      }
    }
  }

  void blank_arc(int32_t src, int32_t dst) { builder_.arc(src, dst, rules_.blank_label); }

  const Tokens::Rules& rules_;
  TopologyBuilder builder_;
  /// All tokens begin at `enter_`. They either all end at `after_token_`, or each has an end node
  /// of its own with a blank arc to `after_token_and_blank_`.
  int32_t enter_ = -1, after_token_ = -1, after_token_and_blank_ = -1;
  std::vector<int32_t> labels_, first_, end_;
};

Tokens::Options optional_blank(int32_t label) {
  Tokens::Options options;
  options.blank = Blank::optional;
  options.blank_label = label;
  return options;
}

}  // namespace

Graph token_graph(int32_t label, FrameRange frames) {
  const char* op = "token_graph";
  require(label >= 0, op, "the label must be 0 or more, but it is ", label);
  require_range(op, "frames", frames, 1);
  return run_graph(op, label, label, frames);
}

Graph blank_graph(int32_t blank, FrameRange frames) {
  const char* op = "blank_graph";
  require(blank >= 0, op, "the blank must be 0 or more, but it is ", blank);
  require_range(op, "frames", frames, 0);
  return run_graph(op, blank, kEpsilon, frames);
}

Graph closed_graph(const std::vector<Graph>& token_graphs, const Graph& blank_graph) {
  const Graph any = union_(token_graphs);
  if (!blank_graph) return closure(any);
  // Each iteration ends with one blank graph: iterating a blank graph that accepts the empty string
  // would form an epsilon cycle.
  return concat({blank_graph, closure(concat({any, blank_graph}))});
}

struct Tokens::State {
  Options options;
  std::vector<FrameRange> frames_of_label;
  Rules rules;
  mutable ForkSafeOnce once;
  mutable TopologyPtr topology;
  mutable Weights weights;
};

Tokens::Tokens(int32_t num_labels, Options options) {
  const char* op = "Tokens";
  const bool has_blank = options.blank != Blank::none;
  require(num_labels >= 1, op, "there must be 1 label or more, but there are ", num_labels);
  if (has_blank)
    require(options.blank_label >= 0 && options.blank_label < num_labels, op,
            "the blank must be one of the ", num_labels, " labels, but it is ",
            options.blank_label);
  else
    options.blank_label = 0;
  require_range(op, "frames", options.frames, 1);
  require_range(op, "blanks", options.blanks, 0);
  require(has_blank || options.blanks == FrameRange{.least = 0}, op,
          "limits on the number of blanks need a blank, but blank is 'none' and the limits are ",
          describe(options.blanks));
  require(has_blank || options.allow_repeats, op,
          "without repeats equal tokens need a blank between them, but blank is 'none'");
  const bool is_forced = options.blank == Blank::forced;
  require(options.blanks.most > 0 || (!is_forced && options.allow_repeats), op,
          is_forced ? "a forced blank" : "disallowing repeats",
          " needs room for a blank between tokens, but at most 0 are allowed");

  auto state = std::make_shared<State>();
  Rules& rules = state->rules;
  rules = {.num_labels = num_labels,
           .blank = options.blank,
           .blank_label = options.blank_label,
           .frames = options.frames,
           .frames_of_label = {},
           .gap = {std::max(options.blanks.least, is_forced ? 1 : 0),
                   has_blank ? options.blanks.most : 0},
           .separates_repeats = !options.allow_repeats};
  if (!options.overrides.empty()) {
    state->frames_of_label.assign(static_cast<size_t>(num_labels), options.frames);
    for (const auto& [label, frames] : options.overrides) {
      require(rules.is_token(label), op, "overrides must be for labels that are ",
              rules.describe_tokens(), ", but one is for ", label);
      require_range(op, text("frames of token ", label), frames, 1);
      state->frames_of_label[label] = frames;
    }
    rules.frames_of_label = state->frames_of_label;
  }
  state->options = std::move(options);
  state_ = std::move(state);
}

Tokens Tokens::asg(int32_t num_labels) { return {num_labels, {}}; }

Tokens Tokens::ctc(int32_t num_labels, int32_t blank_label) {
  Options options = optional_blank(blank_label);
  options.allow_repeats = false;
  return {num_labels, options};
}

Tokens Tokens::spike(int32_t num_labels, int32_t blank_label) {
  return limited(num_labels, {1, 1}, blank_label);
}

Tokens Tokens::limited(int32_t num_labels, FrameRange frames, int32_t blank_label) {
  Options options = optional_blank(blank_label);
  options.frames = frames;
  return {num_labels, options};
}

Tokens Tokens::spaced(int32_t num_labels, FrameRange blanks, int32_t blank_label) {
  Options options = optional_blank(blank_label);
  options.blanks = blanks;
  return {num_labels, options};
}

int32_t Tokens::num_labels() const { return state_->rules.num_labels; }
const Tokens::Options& Tokens::options() const { return state_->options; }
const Tokens::Rules& Tokens::rules() const { return state_->rules; }

bool Tokens::operator==(const Tokens& other) const {
  return state_ == other.state_ ||
         (num_labels() == other.num_labels() && options() == other.options());
}

std::string Tokens::Rules::describe_tokens() const {
  std::string out = text("0 to ", num_labels - 1);
  if (has_blank()) out += text(" and not the blank (", blank_label, ")");
  return out;
}

Graph Tokens::graph() const {
  state_->once.call([&] {
    state_->topology = TokenTransducer(rules()).build();
    state_->weights = Weights::zeros(state_->topology->num_arcs(), DType::float32);
  });
  return {state_->topology, state_->weights};
}

std::vector<int32_t> Tokens::collapse(std::span<const int32_t> frames) const {
  const char* op = "collapse";
  const Rules& r = rules();
  const size_t size = frames.size();
  for (size_t t = 0; t < size; ++t)
    require(frames[t] >= 0 && frames[t] < r.num_labels, op, "a label of the frames must be 0 to ",
            r.num_labels - 1, ", but label ", t, " is ", frames[t]);
  const auto is_blank = [&](size_t t) { return r.has_blank() && frames[t] == r.blank_label; };
  if (r.blank == Blank::forced && (size == 0 || !is_blank(0) || !is_blank(size - 1)))
    fail(op, "frames must begin and end with the blank (", r.blank_label, "), but ",
         size == 0 ? std::string("there are none")
                   : text("they begin with ", frames[0], " and end with ", frames[size - 1]));

  std::vector<int32_t> out;
  size_t end_of_token = 0;
  for (size_t begin = 0, end = 0; begin < size; begin = end) {
    const int32_t label = frames[begin];
    while (end < size && frames[end] == label) ++end;
    if (is_blank(begin)) continue;
    const size_t num_blanks = begin - end_of_token;
    if (!out.empty() && !r.gap.contains(num_blanks))
      fail(op, "there must be ", describe(r.gap), " blanks between tokens, but there are ",
           num_blanks, " before frame ", begin);
    // The smallest number of tokens that covers the run.
    const FrameRange each = r.duration(label);
    const size_t length = end - begin;
    const size_t count = (length - 1) / static_cast<size_t>(each.most) + 1;
    const bool may_repeat = r.may_touch(label, label);
    if (count * static_cast<size_t>(each.least) > length || (count > 1 && !may_repeat))
      fail(op, "a run of label ", label, " must be one token of ", describe(each), " frames",
           may_repeat ? " or several" : "", ", but the one at frame ", begin, " has ", length);
    out.insert(out.end(), count, label);
    end_of_token = end;
  }
  return out;
}

std::vector<std::vector<int32_t>> Tokens::collapse(const Sequences& frames) const {
  std::vector<std::vector<int32_t>> out(frames.size());
  for (size_t i = 0; i < out.size(); ++i) {
    try {
      out[i] = collapse(frames[i]);
    } catch (const std::invalid_argument&) {
      rethrow_for_element("collapse", i, out.size());
    }
  }
  return out;
}

}  // namespace arcgrad
