#include "arcgrad/search/beam_decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/search/hashing.h"

namespace arcgrad {
namespace {

constexpr char kOp[] = "decode";
/// The last label before the first frame: no label, so that all may follow.
constexpr int32_t kStart = -2;

}  // namespace

BeamDecoder::BeamDecoder(DecoderParts parts, DecoderOptions options)
    : parts_(std::move(parts)), options_(options) {
  constexpr char kName[] = "CTCDecoder";
  const Tokens::Rules& rules = parts_.tokens.rules();
  const bool is_plain = rules.frames.least == 1 && rules.frames_of_label.empty() &&
                        (rules.frames.most == 1 || !rules.frames.is_limited()) &&
                        (!rules.has_blank() || !rules.gap.is_limited()) &&
                        rules.gap.least <= (rules.blank == Blank::forced ? 1 : 0);
  require(is_plain, kName,
          "tokens must last one frame or any number of frames, with any number of blanks between "
          "them, but they have other limits; use beam_search with their graph");
  require(parts_.roles.size() == static_cast<size_t>(num_labels()), kName,
          "there must be one role for each label");
  for (const auto& [value, name] :
       {std::pair(options_.beam, "beam"), std::pair(options_.token_beam, "token_beam"),
        std::pair(options_.lm_weight, "the weight of the model")})
    require(value >= 0.0, kName, name, " must be 0 or more, but it is ", value);
  require(options_.max_active >= 1, kName, "max_active must be 1 or more, but it is ",
          options_.max_active);
  require(options_.max_tokens >= 1, kName, "max_tokens must be 1 or more, but it is ",
          options_.max_tokens);
  for (const auto& [value, name] : {std::pair(options_.lm_weight, "the weight of the model"),
                                    std::pair(options_.word_score, "the score of a word"),
                                    std::pair(options_.unknown_score, "the score of unknown words"),
                                    std::pair(options_.silence_score, "the score of a silence")})
    require(std::isfinite(value), kName, name, " must be finite, but it is ", value);
  has_roles_ = !options_.has_label_words && std::ranges::any_of(parts_.roles, [](TokenRole r) {
    return r != TokenRole::inside;
  });
  require(has_roles_ || !options_.is_open, kName,
          "unknown words need a label that separates or begins words, but there is none");
  const LexiconTree& lexicon = *parts_.lexicon;
  for (uint32_t node = 1; node < lexicon.num_nodes(); ++node)
    if (!rules.is_token(lexicon.token(node)))
      fail(kName, "spellings must have tokens from ", rules.describe_tokens(), ", but one has ",
           lexicon.token(node));
  look_ahead_.assign(lexicon.num_nodes() + 1, 0.0F);
  if (!parts_.grammar || options_.lm_weight == 0.0) return;
  const auto weight = static_cast<float>(options_.lm_weight);
  Buffer<float> estimates(static_cast<size_t>(lexicon.num_words()));
  for (size_t w = 0; w < estimates.size(); ++w)
    estimates[w] = weight * parts_.grammar->estimate(static_cast<int32_t>(w));
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  const float unknown =
      weight * parts_.grammar->estimate(kUnknownWord) + static_cast<float>(options_.unknown_score);
  const Buffer<float> largest =
      lexicon.largest_below(estimates, options_.is_open ? unknown : kLeast);
  // Words that cannot occur have the score -inf, which must not become NaN.
  for (size_t node = 0; node < largest.size(); ++node)
    look_ahead_[node] = std::max(largest[node], kLeast / 4) - std::max(largest[0], kLeast / 4);
  if (options_.is_open)
    look_ahead_.back() = std::max(unknown, kLeast / 4) - std::max(largest[0], kLeast / 4);
}

/// The hypotheses between two frames.
class BeamStream::State {
 public:
  State(std::shared_ptr<const BeamDecoder> decoder, bool keeps_lattice)
      : decoder_(std::move(decoder)),
        rules_(decoder_->parts().tokens.rules()),
        options_(decoder_->options()),
        lexicon_(*decoder_->parts().lexicon),
        hotwords_(decoder_->parts().hotwords.get()),
        look_ahead_(decoder_->look_ahead()),
        roles_(decoder_->parts().roles),
        is_sum_(options_.merge == Merge::sum),
        keeps_lattice_(keeps_lattice),
        has_loops_(rules_.frames.most != 1),
        has_roles_(decoder_->has_roles()),
        unknown_node_(decoder_->unknown_node()) {
    for (int32_t d = 0; d < rules_.num_labels; ++d)
      if (roles_[d] != TokenRole::inside) edges_of_words_.push_back(d);
    if (hotwords_ != nullptr) max_gain_ += 2 * hotwords_->max_score();  // of a label and a boundary
    if (const Grammar* grammar = decoder_->parts().grammar.get()) {
      session_ = grammar->session();
      if (!grammar->has_log_probs()) max_gain_ = std::numeric_limits<double>::infinity();
      steps_.assign(kSteps, {});
    }
    max_gain_ += std::max(0.0, options_.word_score) + std::max(0.0, options_.silence_score) +
                 std::max(0.0, options_.unknown_score);
    Hypothesis start{};
    start.last = kStart;
    if (session_) start.grammar = session_->start();
    if (hotwords_ != nullptr) start.hot = hotwords_->next(0, decoder_->boundary()).state;
    beam_.push_back(start);
    cells_.assign(1024, {});
  }

  const BeamDecoder& decoder() const { return *decoder_; }
  const SearchReport& report() const { return report_; }
  const SearchTrace& trace() const { return trace_; }

  void push(std::span<const float> scores) {
    require(scores.size() == static_cast<size_t>(rules_.num_labels), kOp, "frames must have ",
            rules_.num_labels, " scores, but one has ", scores.size());
    poll_interrupt();
    choose_tokens(scores);
    candidates_.clear();
    losers_.clear();
    if (++epoch_ == 0) {
      cells_.assign(cells_.size(), {});
      epoch_ = 1;
    }
    limit_ = kNegInf;
    for (const Hypothesis& h : beam_) stay(h);
    raise_limit();
    for (const Hypothesis& h : beam_) move(h);
    prune();
    require_size(kOp, "hypotheses", trace_.num_nodes());
  }

  std::vector<SearchTrace::Final> finals() const {
    std::vector<SearchTrace::Final> out;
    for (const Hypothesis& h : beam_) add_finals(h, out);
    if (!out.empty()) return out;
    // No word is complete at the end: results without the last partial word.
    for (const Hypothesis& h : beam_) {
      TraceEdge edge{h.node_id, -1, TraceEdge::kNoWord, false, 0.0F, 0.0F, 0.0F, 0.0F};
      if (hotwords_ != nullptr) edge.hotword = hotwords_->finish(h.hot);
      out.push_back({edge, h.score - look_ahead_[h.node] + edge.hotword, h.history});
    }
    return out;
  }
  /// Whether some hypothesis may end here.
  bool can_end() const {
    std::vector<SearchTrace::Final> out;
    for (const Hypothesis& h : beam_) {
      add_finals(h, out);
      if (!out.empty()) return true;
    }
    return false;
  }

  std::vector<uint32_t> active_nodes() const {
    std::vector<uint32_t> out;
    for (const Hypothesis& h : beam_) out.push_back(h.node_id);
    return out;
  }
  /// The hypothesis with the best score, as an end without its partial word.
  SearchTrace::Final best_active() const {
    const Hypothesis& h = *std::ranges::max_element(beam_, {}, &Hypothesis::score);
    return {{h.node_id, -1, TraceEdge::kNoWord, false, 0.0F, 0.0F, 0.0F, 0.0F},
            h.score - look_ahead_[h.node],
            h.history};
  }
  bool is_empty() const { return beam_.empty(); }

  SearchTrace::Reading reading() const {
    SearchTrace::Reading out{{options_.lm_weight}, rules_.has_blank() ? rules_.blank_label : -1,
                             !has_roles_,          std::vector<bool>(roles_.size()),
                             options_.is_open,     lexicon_.num_words()};
    for (size_t d = 0; d < roles_.size(); ++d)
      out.is_separator[d] =
          roles_[d] == TokenRole::separator || static_cast<int32_t>(d) == options_.silence;
    return out;
  }

 private:
  struct Hypothesis {
    double score = 0.0;    // with look-ahead
    uint64_t history = 0;  // a hash of the words so far; for open lexicons, of the tokens too
    uint32_t node = 0;     // of the lexicon
    int32_t last = 0;      // the last label
    uint32_t grammar = 0, hot = 0;
    uint32_t node_id = 0;  // of the trace
  };
  struct Extension {
    Hypothesis to;
    double sum;  // for Merge::sum: of exp(score - to.score) of all merged candidates
    TraceEdge edge;
  };
  /// A candidate that lost against another one with the same state.
  struct Loser {
    uint32_t winner;
    TraceEdge edge;
  };
  /// A cell of the hash table of candidates; it is empty if the epoch is that of an earlier frame.
  struct Cell {
    uint32_t epoch = 0, candidate = 0;
  };
  /// A result of the language model.
  struct KnownStep {
    uint32_t state = UINT32_MAX;
    int32_t word = 0;
    GrammarStep step{};
  };
  static constexpr size_t kSteps = 1 << 13;
  struct TokenScore {
    float score;
    int32_t label;
  };

  /// The labels that are read at this frame, best first.
  void choose_tokens(std::span<const float> scores) {
    row_.assign(scores.begin(), scores.end());
    tokens_.clear();
    float best = -std::numeric_limits<float>::infinity();
    for (int32_t d = 0; d < rules_.num_labels; ++d) {
      // False for NaN too.
      require(row_[d] < std::numeric_limits<float>::infinity(), kOp, "the score of label ", d,
              " at frame ", trace_.num_frames(), " must be finite or -inf, but it is ", row_[d]);
      best = std::max(best, row_[d]);
    }
    const double least = static_cast<double>(best) - options_.token_beam;
    for (int32_t d = 0; d < rules_.num_labels; ++d)
      if (row_[d] >= least && row_[d] > -std::numeric_limits<float>::infinity())
        tokens_.push_back({row_[d], d});
    std::ranges::sort(tokens_, [](const TokenScore& a, const TokenScore& b) {
      return a.score != b.score ? a.score > b.score : a.label < b.label;
    });
    if (static_cast<int64_t>(tokens_.size()) > options_.max_tokens)
      tokens_.resize(static_cast<size_t>(options_.max_tokens));
    report_.tokens += rules_.num_labels - static_cast<int64_t>(tokens_.size());
    if (tokens_.size() < row_.size()) {
      std::ranges::fill(row_, -std::numeric_limits<float>::infinity());
      for (const TokenScore& token : tokens_) row_[token.label] = token.score;
    }
  }

  static TraceEdge edge_of(const Hypothesis& h, int32_t label, float acoustic, bool is_new) {
    return {h.node_id, label, TraceEdge::kNoWord, is_new, acoustic, 0.0F, 0.0F, 0.0F};
  }

  /// The blank, and the last token once more.
  void stay(const Hypothesis& h) {
    Hypothesis to = h;
    if (rules_.has_blank()) {
      const float score = row_[rules_.blank_label];
      to.last = rules_.blank_label;
      to.score = h.score + score;
      add(to, edge_of(h, rules_.blank_label, score, false));
    }
    const bool is_token = h.last >= 0 && !(rules_.has_blank() && h.last == rules_.blank_label);
    if (is_token && has_loops_) {
      const float score = row_[h.last];
      to.last = h.last;
      to.score = h.score + score;
      add(to, edge_of(h, h.last, score, false));
    }
  }

  /// After all candidates that stay: no candidate below this score can be kept.
  void raise_limit() {
    best_ = kNegInf;
    for (const Extension& c : candidates_) best_ = std::max(best_, c.to.score);
    limit_ = best_ - options_.beam;
    const auto most = static_cast<size_t>(options_.max_active);
    if (candidates_.size() <= most || most == 0) return;
    order_.clear();
    for (const Extension& c : candidates_) order_.push_back(c.to.score);
    std::ranges::nth_element(order_, order_.begin() + static_cast<ptrdiff_t>(most) - 1,
                             std::greater());
    limit_ = std::max(limit_, order_[most - 1]);
  }

  /// Whether a new token may follow the last label.
  bool may_begin(const Hypothesis& h, int32_t label) const {
    if (!rules_.has_blank()) return h.last < 0 || rules_.may_touch(h.last, label);
    if (h.last == rules_.blank_label) return true;
    if (rules_.blank == Blank::forced) return false;
    return h.last < 0 || rules_.may_touch(h.last, label);
  }

  /// All new tokens.
  void move(const Hypothesis& h) {
    if (rules_.blank == Blank::forced && h.last != rules_.blank_label) return;
    if (has_roles_) end_word_by_token(h);
    if (h.node == 0 && options_.silence >= 0 && may_begin(h, options_.silence) &&
        !(h.last == options_.silence && has_loops_))
      silence(h, options_.silence);
    if (h.node == unknown_node_) {
      spell_unknown(h);
      return;
    }
    // Without roles a word may end, and then its score replaces the look-ahead.
    const double most = h.score + max_gain_ - (has_roles_ ? 0.0F : look_ahead_[h.node]);
    const uint32_t begin = lexicon_.first_child(h.node), end = lexicon_.first_child(h.node + 1);
    if (end - begin > kWide) {
      // Tokens with the best scores come first, and no look-ahead is larger than that of the node.
      for (const TokenScore& token : tokens_) {
        if (most + token.score < limit_) break;
        if (!may_begin(h, token.label)) continue;
        if (const uint32_t child = lexicon_.child(h.node, token.label); child != 0)
          enter(h, child, token.label, token.score);
      }
    } else {
      for (uint32_t child = begin; child < end; ++child) {
        const int32_t label = lexicon_.token(child);
        if (most + row_[label] < limit_ || !may_begin(h, label)) continue;
        enter(h, child, label, row_[label]);
      }
    }
    if (options_.is_open) spell_unknown(h);
  }

  /// Tokens that continue a word that the lexicon lacks, or that leave the lexicon.
  void spell_unknown(const Hypothesis& h) {
    const double most = h.score + max_gain_ + look_ahead_[unknown_node_] - look_ahead_[h.node];
    for (const TokenScore& token : tokens_) {
      if (most + token.score < limit_) break;
      const TokenRole role = roles_[token.label];
      const bool spells = role == TokenRole::inside || (role == TokenRole::begins && h.node == 0);
      if (!spells || (rules_.has_blank() && token.label == rules_.blank_label) ||
          !may_begin(h, token.label))
        continue;
      if (h.node == unknown_node_ || lexicon_.child(h.node, token.label) == 0)
        enter(h, unknown_node_, token.label, token.score);
    }
  }

  /// A token that leads to a node of the lexicon.
  void enter(const Hypothesis& h, uint32_t node, int32_t label, float score) {
    if (!(score > -std::numeric_limits<float>::infinity())) return;
    Hypothesis to = h;
    TraceEdge edge = edge_of(h, label, score, true);
    to.node = node;
    to.last = label;
    to.score = h.score + score + look_ahead_[node] - look_ahead_[h.node];
    read_hotword(to, edge, label);
    if (options_.is_open) to.history = extend_history(h.history, token_symbol(label));
    if (has_roles_) {
      add_above_limit(to, edge);
      return;
    }
    // Without roles a word may end here.
    if (lexicon_.first_child(node) < lexicon_.first_child(node + 1)) add_above_limit(to, edge);
    for (const int32_t word : lexicon_.words(node)) {
      Hypothesis ended = to;
      TraceEdge last = edge;
      if (end_word(ended, last, word)) {
        if (!options_.has_label_words) read_boundary(ended, last);
        add_above_limit(ended, last);
      }
    }
  }

  /// Separators and labels that begin words.
  void end_word_by_token(const Hypothesis& h) {
    for (const int32_t label : edges_of_words_) {
      const float score = row_[label];
      if (!(score > -std::numeric_limits<float>::infinity()) || !may_begin(h, label)) continue;
      const bool is_separator = roles_[label] == TokenRole::separator;
      if (h.node == 0) {
        if (is_separator && !(h.last == label && has_loops_)) silence(h, label);
        continue;  // a label that begins a word is a child of the root
      }
      if (h.score + score + max_gain_ - look_ahead_[h.node] < limit_) continue;
      const auto words =
          h.node == unknown_node_ ? std::span<const int32_t>() : lexicon_.words(h.node);
      const auto end = [&](int32_t word) {
        Hypothesis to = h;
        TraceEdge edge = edge_of(h, label, score, true);
        to.score += score;
        to.last = label;
        if (!end_word(to, edge, word)) return;
        read_boundary(to, edge);
        if (!is_separator) {
          const uint32_t child = lexicon_.child(0, label);
          if (child == 0 && !options_.is_open) return;
          to.node = child == 0 ? unknown_node_ : child;
          to.score += look_ahead_[to.node];
          read_hotword_label(to, edge, label);
          if (options_.is_open) to.history = extend_history(to.history, token_symbol(label));
        }
        add_above_limit(to, edge);
      };
      for (const int32_t word : words) end(word);
      if (words.empty() && options_.is_open) end(kUnknownWord);
    }
  }

  /// A separator between words.
  void silence(const Hypothesis& h, int32_t label) {
    const float score = row_[label];
    Hypothesis to = h;
    TraceEdge edge = edge_of(h, label, score, true);
    edge.other = static_cast<float>(options_.silence_score);
    to.last = label;
    to.score += static_cast<double>(score) + edge.other;
    read_boundary(to, edge);
    add_above_limit(to, edge);
  }

  /// Ends a word: the hypothesis is at the root again. False if the model forbids it.
  bool end_word(Hypothesis& to, TraceEdge& edge, int32_t word) const {
    to.score -= look_ahead_[to.node];
    to.node = 0;
    edge.word = word;
    double other = options_.word_score;
    if (word == kUnknownWord) other += options_.unknown_score;
    if (session_) {
      const GrammarStep step = next(to.grammar, word);
      if (!(step.score > -std::numeric_limits<float>::infinity())) return false;
      edge.language = step.score;
      to.grammar = step.state;
      to.score += options_.lm_weight * static_cast<double>(step.score);
    }
    edge.other += static_cast<float>(other);
    to.score += static_cast<double>(static_cast<float>(other));
    to.history = extend_history(to.history, word);
    return true;
  }

  GrammarStep next(uint32_t state, int32_t word) const {
    const uint64_t key = uint64_t{state} << 32U | static_cast<uint32_t>(word);
    KnownStep& known = steps_[mix_bits(key) & (kSteps - 1)];
    if (known.state != state || known.word != word)
      known = {state, word, session_->next(state, word)};
    return known.step;
  }

  void read_symbol(Hypothesis& to, TraceEdge& edge, int32_t symbol) const {
    const HotwordMatcher::Advance match = hotwords_->next(to.hot, symbol);
    to.hot = match.state;
    edge.hotword += match.score;
    to.score += static_cast<double>(match.score);
  }
  void read_boundary(Hypothesis& to, TraceEdge& edge) const {
    if (hotwords_ != nullptr) read_symbol(to, edge, decoder_->boundary());
  }
  void read_hotword_label(Hypothesis& to, TraceEdge& edge, int32_t label) const {
    if (hotwords_ != nullptr) read_symbol(to, edge, label);
  }
  /// A token inside a word; one that begins a word has a boundary before it.
  void read_hotword(Hypothesis& to, TraceEdge& edge, int32_t label) const {
    if (hotwords_ == nullptr) return;
    if (roles_[label] != TokenRole::inside) read_symbol(to, edge, decoder_->boundary());
    if (roles_[label] != TokenRole::separator) read_symbol(to, edge, label);
  }

  void add_above_limit(const Hypothesis& to, const TraceEdge& edge) {
    if (to.score < limit_) {
      ++report_.below_beam;
      return;
    }
    add(to, edge);
    if (to.score > best_) {
      best_ = to.score;
      limit_ = std::max(limit_, best_ - options_.beam);
    }
  }

  bool is_same(const Hypothesis& a, const Hypothesis& b) const {
    return a.node == b.node && a.last == b.last && a.hot == b.hot &&
           (is_sum_ ? a.history == b.history : a.grammar == b.grammar);
  }

  /// Adds a candidate, or merges it with one that has the same state.
  void add(const Hypothesis& to, const TraceEdge& edge) {
    if (!(to.score > kNegInf)) return;
    const uint64_t key = (uint64_t{to.node} << 32U | static_cast<uint32_t>(to.last)) ^
                         mix_bits((is_sum_ ? to.history : to.grammar) + (uint64_t{to.hot} << 40U));
    const size_t mask = cells_.size() - 1;
    size_t at = mix_bits(key) & mask;
    for (; cells_[at].epoch == epoch_; at = (at + 1) & mask) {
      Extension& known = candidates_[cells_[at].candidate];
      if (!is_same(known.to, to)) continue;
      const bool is_better = to.score > known.to.score;
      if (is_sum_) {
        const double difference = std::exp(-std::abs(to.score - known.to.score));
        known.sum = is_better ? known.sum * difference + 1.0 : known.sum + difference;
      }
      if (keeps_lattice_) losers_.push_back({cells_[at].candidate, is_better ? known.edge : edge});
      if (is_better) {
        const double sum = known.sum;
        known = {to, sum, edge};
      }
      return;
    }
    cells_[at] = {epoch_, static_cast<uint32_t>(candidates_.size())};
    candidates_.push_back({to, 1.0, edge});
    if (2 * candidates_.size() > cells_.size()) grow();
  }

  void grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.epoch != epoch_) continue;
      const Hypothesis& to = candidates_[cell.candidate].to;
      const uint64_t key =
          (uint64_t{to.node} << 32U | static_cast<uint32_t>(to.last)) ^
          mix_bits((is_sum_ ? to.history : to.grammar) + (uint64_t{to.hot} << 40U));
      size_t at = mix_bits(key) & (cells_.size() - 1);
      while (cells_[at].epoch == epoch_) at = (at + 1) & (cells_.size() - 1);
      cells_[at] = cell;
    }
  }

  /// Keeps the best candidates, and adds them to the trace.
  void prune() {
    if (is_sum_)
      for (Extension& c : candidates_) c.to.score += std::log(c.sum);
    double best = kNegInf;
    for (const Extension& c : candidates_) best = std::max(best, c.to.score);
    double least = best - options_.beam;
    const auto most = static_cast<size_t>(options_.max_active);
    size_t num_ties = SIZE_MAX;  // how many candidates of the least score are kept
    if (candidates_.size() > most) {
      order_.clear();
      for (const Extension& c : candidates_) order_.push_back(c.to.score);
      std::ranges::nth_element(order_, order_.begin() + static_cast<ptrdiff_t>(most) - 1,
                               std::greater());
      const double last = order_[most - 1];
      if (last >= least) {
        least = last;
        num_ties = most;
        for (size_t i = 0; i < most; ++i) num_ties -= order_[i] > last;
      }
    }
    beam_.clear();
    kept_.assign(candidates_.size(), 0);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Extension& c = candidates_[i];
      if (c.to.score < best - options_.beam) {
        ++report_.below_beam;
        continue;
      }
      if (c.to.score < least || (c.to.score == least && num_ties == 0)) {
        ++report_.beyond_active;
        continue;
      }
      if (c.to.score == least) --num_ties;
      c.to.node_id = kept_[i] = trace_.add_node(c.edge);
      beam_.push_back(c.to);
    }
    for (const Loser& loser : losers_)
      if (kept_[loser.winner] != 0) trace_.add_other(kept_[loser.winner], loser.edge);
    trace_.end_frame();
    const auto count = static_cast<int64_t>(beam_.size());
    ++report_.frames;
    report_.hypotheses += count;
    report_.most_hypotheses = std::max(report_.most_hypotheses, count);
  }

  void add_finals(const Hypothesis& h, std::vector<SearchTrace::Final>& out) const {
    if (rules_.blank == Blank::forced && h.last != rules_.blank_label) return;
    const auto end = [&](std::optional<int32_t> word) {
      Hypothesis to = h;
      TraceEdge edge = edge_of(h, -1, 0.0F, false);
      if (word && !end_word(to, edge, *word)) return;
      if (session_) {
        const float score = session_->end_score(to.grammar);
        if (!(score > -std::numeric_limits<float>::infinity())) return;
        edge.language += score;
        to.score += options_.lm_weight * static_cast<double>(score);
      }
      if (hotwords_ != nullptr) {
        read_symbol(to, edge, decoder_->boundary());
        const float refund = hotwords_->finish(to.hot);
        edge.hotword += refund;
        to.score += static_cast<double>(refund);
      }
      out.push_back({edge, to.score, to.history});
    };
    if (h.node == 0) {
      end({});
    } else if (has_roles_) {
      const auto words =
          h.node == unknown_node_ ? std::span<const int32_t>() : lexicon_.words(h.node);
      for (const int32_t word : words) end(word);
      if (words.empty() && options_.is_open) end(kUnknownWord);
    }
  }

  /// Nodes with more children are searched by token.
  static constexpr uint32_t kWide = 64;

  std::shared_ptr<const BeamDecoder> decoder_;
  const Tokens::Rules& rules_;
  const DecoderOptions& options_;
  const LexiconTree& lexicon_;
  const HotwordMatcher* hotwords_;
  const Buffer<float>& look_ahead_;
  const std::vector<TokenRole>& roles_;
  const bool is_sum_, keeps_lattice_, has_loops_, has_roles_;
  const uint32_t unknown_node_;
  std::vector<int32_t> edges_of_words_;  // labels with other roles than inside
  /// The most that a step adds to a score, apart from the score of its label.
  double max_gain_ = 0.0;
  std::unique_ptr<GrammarSession> session_;
  mutable std::vector<KnownStep> steps_;  // a cache

  std::vector<Hypothesis> beam_;
  SearchTrace trace_;
  SearchReport report_;
  // Of the current frame
  std::vector<float> row_;
  std::vector<TokenScore> tokens_;
  std::vector<Extension> candidates_;
  std::vector<Loser> losers_;
  std::vector<Cell> cells_;
  uint32_t epoch_ = 0;
  double best_ = kNegInf, limit_ = kNegInf;
  std::vector<double> order_;
  std::vector<uint32_t> kept_;
};

BeamStream::BeamStream(std::shared_ptr<const BeamDecoder> decoder, bool keeps_lattice)
    : state_(std::make_unique<State>(std::move(decoder), keeps_lattice)) {}
BeamStream::~BeamStream() = default;
BeamStream::BeamStream(BeamStream&&) noexcept = default;

void BeamStream::push(std::span<const float> scores) { state_->push(scores); }
int64_t BeamStream::num_frames() const { return state_->trace().num_frames(); }
const SearchReport& BeamStream::report() const { return state_->report(); }

std::vector<Transcript> BeamStream::finish(int64_t n, bool confidences) const {
  require(n >= 1, kOp, "nbest must be 1 or more, but it is ", n);
  const std::vector<SearchTrace::Final> ends = state_->finals();
  const SearchTrace::Reading reading = state_->reading();
  std::vector<Transcript> out;
  if (state_->decoder().options().merge == Merge::sum)
    out = state_->trace().best_histories(reading, ends, n);
  else if (n == 1 && !ends.empty())
    out = {state_->trace().follow(reading,
                                  *std::ranges::max_element(ends, {}, &SearchTrace::Final::score))};
  else
    out = state_->trace().best(reading, ends, n);
  const bool is_complete = state_->can_end();
  for (Transcript& result : out) result.is_complete = is_complete;
  if (confidences) state_->trace().set_confidences(reading, ends, out);
  return out;
}

Transcript BeamStream::partial() const {
  if (state_->is_empty()) return {};
  const SearchTrace::Reading reading = state_->reading();
  Transcript out = state_->trace().follow(reading, state_->best_active());
  out.is_complete = false;
  const std::vector<uint32_t> nodes = state_->active_nodes();
  const int64_t frame = state_->trace().frame_of(state_->trace().common_node(nodes));
  // A token may last beyond the common node, but it stays.
  for (const Transcript::Token& token : out.tokens) out.stable_tokens += token.begin < frame;
  for (const Transcript::Word& word : out.words) out.stable_words += word.ended < frame;
  return out;
}

Graph BeamStream::lattice(double lattice_beam) const {
  require(lattice_beam >= 0.0, "lattice", "the beam must be 0 or more, but it is ", lattice_beam);
  return state_->trace().graph(state_->reading(), state_->finals(), lattice_beam);
}

}  // namespace arcgrad
