#pragma once

// Beam search over tokens, a lexicon and a language model, composed on the fly.
//
// Between two frames a hypothesis is a node of the lexicon tree, the last label, and the states of
// the language model and of the hotwords. The rules of the tokens are applied to the last label, so
// they cost no graph. A partial word is scored by the best word below its node (look-ahead), which
// is replaced by the score of the language model when the word is complete.
//
// Hypotheses with equal states are merged. With Merge::max the best one is kept, and with
// Merge::sum scores are added, and then the words so far are part of the state: the result is a
// prefix search. Words so far are compared by hashes of 64 bits.
//
// A frame costs O(hypotheses + children of their nodes that are within the beam), whatever the
// sizes of lexicon and language model.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/search/grammar.h"
#include "arcgrad/search/hotwords.h"
#include "arcgrad/search/lexicon_tree.h"
#include "arcgrad/search/trace.h"
#include "arcgrad/tokens/tokens.h"

namespace arcgrad {

/// What happens when two hypotheses have the same state.
enum class Merge : uint8_t { max, sum };

/// How words are scored before they end, in the manner of pyctcdecode: known beginnings add
/// nothing, and an end between words counts as an unknown word without letters.
struct UnfinishedWords {
  /// Of a beginning that no word of the lexicon has, unless it begins a hotword; with more than
  /// kUsualLetters letters in proportion to their number.
  double unknown_score = 0.0;
  static constexpr double kUsualLetters = 6.0;
  /// By label.
  std::vector<uint32_t> letters;
};

/// What a token means for words.
enum class TokenRole : uint8_t {
  inside,     // spells a part of a word
  separator,  // ends a word, and belongs to none
  begins      // ends a word, and is the first of the next one
};

struct DecoderOptions {
  /// The largest difference between the best score of a frame and that of a hypothesis.
  double beam = std::numeric_limits<double>::infinity();
  /// The largest number of hypotheses.
  int64_t max_active = std::numeric_limits<int64_t>::max();
  /// Labels that are this much below the best label of a frame are not read, and at most this many
  /// are.
  double token_beam = std::numeric_limits<double>::infinity();
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  Merge merge = Merge::max;
  /// Confidences are posteriors of scores times this.
  double confidence_scale = 1.0;
  double lm_weight = 1.0;
  /// Added for each word, for each word that the lexicon lacks, and for each separator that ends no
  /// word.
  double word_score = 0.0, unknown_score = 0.0, silence_score = 0.0;
  /// Whether words that the lexicon lacks are spelled by any tokens. Needs separators or labels
  /// that begin words.
  bool is_open = false;
  /// Whether words are labels: then roles matter to hotwords only.
  bool has_label_words = false;
  /// Replaces the look-ahead.
  std::optional<UnfinishedWords> unfinished;
  /// If not 0, only the best hypothesis is kept of those whose last words, this many, and partial
  /// words are equal.
  int32_t compared_words = 0;
  /// Whether, in the manner of flashlight, results end between words if some path does, and each
  /// further frame of a separator gets the score of a silence.
  bool like_flashlight = false;
};

/// What the search knows; shared by all streams. Immutable.
struct DecoderParts {
  Tokens tokens;
  /// By label. Without separators and labels that begin words, a word ends with its spelling.
  std::vector<TokenRole> roles;
  std::shared_ptr<const LexiconTree> lexicon;
  /// May be null.
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const HotwordMatcher> hotwords;
};

class BeamDecoder {
 public:
  BeamDecoder(DecoderParts parts, DecoderOptions options);

  const DecoderParts& parts() const { return parts_; }
  const DecoderOptions& options() const { return options_; }
  int32_t num_labels() const { return parts_.tokens.num_labels(); }
  /// Whether words end with separators or labels that begin words.
  bool has_roles() const { return has_roles_; }
  const Buffer<float>& look_ahead() const { return look_ahead_; }
  /// The node of a partial word that the lexicon lacks.
  uint32_t unknown_node() const { return parts_.lexicon->num_nodes(); }
  /// The symbol of hotwords for the edge of a word.
  int32_t boundary() const { return num_labels(); }

 private:
  DecoderParts parts_;
  DecoderOptions options_;
  bool has_roles_ = false;
  /// By node of the lexicon, and for unknown_node(): the largest weighted score of a word at or
  /// below it, relative to that of all words.
  Buffer<float> look_ahead_;
};

/// What a search has pruned.
struct SearchReport {
  int64_t frames = 0, hypotheses = 0, most_hypotheses = 0;
  /// Hypotheses dropped because of the beam, and because of max_active; labels that were not read.
  int64_t below_beam = 0, beyond_active = 0, tokens = 0;
};

}  // namespace arcgrad
