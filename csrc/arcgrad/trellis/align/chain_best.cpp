// Best alignments in a window that moves along the tokens, with a proof that nothing outside of it
// is better.
//
// A row holds, for each state, the best score from there to the end with some number of frames
// left. Rows are computed from the end to the begin; only the last one is in memory, and a copy at
// the begin of each segment of frames. The traceback goes from the first frame to the last, and
// computes the rows of one segment again, for the few states that the path can reach in it.
//
// A window of tokens moves with the best state. Tokens above and below it are one state each, whose
// score is an upper bound of all scores there: a frame adds its largest emission, whatever the arc.
// The bound takes part in the recursion, so the best path of this relaxed problem scores at least
// as much as the best alignment. If that path does not touch the bounds, it is the best alignment.
// If it does, the next pass is four times as wide. A window of all tokens needs no bounds.
//
// Cost: O(frames * width) time, and O(frames / segment * width + segment^2) memory.

#include "arcgrad/trellis/align/chain_best.h"

#include <cmath>
#include <limits>
#include <optional>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/align/chain_frames.h"
#include "arcgrad/trellis/align/chain_loops.h"

namespace arcgrad::trellis {
namespace {

constexpr int32_t kBlock = kChainBlock;
constexpr int32_t kPad = TokenChain::kPad;
/// Rows of all frames are kept if they fit into so many bytes, which the second cache holds.
constexpr double kKeptBytes = 256 << 10;
/// Segments are so long that saved rows fit into so many bytes, if that is possible.
constexpr double kSavedBytes = 64 << 20;
constexpr int32_t kLeastSegment = 64, kLeastWidth = 1024, kFramesPerWidth = 48, kWiden = 4;
constexpr int32_t kPollEvery = 64;

int32_t round_up(int32_t k) { return (k + kBlock - 1) / kBlock * kBlock; }

/// A range of tokens and gaps, multiples of the block.
struct ChainWindow {
  int32_t begin, end;
  int32_t size() const { return end - begin; }
};

/// The scores of a range of tokens and gaps for several numbers of frames left.
class ChainRows {
 public:
  ChainRows(ChainWindow range, int32_t count)
      : range_(range), half_(range.size() + 2 * kPad), scores_(int64_t{2} * half_ * count) {
    std::fill_n(scores_.get(), 2 * half_, kNegInf);
  }

  /// Row i, whose entries are addressed by the number of the token.
  ChainRow<double> row(int32_t i) const {
    double* const begin = scores_.get() + int64_t{2} * half_ * i + kPad - range_.begin;
    return {begin, begin + half_};
  }
  const ChainWindow& range() const { return range_; }

 private:
  ChainWindow range_;
  int64_t half_;
  AlignedBuffer<double> scores_;
};

struct ChainState {
  int32_t k;
  bool is_token;
};

/// One pass with a window of a given width.
class ChainPass {
 public:
  ChainPass(const char* op, const TokenChain& chain, const Emissions& emissions, int32_t width,
            const ChainBestOptions& options)
      : chain_(chain),
        frames_(op, chain, emissions),
        num_frames_(emissions.frames),
        all_(round_up(chain.num_tokens + 1)),
        width_(std::min(round_up(width), all_)),
        loops_(ARCGRAD_LOOPS(chain)) {
    arcs_ = {entry(chain.token_slot), entry(chain.gap_slot), entry(chain.enter),
             entry(chain.direct),     entry(chain.jump_gap), entry(chain.jump_token)};
    segment_ = options.segment > 0 ? options.segment : choose_segment();
    if (segment_ >= num_frames_) {
      segment_ = std::max(num_frames_, 1);
      width_ = all_;
    }
  }

  int32_t width() const { return width_; }
  bool is_complete() const { return width_ == all_; }

  /// The best path; nothing if another state may be better.
  std::optional<ChainAlignment> run() {
    ChainAlignment out;
    out.width = std::min(width_, chain_.num_tokens + 1);
    if (has_segments())
      go_back();
    else
      saved_.push_back({{0, all_}, kNegInf, kNegInf, 0});
    out.states.reserve(static_cast<size_t>(num_frames_));
    ChainState state{0, false};
    for (size_t s = saved_.size(); s-- > 0;)
      if (!follow(s, state, out)) {
        if (out.score == kNegInf) return ChainAlignment{kNegInf, {}, out.width, 0};
        return std::nullopt;
      }
    return out;
  }

 private:
  /// The state of the recursion at the begin of a segment.
  struct Saved {
    ChainWindow window;
    double below, above;  // upper bounds of scores of all states outside of the window
    size_t scores;        // of the row of the window, in kept_
  };

  bool has_segments() const { return segment_ < num_frames_; }

  /// Few frames need few rows for the traceback, and many need few saved rows.
  int32_t choose_segment() const {
    const double frames = num_frames_, row_bytes = 16.0 * (width_ + 2 * kPad);
    if (16.0 * (all_ + 2 * kPad) * (frames + 1.0) <= kKeptBytes) return num_frames_;
    const double balance = chain_.skips.empty() ? std::cbrt(frames * width_) : std::sqrt(frames);
    return std::max(kLeastSegment,
                    static_cast<int32_t>(std::min(balance, frames * row_bytes / kSavedBytes)));
  }

  template <class V>
  static const V* entry(const std::vector<V>& values) {
    return values.data() + kPad;
  }
  static ChainRow<const double> read_only(ChainRow<double> row) { return {row.gap, row.token}; }

  /// Sets the scores of the states at which a path may end.
  void set_last(ChainRow<double> row) const {
    const int32_t last = chain_.num_tokens;
    row.gap[last] = 0.0;
    if (last > 0) row.token[last] = 0.0;
    if (chain_.may_drop_last) {
      row.gap[last - 1] = 0.0;
      if (last > 1) row.token[last - 1] = 0.0;
    }
    skip({0, all_}, kNegInf, row);
  }

  /// Applies the epsilon arcs that leave the gaps of a window.
  void skip(ChainWindow window, double above, ChainRow<double> row) const {
    const auto& skips = chain_.skips;
    auto it = std::ranges::lower_bound(skips, window.end, {}, &ChainSkip::from);
    while (it != skips.begin() && (--it)->from >= window.begin) {
      const double to = it->to < window.end ? row.gap[it->to] : above;
      row.gap[it->from] = std::max(row.gap[it->from], it->weight + to);
    }
  }

  /// Computes the row with `left` frames left, of a part of a window.
  void step(int32_t left, ChainWindow part, double above, ChainRow<double> before,
            ChainRow<double> after) {
    if (left % kPollEvery == 0) poll_interrupt();
    std::fill_n(before.token + part.end, kBlock, above);
    const double* const emissions = frames_.read(num_frames_ - left);
    const auto advance = chain_.is_plain ? loops_.best_plain : loops_.best;
    advance(arcs_, emissions, read_only(before), part.begin, part.end, after);
    if (!chain_.skips.empty()) skip(part, above, after);
  }

  /// Computes all rows from the end to the begin, and saves those at the begin of segments.
  void go_back() {
    const ChainRows scores({0, all_}, 1);
    const ChainRow<double> row = scores.row(0);
    ChainWindow window{all_ - width_, all_};
    set_last(row);
    double below = kNegInf, above = kNegInf;
    if (window.begin > 0 && !chain_.skips.empty()) below = 0.0;
    for (int32_t done = 0; done < num_frames_; done += segment_) {
      if (!is_complete()) move(done, row, window, below, above);
      saved_.push_back({window, below, above, kept_.size()});
      kept_.insert(kept_.end(), row.gap + window.begin, row.gap + window.end);
      kept_.insert(kept_.end(), row.token + window.begin, row.token + window.end);
      const int32_t end = std::min(done + segment_, num_frames_);
      for (int32_t left = done + 1; left <= end; ++left) {
        if (is_complete()) {
          step(left, window, kNegInf, row, row);
          continue;
        }
        const double at_border = std::max(
            {below, row.token[window.begin], row.token[window.begin + 1], row.gap[window.begin]});
        step(left, window, above, row, row);
        const double most = frames_.largest();
        below = at_border + most;
        above += most;
        const auto after =
            std::ranges::lower_bound(chain_.skips, window.begin, {}, &ChainSkip::from);
        if (after != chain_.skips.begin() && (after - 1)->to >= window.begin) {
          const int32_t to = (after - 1)->to;
          below = std::max(below, to < window.end ? row.gap[to] : above);
        }
      }
    }
  }

  /// Moves the window down to the best state, with `done` frames left.
  void move(int32_t done, ChainRow<double> row, ChainWindow& window, double& below,
            double& above) const {
    int32_t best = window.begin;
    for (int32_t k = window.begin; k < window.end; ++k)
      if (std::max(row.gap[k], row.token[k]) > std::max(row.gap[best], row.token[best])) best = k;
    // The last window must begin with the first token.
    const int64_t reach = num_frames_ - int64_t{done} - segment_;
    const int64_t wanted = std::min({int64_t{best} - width_ / 2, int64_t{window.begin}, reach});
    const int32_t begin = static_cast<int32_t>(std::max(wanted, int64_t{0})) / kBlock * kBlock;
    if (begin == window.begin) return;
    const int32_t end = begin + width_;
    for (int32_t k = end; k < window.end; ++k) above = std::max({above, row.gap[k], row.token[k]});
    for (int32_t k = begin; k < std::min(window.begin, end); ++k) row.gap[k] = row.token[k] = below;
    if (end < window.begin) above = std::max(above, below);
    window = {begin, end};
  }

  /// Makes the rows of a segment for a part of its window, and sets the first.
  ChainRows begin_segment(const Saved& saved, ChainWindow part, int32_t count) const {
    ChainRows rows(part, count + 1);
    if (!has_segments()) {
      set_last(rows.row(0));
      return rows;
    }
    const double* const from = kept_.data() + saved.scores + (part.begin - saved.window.begin);
    std::copy_n(from, part.size(), rows.row(0).gap + part.begin);
    std::copy_n(from + saved.window.size(), part.size(), rows.row(0).token + part.begin);
    return rows;
  }

  /// Follows the best path from `state` through a segment. Returns false if it leaves the window.
  bool follow(size_t s, ChainState& state, ChainAlignment& out) {
    const Saved& saved = saved_[s];
    const auto first = static_cast<int32_t>(s) * segment_;  // frames left at the end of the segment
    const int32_t last = std::min(first + segment_, num_frames_);
    if (state.k < saved.window.begin || state.k >= saved.window.end) return false;
    ChainWindow part = saved.window;
    if (has_segments()) {
      part.begin = state.k / kBlock * kBlock;
      // A frame leads to the next token or, over an optional one, to the token after it.
      const int64_t reach = int64_t{chain_.is_plain ? 1 : 2} * (last - first);
      if (chain_.skips.empty() && part.end - state.k > reach + 2 * kBlock)
        part.end = round_up(state.k + static_cast<int32_t>(reach) + kBlock);
    }
    const ChainRows rows = begin_segment(saved, part, last - first);
    double above = saved.above;
    for (int32_t left = first + 1; left <= last; ++left) {
      step(left, part, part.end == saved.window.end ? above : kNegInf, rows.row(left - first - 1),
           rows.row(left - first));
      if (!is_complete()) above += frames_.largest();
    }
    if (s + 1 == saved_.size()) {
      out.score = rows.row(last - first).gap[0];
      if (out.score == kNegInf) return false;
    }
    for (int32_t left = last; left > first; --left)
      if (!trace(left, saved.window, rows, first, state, out)) return false;
    return true;
  }

  /// Finds the state that consumes the next frame: of those on best paths, the one with the least
  /// label. Returns false if it is outside of the window.
  bool trace(int32_t left, ChainWindow window, const ChainRows& rows, int32_t first,
             ChainState& state, ChainAlignment& out) const {
    const ChainRow<double> now = rows.row(left - first), next = rows.row(left - first - 1);
    const int32_t t = num_frames_ - left;
    while (true) {
      const int32_t k = state.k;
      const double score = state.is_token ? now.token[k] : now.gap[k];
      if (!state.is_token) {
        const auto skip = std::ranges::lower_bound(chain_.skips, k, {}, &ChainSkip::from);
        if (skip != chain_.skips.end() && skip->from == k) {
          if (skip->to >= window.end) return false;
          if (skip->weight + now.gap[skip->to] == score) {
            state.k = skip->to;
            continue;
          }
        }
      }
      int32_t slot = frames_.num_slots();
      ChainState to{-1, false};
      const auto offer = [&](int32_t other, bool is_token, double weight) {
        const int32_t its = is_token ? arcs_.token_slot[other] : arcs_.gap_slot[other];
        const double rest = is_token ? next.token[other] : next.gap[other];
        if (its >= slot || rest + frames_.value(t, its) + weight != score) return;
        slot = its;
        to = {other, is_token};
      };
      offer(k, false, 0.0);
      if (state.is_token) offer(k, true, 0.0);
      if (k < chain_.num_tokens)
        offer(k + 1, true, state.is_token ? arcs_.direct[k] : arcs_.enter[k]);
      if (k + 1 < chain_.num_tokens && !chain_.is_plain)
        offer(k + 2, true, state.is_token ? arcs_.jump_token[k] : arcs_.jump_gap[k]);
      if (to.k < 0 || to.k >= window.end) return false;
      state = to;
      out.states.push_back(2 * to.k - (to.is_token ? 1 : 0));
      return true;
    }
  }

  const TokenChain& chain_;
  ChainFrames frames_;
  int32_t num_frames_, all_, width_, segment_;
  const ChainTable& loops_;
  ChainArcs arcs_{};
  std::vector<Saved> saved_;
  Buffer<double> kept_;
};

}  // namespace

ChainAlignment align_chain(const char* op, const TokenChain& chain, const Emissions& emissions,
                           const ChainBestOptions& options) {
  int32_t width = options.width;
  if (width <= 0) width = std::max(kLeastWidth, emissions.frames / kFramesPerWidth);
  int32_t passes = 0;
  if (emissions.frames < chain.least_frames) return {};
  while (true) {
    ChainPass pass(op, chain, emissions, width, options);
    ++passes;
    if (auto found = pass.run()) {
      found->passes = passes;
      return *std::move(found);
    }
    width = pass.width() > std::numeric_limits<int32_t>::max() / kWiden ? chain.num_tokens + 1
                                                                        : pass.width() * kWiden;
  }
}

}  // namespace arcgrad::trellis
