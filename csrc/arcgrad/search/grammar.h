#pragma once

// Language models as a search sees them: states, and scores of words. A model has words 0, 1, ...
// of a lexicon, and kUnknownWord.

#include <cstdint>
#include <memory>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/search/ngram_model.h"

namespace arcgrad {

/// A word that the lexicon lacks.
inline constexpr int32_t kUnknownWord = -2;

struct GrammarStep {
  uint32_t state;
  float score;  // -inf: the word cannot follow
};

/// A model during one search. It may make states on demand, so it is used by one thread.
class GrammarSession {
 public:
  virtual ~GrammarSession() = default;
  virtual uint32_t start() = 0;
  virtual GrammarStep next(uint32_t state, int32_t word) = 0;
  /// The score of the end after a state; -inf if it cannot end there.
  virtual float end_score(uint32_t state) = 0;
};

/// A language model. Immutable.
class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<GrammarSession> session() const = 0;
  /// An estimate of the score of a word without a history, by which a search orders partial words.
  virtual float estimate(int32_t word) const = 0;
  /// Whether no score is positive.
  virtual bool has_log_probs() const = 0;
};

/// Word i of the lexicon is the word `numbers[i]` of the model; -1 means that the model lacks it.
/// Words that the model lacks and unknown words are its `<unk>`; without that they have the score
/// 0 and no history.
std::unique_ptr<Grammar> ngram_grammar(std::shared_ptr<const NgramModel> model,
                                       std::vector<int32_t> numbers, bool has_start, bool has_end);

/// An acceptor whose labels are the words of the lexicon; kUnknownWord has the label `unknown`, or
/// cannot occur if that is negative. Paths with the same words are combined by the semiring.
std::unique_ptr<Grammar> graph_grammar(const Graph& graph, Semiring semiring, int32_t unknown);

}  // namespace arcgrad
