// The forward-backward recursion in a band around an alignment, with mantissas and exponents.
//
// The forward pass keeps the sum of the state of each frame, and the backward pass multiplies it by
// the sum to the end. Cost: O(frames * reach) time, O(frames + tokens) memory.

#include "arcgrad/trellis/align/chain_posteriors.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/align/chain_frames.h"
#include "arcgrad/trellis/align/chain_loops.h"

namespace arcgrad::trellis {
namespace {

constexpr int32_t kBlock = kChainBlock, kPad = TokenChain::kPad, kPollEvery = 64;

/// An array of scaled numbers, all zero.
class ScaledColumn {
 public:
  explicit ScaledColumn(size_t size) : mantissa_(size, 0.0), exponent_(size, kDead) {}
  ScaledRow from(int32_t first) { return {mantissa_.data() + first, exponent_.data() + first}; }

 private:
  std::vector<double> mantissa_;
  std::vector<int64_t> exponent_;
};

struct ScaledNumber {
  double mantissa = 0.0;
  int64_t exponent = kDead;
};

ScaledNumber get(ScaledRow row, int32_t k) { return {row.mantissa[k], row.exponent[k]}; }

void set(ScaledRow row, int32_t k, ScaledNumber x) {
  row.mantissa[k] = x.mantissa;
  row.exponent[k] = x.exponent;
}

ScaledNumber operator*(ScaledNumber a, ScaledNumber b) {
  return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}

ScaledNumber operator+(ScaledNumber a, ScaledNumber b) {
  if (a.mantissa == 0.0) return b;
  if (b.mantissa == 0.0) return a;
  if (a.exponent < b.exponent) std::swap(a, b);
  const int64_t shift = std::max<int64_t>(b.exponent - a.exponent, -2000);
  int exponent = 0;
  const double sum = a.mantissa + std::ldexp(b.mantissa, static_cast<int>(shift));
  const double mantissa = std::frexp(sum, &exponent);
  return {2.0 * mantissa, a.exponent + exponent - 1};
}

/// Tokens and gaps [begin, end).
struct ChainBandRange {
  int32_t begin, end;
};

class ChainBand {
 public:
  ChainBand(const char* op, const TokenChain& chain, const Emissions& emissions,
            const ChainStates& states, int32_t reach)
      : chain_(chain),
        states_(states),
        frames_(op, chain, emissions),
        num_frames_(emissions.frames),
        reach_(reach),
        size_((chain.num_tokens + kBlock) / kBlock * kBlock),
        loops_(ARCGRAD_LOOPS(chain)),
        emissions_(static_cast<size_t>(round(frames_.num_slots()))),
        unsplit_(static_cast<size_t>(round(frames_.num_slots())), 0.0) {
    for (const auto* weights : {&chain.enter, &chain.direct, &chain.jump_gap, &chain.jump_token}) {
      weights_.emplace_back(weights->size() + kBlock);
      loops_.split(weights->data(), static_cast<int32_t>(weights->size()) / kBlock * kBlock,
                   weights_.back().from(0));
    }
    arcs_ = {chain.token_slot.data() + kPad,
             chain.gap_slot.data() + kPad,
             weights_[0].from(kPad),
             weights_[1].from(kPad),
             weights_[2].from(kPad),
             weights_[3].from(kPad),
             emissions_.from(0)};
    for (const ChainSkip& skip : chain.skips) {
      ScaledColumn weight(kBlock);
      const double values[kBlock] = {skip.weight, 0.0, 0.0, 0.0};
      loops_.split(values, kBlock, weight.from(0));
      skips_.push_back(get(weight.from(0), 0));
    }
  }

  std::vector<double> posteriors() {
    const auto count = static_cast<size_t>(num_frames_);
    std::vector<ScaledNumber> reached(count);
    BandRows rows(size_);
    set(rows.now.gap, 0, {1.0, 0});
    for (size_t i = 0; i < skips_.size(); ++i)
      add_skip(rows.now, i, chain_.skips[i].from, chain_.skips[i].to);
    ChainBandRange have{0, size_};
    for (int32_t t = 0; t < num_frames_; ++t) {
      read(t);
      const ChainBandRange want = band(t);
      clear_outside(rows.now, have, want);
      loops_.forward(arcs_, rows.now, want.begin, want.end, rows.next);
      for (size_t i = first_skip(want.begin); i < skips_.size() && chain_.skips[i].to < want.end;
           ++i)
        add_skip(rows.next, i, chain_.skips[i].from, chain_.skips[i].to);
      std::swap(rows.now, rows.next);
      have = want;
      reached[static_cast<size_t>(t)] = at_state(rows.now, t);
    }
    const int32_t last = chain_.num_tokens;
    ScaledNumber total = get(rows.now.gap, last) + get(rows.now.token, last);
    if (chain_.may_drop_last)
      total = total + get(rows.now.gap, last - 1) + get(rows.now.token, last - 1);

    rows = BandRows(size_);
    const auto end_at = [&](int32_t k) {
      set(rows.now.gap, k, {1.0, 0});
      if (k > 0) set(rows.now.token, k, {1.0, 0});
    };
    end_at(last);
    if (chain_.may_drop_last) end_at(last - 1);
    for (size_t i = skips_.size(); i-- > 0;)
      add_skip(rows.now, i, chain_.skips[i].to, chain_.skips[i].from);
    std::vector<double> out(count);
    for (int32_t t = num_frames_; t-- > 0;) {
      const ScaledNumber both = reached[static_cast<size_t>(t)] * at_state(rows.now, t);
      const auto shift = std::clamp<int64_t>(both.exponent - total.exponent, -2000, 2000);
      out[static_cast<size_t>(t)] =
          std::min(1.0, std::ldexp(both.mantissa / total.mantissa, static_cast<int>(shift)));
      if (t == 0) break;
      read(t);
      const ChainBandRange want = band(t - 1);
      clear_outside(rows.now, band(t), want);
      loops_.backward(arcs_, rows.now, want.begin, want.end, rows.next);
      for (size_t i = first_skip(want.end); i-- > 0 && chain_.skips[i].from >= want.begin;)
        if (chain_.skips[i].to < want.end)
          add_skip(rows.next, i, chain_.skips[i].to, chain_.skips[i].from);
      std::swap(rows.now, rows.next);
    }
    return out;
  }

 private:
  struct BandRows {
    explicit BandRows(int32_t size)
        : columns(4, ScaledColumn(static_cast<size_t>(size + 2 * kPad))),
          now{columns[0].from(kPad), columns[1].from(kPad)},
          next{columns[2].from(kPad), columns[3].from(kPad)} {}
    std::vector<ScaledColumn> columns;
    ScaledChainRow now, next;
  };

  static int32_t round(int32_t k) { return (k + kBlock - 1) / kBlock * kBlock; }

  /// The tokens and gaps that take part in frame t, multiples of a block.
  ChainBandRange band(int32_t t) const {
    const int64_t k = (states_[static_cast<size_t>(t)] + 1) / 2;
    const auto begin = static_cast<int32_t>(std::max<int64_t>(k - reach_, 0)) / kBlock * kBlock;
    const auto end = static_cast<int32_t>(std::min<int64_t>(k + reach_ + 1, size_));
    return {begin, std::min(round(end), size_)};
  }

  ScaledNumber at_state(ScaledChainRow row, int32_t t) const {
    const int32_t state = states_[static_cast<size_t>(t)];
    return state % 2 ? get(row.token, (state + 1) / 2) : get(row.gap, state / 2);
  }

  void read(int32_t t) {
    if (t % kPollEvery == 0) poll_interrupt();
    std::copy_n(frames_.read(t), frames_.num_slots(), unsplit_.data());
    loops_.split(unsplit_.data(), static_cast<int32_t>(unsplit_.size()), emissions_.from(0));
  }

  /// Sets to zero what loops over `want` read outside of `have`.
  void clear_outside(ScaledChainRow row, ChainBandRange have, ChainBandRange want) const {
    for (const ScaledRow part : {row.gap, row.token}) {
      for (int32_t k = want.begin - kPad; k < std::min(have.begin, want.end + kPad); ++k)
        set(part, k, {});
      for (int32_t k = std::max(have.end, want.begin - kPad); k < want.end + kPad; ++k)
        set(part, k, {});
    }
  }

  /// The first skip from gap k or a later one.
  size_t first_skip(int32_t k) const {
    return static_cast<size_t>(std::ranges::lower_bound(chain_.skips, k, {}, &ChainSkip::from) -
                               chain_.skips.begin());
  }

  /// Adds what passes skip i in one of its directions.
  void add_skip(ScaledChainRow row, size_t i, int32_t from, int32_t to) const {
    set(row.gap, to, get(row.gap, to) + get(row.gap, from) * skips_[i]);
  }

  const TokenChain& chain_;
  const ChainStates& states_;
  ChainFrames frames_;
  int32_t num_frames_, reach_, size_;
  const ChainTable& loops_;
  std::vector<ScaledColumn> weights_;
  ScaledColumn emissions_;
  std::vector<double> unsplit_;
  ScaledChainArcs arcs_{};
  std::vector<ScaledNumber> skips_;
};

}  // namespace

std::vector<double> chain_posteriors(const char* op, const TokenChain& chain,
                                     const Emissions& emissions, const ChainStates& states,
                                     int32_t reach) {
  return ChainBand(op, chain, emissions, states, reach).posteriors();
}

}  // namespace arcgrad::trellis
