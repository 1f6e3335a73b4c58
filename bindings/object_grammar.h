#pragma once

// Language models that are objects of Python.

#include <vector>

#include "arcgrad/search/grammar.h"
#include "common.h"

namespace arcgrad::bindings {

/// A model whose methods are called while a search runs: `start()` returns a state,
/// `next(state, word)` a state and a score, `end_score(state)` a score. States are hashable.
/// Threads take turns with the GIL.
class ObjectGrammar final : public Grammar {
 public:
  /// `estimates` has a score for each word, or is empty.
  ObjectGrammar(nb::object model, std::vector<float> estimates, bool has_log_probs)
      : model_(std::move(model)), estimates_(std::move(estimates)), has_log_probs_(has_log_probs) {}

  class Session final : public GrammarSession {
   public:
    explicit Session(const nb::object& model) : model_(model) {}
    ~Session() override {
      const nb::gil_scoped_acquire gil;
      numbers_.reset();
      states_.clear();
    }
    Session(const Session&) = delete;

    uint32_t start() override {
      const nb::gil_scoped_acquire gil;
      numbers_ = nb::dict();
      return number(model_.attr("start")());
    }
    GrammarStep next(uint32_t state, int32_t word) override {
      const nb::gil_scoped_acquire gil;
      const nb::object step = model_.attr("next")(states_[state], word);
      const auto score = nb::cast<float>(nb::object(step[1]));
      require(score < std::numeric_limits<float>::infinity(), "decode",
              "scores of a language model must be finite or -inf, but one is ", score);
      return {number(nb::object(step[0])), score};
    }
    float end_score(uint32_t state) override {
      const nb::gil_scoped_acquire gil;
      return nb::cast<float>(model_.attr("end_score")(states_[state]));
    }

   private:
    uint32_t number(const nb::object& state) {
      const nb::object known = numbers_.attr("setdefault")(state, states_.size());
      const auto out = nb::cast<uint32_t>(known);
      if (out == states_.size()) states_.push_back(state);
      return out;
    }

    const nb::object& model_;
    nb::object numbers_;  // of states: a dict
    std::vector<nb::object> states_;
  };

  std::unique_ptr<GrammarSession> session() const override {
    return std::make_unique<Session>(model_);
  }
  float estimate(int32_t word) const override {
    const auto at = static_cast<size_t>(word);
    return word >= 0 && at < estimates_.size() ? estimates_[at] : 0.0F;
  }
  bool has_log_probs() const override { return has_log_probs_; }

 private:
  nb::object model_;
  std::vector<float> estimates_;
  bool has_log_probs_;
};

}  // namespace arcgrad::bindings
