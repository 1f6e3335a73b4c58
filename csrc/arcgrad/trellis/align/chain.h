#pragma once

// A sequence of tokens as the linear trellis of its alignments with frames.
//
// With U tokens there are states b_0, y_1, b_1, ..., y_U, b_U: y_k consumes frames of token k, b_k
// the frames between tokens k and k + 1 (the gap), whose label is the blank or the like. A path
// begins in b_0 before the first frame, and each frame is consumed by the state that it enters:
//
//     b_k -> b_k, y_{k+1}          y_k -> y_k, b_k, y_{k+1} (if their labels differ)
//
// An optional token k + 1 may be jumped over: b_k -> y_{k+2} and y_k -> y_{k+2}. A skip is an
// epsilon arc from b_from to b_to: the tokens between are missing from the frames.

#include <cstdint>
#include <span>
#include <vector>

namespace arcgrad::trellis {

/// An epsilon arc from a gap to a later gap. Its weight is at most 0.
struct ChainSkip {
  int32_t from, to;
  double weight;
};

/// What a chain is made of. Only `tokens` and `gaps` are required.
struct ChainParts {
  std::span<const int32_t> tokens;  // the column of the emissions of each token
  std::span<const int32_t> gaps;    // of each gap, or one for all
  std::span<const double> entry;    // the weight of entering each token, at most 0
  std::span<const bool> optional;   // of each token; no two neighbours
  std::vector<ChainSkip> skips;     // ascending, without overlap
};

class TokenChain {
 public:
  /// Throws if the parts do not fit together, or to emissions of `labels` labels.
  TokenChain(const char* op, const ChainParts& parts, int32_t labels);

  /// Arrays over states are padded by this many entries on both sides.
  static constexpr int32_t kPad = 8;

  /// The entry of token k, or of the gap after it, in the arrays below; k is in [0, num_tokens].
  static size_t at(int32_t k) { return static_cast<size_t>(k + kPad); }

  int32_t num_tokens;
  std::vector<int32_t> columns;  // distinct columns of emissions, ascending
  /// The columns that are read from a frame: those above, or all if most are needed.
  std::vector<int32_t> read_columns;
  /// The position in `read_columns` of each token and gap. y_0 stands for no state.
  std::vector<int32_t> token_slot, gap_slot;
  /// Weights of arcs from b_k to y_{k+1}, y_k to y_{k+1}, b_k to y_{k+2}, and y_k to y_{k+2}.
  std::vector<double> enter, direct, jump_gap, jump_token;
  std::vector<ChainSkip> skips;
  bool is_plain;           // only `direct` differs from that of a chain without options
  bool may_drop_last;      // the last token is optional
  int32_t least_frames{};  // of any path; 0 if there are skips
};

/// The chain of a CTC target. Throws unless it consists of labels that are not the blank.
TokenChain ctc_chain(const char* op, std::span<const int32_t> target, int32_t blank,
                     int32_t labels);

}  // namespace arcgrad::trellis
