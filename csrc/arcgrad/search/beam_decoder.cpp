#include "arcgrad/search/beam_decoder.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/runtime/error.h"

namespace arcgrad {

BeamDecoder::BeamDecoder(DecoderParts parts, DecoderOptions options)
    : parts_(std::move(parts)), options_(options) {
  constexpr const char* kName = "CTCDecoder";
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
        std::pair(options_.confidence_scale, "confidence_scale"),
        std::pair(options_.lm_weight, "the weight of the model")})
    require(value >= 0.0, kName, name, " must be 0 or more, but it is ", value);
  require(options_.max_active >= 1, kName, "max_active must be 1 or more, but it is ",
          options_.max_active);
  require(options_.max_tokens >= 1, kName, "max_tokens must be 1 or more, but it is ",
          options_.max_tokens);
  for (const auto& [value, name] : {std::pair(options_.lm_weight, "the weight of the model"),
                                    std::pair(options_.confidence_scale, "confidence_scale"),
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
  if (options_.unfinished)
    require(options_.unfinished->letters.size() == parts_.roles.size(), kName,
            "there must be one number of letters for each label");
  if (!parts_.grammar || options_.lm_weight == 0.0 || options_.unfinished) return;
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

}  // namespace arcgrad
