#include "arcgrad/search/beam_stream.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/search/beam_candidates.h"
#include "arcgrad/search/frame_labels.h"
#include "arcgrad/search/hashing.h"

namespace arcgrad {
namespace {

constexpr char kOp[] = "decode";
/// The last label before the first frame: no label, so that all may follow.
constexpr int32_t kStart = -2;

}  // namespace

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
        has_loops_(rules_.frames.most != 1),
        has_roles_(decoder_->has_roles()),
        unknown_node_(decoder_->unknown_node()),
        candidates_(options_, keeps_lattice) {
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
    if (options_.unfinished && options_.unfinished->unknown_score > 0.0)
      max_gain_ = std::numeric_limits<double>::infinity();
    BeamHypothesis start{};
    start.last = kStart;
    if (session_) start.grammar = session_->start();
    if (hotwords_ != nullptr) start.hot = hotwords_->next(0, decoder_->boundary()).state;
    beam_.push_back(start);
  }

  const BeamDecoder& decoder() const { return *decoder_; }
  const SearchReport& report() const { return report_; }
  const SearchTrace& trace() const { return trace_; }

  void push(std::span<const float> scores) {
    require(scores.size() == static_cast<size_t>(rules_.num_labels), kOp, "frames must have ",
            rules_.num_labels, " scores, but one has ", scores.size());
    poll_interrupt();
    frame_.read(scores, options_, trace_.num_frames());
    report_.tokens += frame_.num_unread();
    candidates_.begin_frame();
    for (const BeamHypothesis& h : beam_) stay(h);
    candidates_.raise_limit();
    for (const BeamHypothesis& h : beam_) move(h);
    candidates_.prune(beam_, trace_, report_);
    if (options_.compared_words > 0) forget_history();
    const auto count = static_cast<int64_t>(beam_.size());
    ++report_.frames;
    report_.hypotheses += count;
    report_.most_hypotheses = std::max(report_.most_hypotheses, count);
    require_size(kOp, "hypotheses", trace_.num_nodes());
  }

  std::vector<SearchTrace::Final> finals() const {
    std::vector<SearchTrace::Final> out;
    if (options_.like_flashlight)
      for (const BeamHypothesis& h : beam_)
        if (h.node == 0) add_finals(h, out);
    if (!out.empty()) return out;
    for (const BeamHypothesis& h : beam_) add_finals(h, out);
    if (!out.empty()) return out;
    // No word is complete at the end: results without the last partial word.
    for (const BeamHypothesis& h : beam_) {
      TraceEdge edge{h.node_id, -1, TraceEdge::kNoWord, false, 0.0F, 0.0F, 0.0F, 0.0F};
      if (hotwords_ != nullptr) edge.hotword = hotwords_->finish(h.hot);
      const double score = h.score - unfinished(h) + edge.hotword;
      out.push_back({edge, score, h.history, score});
    }
    return out;
  }
  std::vector<uint32_t> active_nodes() const {
    std::vector<uint32_t> out;
    for (const BeamHypothesis& h : beam_) out.push_back(h.node_id);
    return out;
  }
  /// The hypothesis with the best score, as an end without its partial word.
  SearchTrace::Final best_active() const {
    const BeamHypothesis& h = *std::ranges::max_element(beam_, {}, &BeamHypothesis::score);
    const double score = h.score - unfinished(h);
    return {{h.node_id, -1, TraceEdge::kNoWord, false, 0.0F, 0.0F, 0.0F, 0.0F},
            score,
            h.history,
            score};
  }
  bool is_empty() const { return beam_.empty(); }
  /// The best score of a path, whether or not it may end here; and of those that may.
  double best_path_score() const {
    double best = kNegInf;
    for (const BeamHypothesis& h : beam_) best = std::max(best, h.score - unfinished(h));
    return best;
  }
  double best_final_score() const {
    std::vector<SearchTrace::Final> ends;
    for (const BeamHypothesis& h : beam_) add_finals(h, ends);
    double best = kNegInf;
    for (const SearchTrace::Final& end : ends) best = std::max(best, end.score);
    return best;
  }

  SearchTrace::Reading reading() const {
    SearchTrace::Reading out{{options_.lm_weight}, rules_.has_blank() ? rules_.blank_label : -1,
                             !has_roles_,          std::vector<bool>(roles_.size()),
                             options_.is_open,     lexicon_.num_words()};
    for (size_t d = 0; d < roles_.size(); ++d)
      out.is_separator[d] = roles_[d] == TokenRole::separator;
    return out;
  }

 private:
  /// A result of the language model.
  struct KnownStep {
    uint32_t state = UINT32_MAX;
    int32_t word = 0;
    GrammarStep step{};
  };
  static constexpr size_t kSteps = 1 << 13;
  static TraceEdge edge_of(const BeamHypothesis& h, int32_t label, float acoustic, bool is_new) {
    return {h.node_id, label, TraceEdge::kNoWord, is_new, acoustic, 0.0F, 0.0F, 0.0F};
  }

  /// Drops hypotheses whose last words and partial word are those of a better one.
  void forget_history() {
    std::ranges::stable_sort(beam_, std::greater(), &BeamHypothesis::score);
    std::set<std::pair<uint64_t, int32_t>> known;
    std::erase_if(beam_, [&](const BeamHypothesis& h) {
      return !known.emplace(hash_last_words(h.node_id), h.last).second;
    });
  }
  /// A hash of the last words that are compared, and of the partial word.
  uint64_t hash_last_words(uint32_t node) const {
    uint64_t hash = 0;
    int32_t num_words = 0;
    for (; node != 0; node = trace_.best_edge(node).src) {
      const TraceEdge& edge = trace_.best_edge(node);
      if (edge.is_new && roles_[edge.label] != TokenRole::separator)
        hash = extend_history(hash, edge.label);
      if (edge.word == TraceEdge::kNoWord) continue;
      if (++num_words > options_.compared_words) break;
      hash = extend_history(hash, decoder_->boundary());
    }
    return hash;
  }

  /// What the score has for the partial word, and loses when the word ends.
  double unfinished(const BeamHypothesis& h) const {
    if (!options_.unfinished || h.node != unknown_node_) return look_ahead_[h.node];
    if (hotwords_ != nullptr && hotwords_->is_inside(h.hot)) return 0.0;
    return options_.unfinished->unknown_score *
           std::max(1.0, h.letters / UnfinishedWords::kUsualLetters);
  }

  /// The blank, and the last token once more.
  void stay(const BeamHypothesis& h) {
    BeamHypothesis to = h;
    if (rules_.has_blank()) {
      const float score = frame_.score(rules_.blank_label);
      to.last = rules_.blank_label;
      to.score = h.score + score;
      candidates_.add(to, edge_of(h, rules_.blank_label, score, false));
    }
    const bool is_token = h.last >= 0 && !(rules_.has_blank() && h.last == rules_.blank_label);
    if (is_token && has_loops_) {
      const float score = frame_.score(h.last);
      TraceEdge edge = edge_of(h, h.last, score, false);
      if (options_.like_flashlight && roles_[h.last] == TokenRole::separator)
        edge.other = static_cast<float>(options_.silence_score);
      to.last = h.last;
      to.score = h.score + score + edge.other;
      candidates_.add(to, edge);
    }
  }

  /// Whether a new token may follow the last label.
  bool may_begin(const BeamHypothesis& h, int32_t label) const {
    if (!rules_.has_blank()) return h.last < 0 || rules_.may_touch(h.last, label);
    if (h.last == rules_.blank_label) return true;
    if (rules_.blank == Blank::forced) return false;
    return h.last < 0 || rules_.may_touch(h.last, label);
  }

  /// All new tokens.
  void move(const BeamHypothesis& h) {
    if (rules_.blank == Blank::forced && h.last != rules_.blank_label) return;
    if (has_roles_) end_word_by_token(h);
    if (h.node == unknown_node_) {
      spell_unknown(h);
      return;
    }
    // Without roles a word may end, and then its score replaces the look-ahead.
    const double most = h.score + max_gain_ - (has_roles_ ? 0.0F : look_ahead_[h.node]);
    const uint32_t begin = lexicon_.first_child(h.node), end = lexicon_.first_child(h.node + 1);
    if (end - begin > kWide) {
      // Tokens with the best scores come first, and no look-ahead is larger than that of the node.
      for (const FrameLabels::Scored& token : frame_.best_first()) {
        if (most + token.score < candidates_.limit()) break;
        if (!may_begin(h, token.label)) continue;
        if (const uint32_t child = lexicon_.child(h.node, token.label); child != 0)
          enter(h, child, token.label, token.score);
      }
    } else {
      for (uint32_t child = begin; child < end; ++child) {
        const int32_t label = lexicon_.token(child);
        if (most + frame_.score(label) < candidates_.limit() || !may_begin(h, label)) continue;
        enter(h, child, label, frame_.score(label));
      }
    }
    if (options_.is_open) spell_unknown(h);
  }

  /// Tokens that continue a word that the lexicon lacks, or that leave the lexicon.
  void spell_unknown(const BeamHypothesis& h) {
    const double most = h.score + max_gain_ + look_ahead_[unknown_node_] - unfinished(h);
    for (const FrameLabels::Scored& token : frame_.best_first()) {
      if (most + token.score < candidates_.limit()) break;
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
  void enter(const BeamHypothesis& h, uint32_t node, int32_t label, float score) {
    if (!(score > -std::numeric_limits<float>::infinity())) return;
    BeamHypothesis to = h;
    TraceEdge edge = edge_of(h, label, score, true);
    to.node = node;
    to.last = label;
    if (options_.unfinished) to.letters += options_.unfinished->letters[label];
    read_hotword(to, edge, label);
    to.score += score + unfinished(to) - unfinished(h);
    if (options_.is_open) to.history = extend_history(h.history, token_symbol(label));
    if (has_roles_) {
      add_above_limit(to, edge);
      return;
    }
    // Without roles a word may end here.
    if (lexicon_.first_child(node) < lexicon_.first_child(node + 1)) add_above_limit(to, edge);
    for (const int32_t word : lexicon_.words(node)) {
      BeamHypothesis ended = to;
      TraceEdge last = edge;
      if (end_word(ended, last, word)) {
        if (!options_.has_label_words) read_boundary(ended, last);
        add_above_limit(ended, last);
      }
    }
  }

  /// Separators and labels that begin words.
  void end_word_by_token(const BeamHypothesis& h) {
    for (const int32_t label : edges_of_words_) {
      const float score = frame_.score(label);
      if (!(score > -std::numeric_limits<float>::infinity()) || !may_begin(h, label)) continue;
      const bool is_separator = roles_[label] == TokenRole::separator;
      if (h.node == 0) {
        if (is_separator && !(h.last == label && has_loops_)) silence(h, label);
        continue;  // a label that begins a word is a child of the root
      }
      if (h.score + score + max_gain_ - unfinished(h) < candidates_.limit()) continue;
      const auto words =
          h.node == unknown_node_ ? std::span<const int32_t>() : lexicon_.words(h.node);
      const auto end = [&](int32_t word) {
        BeamHypothesis to = h;
        TraceEdge edge = edge_of(h, label, score, true);
        to.score += score;
        to.last = label;
        if (!end_word(to, edge, word)) return;
        read_boundary(to, edge);
        if (!is_separator) {
          const uint32_t child = lexicon_.child(0, label);
          if (child == 0 && !options_.is_open) return;
          to.node = child == 0 ? unknown_node_ : child;
          if (options_.unfinished) to.letters = options_.unfinished->letters[label];
          read_hotword_label(to, edge, label);
          to.score += unfinished(to);
          if (options_.is_open) to.history = extend_history(to.history, token_symbol(label));
        }
        add_above_limit(to, edge);
      };
      for (const int32_t word : words) end(word);
      if (words.empty() && options_.is_open) end(kUnknownWord);
    }
  }

  /// A separator between words.
  void silence(const BeamHypothesis& h, int32_t label) {
    const float score = frame_.score(label);
    BeamHypothesis to = h;
    TraceEdge edge = edge_of(h, label, score, true);
    edge.other = static_cast<float>(options_.silence_score);
    to.last = label;
    to.score += static_cast<double>(score) + edge.other;
    read_boundary(to, edge);
    add_above_limit(to, edge);
  }

  /// Ends a word: the hypothesis is at the root again. False if the model forbids it.
  bool end_word(BeamHypothesis& to, TraceEdge& edge, int32_t word) const {
    to.score -= unfinished(to);
    to.node = 0;
    to.letters = 0;
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

  void read_symbol(BeamHypothesis& to, TraceEdge& edge, int32_t symbol) const {
    const HotwordMatcher::Advance match = hotwords_->next(to.hot, symbol);
    to.hot = match.state;
    edge.hotword += match.score;
    to.score += static_cast<double>(match.score);
  }
  void read_boundary(BeamHypothesis& to, TraceEdge& edge) const {
    if (hotwords_ != nullptr) read_symbol(to, edge, decoder_->boundary());
  }
  void read_hotword_label(BeamHypothesis& to, TraceEdge& edge, int32_t label) const {
    if (hotwords_ != nullptr) read_symbol(to, edge, label);
  }
  /// A token inside a word; one that begins a word has a boundary before it.
  void read_hotword(BeamHypothesis& to, TraceEdge& edge, int32_t label) const {
    if (hotwords_ == nullptr) return;
    if (roles_[label] != TokenRole::inside) read_symbol(to, edge, decoder_->boundary());
    if (roles_[label] != TokenRole::separator) read_symbol(to, edge, label);
  }

  void add_above_limit(const BeamHypothesis& to, const TraceEdge& edge) {
    report_.below_beam += !candidates_.add_above_limit(to, edge);
  }

  void add_finals(const BeamHypothesis& h, std::vector<SearchTrace::Final>& out) const {
    if (rules_.blank == Blank::forced && h.last != rules_.blank_label) return;
    const auto end = [&](std::optional<int32_t> word) {
      BeamHypothesis to = h;
      TraceEdge edge = edge_of(h, -1, 0.0F, false);
      double end_score = 0.0;
      if (word && !end_word(to, edge, *word)) return;
      if (session_) {
        float score = session_->end_score(to.grammar);
        if (!(score > -std::numeric_limits<float>::infinity())) return;
        if (!word && options_.unfinished) {
          const GrammarStep step = next(to.grammar, kUnknownWord);
          const float known = score;
          score = step.score + session_->end_score(step.state);
          edge.other = static_cast<float>(options_.word_score + options_.unknown_score);
          end_score = static_cast<double>(edge.other) +
                      options_.lm_weight * static_cast<double>(score - known);
          to.score += static_cast<double>(edge.other);
        }
        edge.language += score;
        to.score += options_.lm_weight * static_cast<double>(score);
      }
      if (hotwords_ != nullptr) {
        read_symbol(to, edge, decoder_->boundary());
        const float refund = hotwords_->finish(to.hot);
        edge.hotword += refund;
        to.score += static_cast<double>(refund);
      }
      // pyctcdecode takes the score of the end from the worst hypothesis with the same words.
      const double rank = options_.unfinished ? -h.score : to.score;
      out.push_back({edge, to.score, to.history, rank, end_score});
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
  const bool has_loops_, has_roles_;
  const uint32_t unknown_node_;
  std::vector<int32_t> edges_of_words_;  // labels with other roles than inside
  /// The most that a step adds to a score, apart from the score of its label.
  double max_gain_ = 0.0;
  std::unique_ptr<GrammarSession> session_;
  mutable std::vector<KnownStep> steps_;  // a cache

  std::vector<BeamHypothesis> beam_;
  SearchTrace trace_;
  SearchReport report_;
  // Of the current frame
  FrameLabels frame_;
  BeamCandidates candidates_;
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
  const bool is_complete = state_->best_final_score() > kNegInf;
  for (Transcript& result : out) result.is_complete = is_complete;
  if (confidences)
    state_->trace().set_confidences(reading, ends, state_->decoder().options().confidence_scale,
                                    out);
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

double BeamStream::final_cost() const {
  if (state_->is_empty()) return std::numeric_limits<double>::infinity();
  return state_->best_path_score() - state_->best_final_score();
}

Graph BeamStream::lattice(double lattice_beam, bool acoustic) const {
  require(lattice_beam >= 0.0, "lattice", "the beam must be 0 or more, but it is ", lattice_beam);
  return state_->trace().graph(state_->reading(), state_->finals(), lattice_beam, acoustic);
}

}  // namespace arcgrad
