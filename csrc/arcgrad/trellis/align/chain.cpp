#include "arcgrad/trellis/align/chain.h"

#include <algorithm>
#include <numeric>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad::trellis {

TokenChain::TokenChain(const char* op, const ChainParts& parts, int32_t labels)
    : num_tokens(static_cast<int32_t>(parts.tokens.size())), skips(parts.skips) {
  const auto [tokens, gaps, entry, optional, _] = parts;
  const size_t count = tokens.size();
  require(gaps.size() == 1 || gaps.size() == count + 1, op, "there must be one gap, or ", count + 1,
          ", but there are ", gaps.size());
  require(entry.empty() || entry.size() == count, op, "there must be ", count,
          " weights of tokens, but there are ", entry.size());
  require(optional.empty() || optional.size() == count, op, "there must be ", count,
          " flags of tokens, but there are ", optional.size());
  const auto check_label = [&](const char* what, int32_t label) {
    require(label >= 0 && label < labels, op, what, " must be a label from 0 to ", labels - 1,
            ", but it is ", label);
  };
  for (const int32_t label : tokens) check_label("a token", label);
  for (const int32_t label : gaps) check_label("the blank", label);
  for (const double weight : entry)
    require(weight <= 0.0, op, "the weight of a token must be at most 0, but it is ", weight);
  int32_t end = 0;
  for (const ChainSkip& skip : skips) {
    require(end <= skip.from && skip.from < skip.to && skip.to <= num_tokens && skip.weight <= 0.0,
            op, "skips must ascend without overlap, but one from ", skip.from, " to ", skip.to,
            " with the weight ", skip.weight, " does not");
    end = skip.to;
  }

  std::vector<int32_t> slot_of(static_cast<size_t>(labels), 0);
  for (const int32_t label : tokens) slot_of[static_cast<size_t>(label)] = 1;
  for (const int32_t label : gaps) slot_of[static_cast<size_t>(label)] = 1;
  for (int32_t label = 0; label < labels; ++label)
    if (slot_of[static_cast<size_t>(label)]) {
      slot_of[static_cast<size_t>(label)] = static_cast<int32_t>(columns.size());
      columns.push_back(label);
    }
  read_columns = columns;
  if (2 * columns.size() >= slot_of.size()) {
    read_columns.resize(slot_of.size());
    std::iota(read_columns.begin(), read_columns.end(), 0);
    slot_of = read_columns;
  }

  const size_t size = count + 1 + 2 * kPad;
  token_slot.assign(size, 0);
  gap_slot.assign(size, 0);
  for (auto* weights : {&enter, &direct, &jump_gap, &jump_token}) weights->assign(size, kNegInf);
  const auto weight = [&](int32_t k) {
    return entry.empty() ? 0.0 : entry[static_cast<size_t>(k - 1)];
  };
  const auto is_optional = [&](int32_t k) {
    return !optional.empty() && optional[static_cast<size_t>(k - 1)];
  };
  const auto label = [&](int32_t k) { return tokens[static_cast<size_t>(k - 1)]; };
  for (int32_t k = 0; k <= num_tokens; ++k) {
    gap_slot[at(k)] =
        slot_of[static_cast<size_t>(gaps[gaps.size() == 1 ? 0 : static_cast<size_t>(k)])];
    if (k > 0) token_slot[at(k)] = slot_of[static_cast<size_t>(label(k))];
    if (k + 1 > num_tokens) continue;
    enter[at(k)] = weight(k + 1);
    const bool repeats = k > 0 && label(k) == label(k + 1);
    if (k > 0 && !repeats) direct[at(k)] = weight(k + 1);
    if (!is_optional(k + 1)) least_frames += repeats && !is_optional(k) ? 2 : 1;
    if (k + 2 > num_tokens || !is_optional(k + 1)) continue;
    require(!is_optional(k + 2), op, "of two neighbouring tokens one must not be optional, but ",
            k + 1, " and ", k + 2, " are");
    jump_gap[at(k)] = weight(k + 2);
    if (k > 0 && label(k) != label(k + 2)) jump_token[at(k)] = weight(k + 2);
  }
  may_drop_last = num_tokens > 0 && is_optional(num_tokens);
  if (!skips.empty()) least_frames = 0;
  is_plain = entry.empty() && optional.empty() && gaps.size() == 1 && skips.empty();
}

TokenChain ctc_chain(const char* op, std::span<const int32_t> target, int32_t blank,
                     int32_t labels) {
  for (size_t i = 0; i < target.size(); ++i)
    require(target[i] >= 0 && target[i] < labels && target[i] != blank, op,
            "a label of the target must be 0 to ", labels - 1, " and not the blank (", blank,
            "), but label ", i, " is ", target[i]);
  ChainParts parts;
  parts.tokens = target;
  parts.gaps = {&blank, 1};
  return TokenChain(op, parts, labels);
}

}  // namespace arcgrad::trellis
