#include "arcgrad/search/trace.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/search/grammar.h"
#include "arcgrad/search/hashing.h"

namespace arcgrad {

Transcript SearchTrace::read(const Reading& reading, std::span<const TraceEdge> path) const {
  Transcript out;
  int32_t word_begin = 0;
  bool is_inside = false;  // whether the frame before belongs to the last token
  for (size_t k = 0; k < path.size(); ++k) {
    const TraceEdge& edge = path[k];
    const auto frame = static_cast<int32_t>(k);
    const auto num_before = static_cast<int32_t>(out.tokens.size());
    if (edge.is_new)
      out.tokens.push_back({edge.label, frame, frame + 1});
    else if (is_inside && edge.label >= 0 && edge.label == out.tokens.back().label)
      out.tokens.back().end = frame + 1;
    is_inside = edge.label >= 0 && edge.label != reading.blank && !out.tokens.empty();
    const auto num_tokens = static_cast<int32_t>(out.tokens.size());
    if (edge.word != TraceEdge::kNoWord) {
      const int32_t end = reading.word_has_token ? num_tokens : num_before;
      out.words.push_back({edge.word, word_begin, end, frame, 1.0});
      word_begin = end;
    }
    if (edge.is_new && reading.is_separator[static_cast<size_t>(edge.label)] &&
        !(reading.word_has_token && edge.word != TraceEdge::kNoWord))
      word_begin = num_tokens;
    out.score += reading.weights.of(edge);
    out.acoustic += static_cast<double>(edge.acoustic);
    out.language += static_cast<double>(edge.language);
    out.hotword += static_cast<double>(edge.hotword);
  }
  return out;
}

Transcript SearchTrace::follow(const Reading& reading, const Final& end) const {
  std::vector<TraceEdge> path{end.edge};
  for (uint32_t node = end.edge.src; node != 0; node = best_[node].src) path.push_back(best_[node]);
  std::ranges::reverse(path);
  return read(reading, path);
}

namespace {

/// A hash of the words of a result, and of the tokens of unknown words.
uint64_t hash_words(const Transcript& result) {
  uint64_t out = 0;
  for (const Transcript::Word& word : result.words) {
    if (word.word == kUnknownWord)
      for (int32_t k = word.begin; k < word.end; ++k)
        out = extend_history(out, token_symbol(result.tokens[k].label));
    out = extend_history(out, word.word);
  }
  return out;
}

}  // namespace

std::vector<Transcript> SearchTrace::best_histories(const Reading& reading,
                                                    std::span<const Final> ends, int64_t n) const {
  struct Sum {
    const Final* best;
    double score;
  };
  std::unordered_map<uint64_t, size_t> known;
  std::vector<Sum> sums;
  for (const Final& end : ends) {
    // Histories of open lexicons have the tokens of known words too.
    const uint64_t key = reading.is_open ? hash_words(follow(reading, end)) : end.history;
    const auto [at, is_new] = known.try_emplace(key, sums.size());
    if (is_new) {
      sums.push_back({&end, end.score - end.end_score});
      continue;
    }
    Sum& sum = sums[at->second];
    if (end.rank > sum.best->rank) sum.best = &end;
    sum.score = logadd(sum.score, end.score - end.end_score);
  }
  for (Sum& sum : sums) sum.score += sum.best->end_score;
  std::ranges::stable_sort(sums, std::greater(), &Sum::score);
  if (static_cast<int64_t>(sums.size()) > n) sums.resize(static_cast<size_t>(n));
  std::vector<Transcript> out;
  for (const Sum& sum : sums) {
    Transcript& result = out.emplace_back(follow(reading, *sum.best));
    // All paths with these words have the same other scores.
    result.acoustic += sum.score - result.score;
    result.score = sum.score;
  }
  return out;
}

std::vector<SearchTrace::WeightedEdge> SearchTrace::edges(const EdgeWeights& weights,
                                                          std::span<const Final> ends) const {
  std::vector<WeightedEdge> out;
  out.reserve(best_.size() + others_.size() + ends.size());
  for (size_t t = 0; t + 1 < first_node_.size(); ++t) {
    const auto frame = static_cast<int32_t>(t);
    for (uint32_t node = first_node_[t]; node < first_node_[t + 1]; ++node)
      out.push_back({best_[node].src, node, frame, weights.of(best_[node]), &best_[node]});
    for (size_t k = first_other_[t]; k < first_other_[t + 1]; ++k) {
      const auto& [dst, edge] = others_[k];
      out.push_back({edge.src, dst, frame, weights.of(edge), &edge});
    }
  }
  for (const Final& end : ends)
    out.push_back({end.edge.src, num_nodes(), static_cast<int32_t>(num_frames()),
                   weights.of(end.edge), &end.edge});
  return out;
}

Buffer<double> SearchTrace::scores_to_end(std::span<const WeightedEdge> edges, uint32_t num_nodes) {
  Buffer<double> to_end(num_nodes, kNegInf);
  to_end.back() = 0.0;
  for (size_t k = edges.size(); k-- > 0;)
    to_end[edges[k].src] = std::max(to_end[edges[k].src], edges[k].weight + to_end[edges[k].dst]);
  return to_end;
}

std::vector<Transcript> SearchTrace::best(const Reading& reading, std::span<const Final> ends,
                                          int64_t n) const {
  const std::vector<WeightedEdge> all = edges(reading.weights, ends);
  const Buffer<double> to_end = scores_to_end(all, num_nodes() + 1);
  if (!(to_end[0] > kNegInf)) return {};
  // The edges that leave each node, which lead to the end.
  std::vector<uint32_t> offset(best_.size() + 1, 0), leaving(all.size());
  for (const WeightedEdge& e : all) ++offset[e.src];
  uint32_t sum = 0;
  for (uint32_t& entry : offset) entry = std::exchange(sum, sum + entry);
  {
    std::vector<uint32_t> place = offset;
    for (uint32_t k = 0; k < all.size(); ++k) leaving[place[all[k].src]++] = k;
  }
  // A partial path; only the first one with its node and words is continued, since it is the best.
  struct PartialPath {
    double score;
    uint64_t history;
    uint32_t node, before, edge;
  };
  std::vector<PartialPath> prefixes{{0.0, 0, 0, UINT32_MAX, UINT32_MAX}};
  using Entry = std::pair<double, uint32_t>;  // score of the best completion, index
  const auto is_worse = [](const Entry& a, const Entry& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::priority_queue<Entry, std::vector<Entry>, decltype(is_worse)> queue(is_worse);
  queue.push({to_end[0], 0});
  std::unordered_set<uint64_t> visited, found;
  std::vector<Transcript> out;
  InterruptPoll poll;
  while (!queue.empty() && static_cast<int64_t>(out.size()) < n) {
    poll(64);
    const uint32_t index = queue.top().second;
    queue.pop();
    const PartialPath prefix = prefixes[index];
    if (!visited.insert(mix_bits(prefix.history + 0x9e3779b97f4a7c15U * prefix.node)).second)
      continue;
    if (prefix.node == num_nodes()) {
      std::vector<TraceEdge> path;
      for (uint32_t at = index; prefixes[at].before != UINT32_MAX; at = prefixes[at].before)
        path.push_back(*all[prefixes[at].edge].edge);
      std::ranges::reverse(path);
      Transcript result = read(reading, path);
      if (found.insert(hash_words(result)).second) out.push_back(std::move(result));
      continue;
    }
    for (uint32_t k = offset[prefix.node]; k < offset[prefix.node + 1]; ++k) {
      const WeightedEdge& e = all[leaving[k]];
      if (!(to_end[e.dst] > kNegInf)) continue;
      uint64_t history = prefix.history;
      if (e.edge->word != TraceEdge::kNoWord) history = extend_history(history, e.edge->word);
      if (reading.is_open && e.edge->is_new &&
          !reading.is_separator[static_cast<size_t>(e.edge->label)])
        history = extend_history(history, token_symbol(e.edge->label));
      const double score = prefix.score + e.weight;
      queue.push({score + to_end[e.dst], static_cast<uint32_t>(prefixes.size())});
      prefixes.push_back({score, history, e.dst, index, leaving[k]});
    }
  }
  return out;
}

void SearchTrace::set_confidences(const Reading& reading, std::span<const Final> ends, double scale,
                                  std::span<Transcript> results) const {
  std::vector<WeightedEdge> all = edges(reading.weights, ends);
  for (WeightedEdge& e : all) e.weight *= scale;
  Buffer<double> from_start(num_nodes() + 1, kNegInf), to_end(num_nodes() + 1, kNegInf);
  from_start[0] = 0.0;
  to_end.back() = 0.0;
  InterruptPoll poll;
  for (const WeightedEdge& e : all) {
    from_start[e.dst] = logadd(from_start[e.dst], from_start[e.src] + e.weight);
    poll(16);
  }
  for (size_t k = all.size(); k-- > 0; poll(16))
    to_end[all[k].src] = logadd(to_end[all[k].src], all[k].weight + to_end[all[k].dst]);
  // The probability that some edge ends the word in a range of frames: 1 minus that of the paths
  // without such an edge. Edges go from the nodes of a frame to those of the next one.
  Buffer<double> without(num_nodes() + 1, kNegInf);
  const auto probability = [&](int32_t word, int32_t begin, int32_t end) {
    const auto first = std::ranges::lower_bound(all, begin, {}, &WeightedEdge::frame);
    const auto last = std::ranges::upper_bound(first, all.end(), end, {}, &WeightedEdge::frame);
    for (auto e = first; e != last; ++e) without[e->dst] = kNegInf;
    for (auto e = first; e != last; ++e) {
      poll(16);
      if (e->edge->word == word) continue;
      const double before = e->frame == begin ? from_start[e->src] : without[e->src];
      without[e->dst] = logadd(without[e->dst], before + e->weight);
    }
    double none = kNegInf;
    for (auto e = first; e != last; ++e)
      if (e->frame == end) {
        none = logadd(none, without[e->dst] + to_end[e->dst]);
        without[e->dst] = kNegInf;  // counts once
      }
    return std::clamp(1.0 - std::exp(none - from_start.back()), 0.0, 1.0);
  };
  std::map<std::tuple<int32_t, int32_t, int32_t>, double> known;
  for (Transcript& result : results)
    for (size_t k = 0; k < result.words.size(); ++k) {
      Transcript::Word& word = result.words[k];
      const int32_t begin = k > 0 ? result.words[k - 1].ended + 1 : 0;
      const int32_t end = k + 1 < result.words.size() ? result.words[k + 1].ended - 1
                                                      : static_cast<int32_t>(num_frames());
      const auto [at, is_new] = known.try_emplace({word.word, begin, end}, 0.0);
      if (is_new) at->second = probability(word.word, begin, end);
      word.confidence = at->second;
    }
}

Graph SearchTrace::graph(const Reading& reading, std::span<const Final> ends, double lattice_beam,
                         bool acoustic) const {
  const std::vector<WeightedEdge> all = edges(reading.weights, ends);
  const Buffer<double> to_end = scores_to_end(all, num_nodes() + 1);
  Arrays arrays;
  std::vector<double> weights;
  if (to_end[0] > kNegInf) {
    Buffer<double> from_start(num_nodes() + 1, kNegInf);
    from_start[0] = 0.0;
    for (const WeightedEdge& e : all)
      from_start[e.dst] = std::max(from_start[e.dst], from_start[e.src] + e.weight);
    // The loss of the best path is a rounding error.
    const double least = to_end[0] - std::max(lattice_beam, 1e-9 * (1.0 + std::abs(to_end[0])));
    const auto is_kept = [&](const WeightedEdge& e) {
      const double score = from_start[e.src] + e.weight + to_end[e.dst];
      return score > kNegInf && score >= least;
    };
    std::vector<int32_t> number(num_nodes() + 1, -1);
    number[0] = 0;
    for (const WeightedEdge& e : all)
      if (is_kept(e)) number[e.dst] = 0;
    for (int32_t& entry : number)
      if (entry == 0) entry = arrays.num_nodes++;
    arrays.start = {0};
    arrays.accept = {arrays.num_nodes - 1};
    for (const WeightedEdge& e : all) {
      if (!is_kept(e)) continue;
      arrays.src.push_back(number[e.src]);
      arrays.dst.push_back(number[e.dst]);
      arrays.ilabel.push_back(e.edge->label);
      const int32_t word = e.edge->word;
      arrays.olabel.push_back(word == TraceEdge::kNoWord ? kEpsilon
                              : word == kUnknownWord     ? reading.unknown_label
                                                         : word);
      weights.push_back(e.weight - (acoustic ? 0.0 : static_cast<double>(e.edge->acoustic)));
    }
  }
  return Graph::from_arrays(std::move(arrays), Weights::from(weights), false);
}

uint32_t SearchTrace::common_node(std::span<const uint32_t> nodes) const {
  // All nodes are of one frame, and so are the nodes before them.
  std::vector<uint32_t> front(nodes.begin(), nodes.end());
  for (;;) {
    std::ranges::sort(front);
    const auto rest = std::ranges::unique(front);
    front.erase(rest.begin(), rest.end());
    if (front.size() <= 1) return front.empty() ? 0 : front[0];
    for (uint32_t& node : front) node = best_[node].src;
  }
}

int64_t SearchTrace::frame_of(uint32_t node) const {
  return std::ranges::upper_bound(first_node_, node) - first_node_.begin();
}

}  // namespace arcgrad
