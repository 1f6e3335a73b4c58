#include "arcgrad/search/ngram_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "arcgrad/io/file.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/search/hashing.h"

namespace arcgrad {

std::pair<uint32_t, bool> NameTable::add(std::string_view name) {
  if (2 * (size() + 1) > cells_.size()) grow(std::max<size_t>(64, 2 * cells_.size()));
  const size_t mask = cells_.size() - 1;
  size_t cell = hash_bytes(name.data(), name.size()) & mask;
  for (; cells_[cell] != 0; cell = (cell + 1) & mask)
    if (this->name(cells_[cell] - 1) == name) return {cells_[cell] - 1, false};
  names_.insert(names_.end(), name.begin(), name.end());
  offsets_.push_back(names_.size());
  cells_[cell] = static_cast<uint32_t>(size());
  return {static_cast<uint32_t>(size() - 1), true};
}

uint32_t NameTable::find(std::string_view name) const {
  if (cells_.empty()) return UINT32_MAX;
  const size_t mask = cells_.size() - 1;
  for (size_t cell = hash_bytes(name.data(), name.size()) & mask; cells_[cell] != 0;
       cell = (cell + 1) & mask)
    if (this->name(cells_[cell] - 1) == name) return cells_[cell] - 1;
  return UINT32_MAX;
}

void NameTable::reserve(size_t count) {
  if (const size_t cells = std::bit_ceil(2 * count + 2); cells > cells_.size()) grow(cells);
}

void NameTable::grow(size_t num_cells) {
  cells_.assign(num_cells, 0);
  for (size_t i = 0; i < size(); ++i) {
    size_t cell = hash_bytes(name(i).data(), name(i).size()) & (num_cells - 1);
    while (cells_[cell] != 0) cell = (cell + 1) & (num_cells - 1);
    cells_[cell] = static_cast<uint32_t>(i + 1);
  }
}

namespace {

/// A set of n-grams as a trie: node 0 is the empty n-gram, and nodes 1, 2, ... are sorted by
/// length, and then by the node of their prefix and their last word.
class NgramTrie {
 public:
  NgramTrie(const char* op, const NameTable& names, std::vector<NgramList>& lists)
      : op_(op), names_(names), lists_(lists) {}

  std::shared_ptr<const NgramModel> build() {
    while (!add_levels()) {
    }
    find_links();
    number_states();
    return make_model();
  }

 private:
  /// Adds all n-grams. Returns false if prefixes were missing, and adds these to the lists.
  bool add_levels() {
    size_t count = 1;
    for (const NgramList& list : lists_) count += list.size();
    require(count < size_t{1} << 31U, op_, "there must be less than 2^31 n-grams, but there are ",
            count);
    word_.assign(1, 0);
    score_.assign(1, 0.0F);
    back_off_.assign(1, 0.0F);
    word_.reserve(count);
    first_child_.assign(count + 1, 0);
    level_.assign({0, 1});
    for (size_t n = 1; n <= lists_.size(); ++n)
      if (!add_level(n)) return false;
    const auto end = static_cast<uint32_t>(word_.size());
    std::fill(first_child_.begin() + level_[lists_.size()], first_child_.end(), end);
    return true;
  }

  bool add_level(size_t n) {
    const NgramList& list = lists_[n - 1];
    struct Row {
      uint64_t key;  // node of the prefix, last word
      uint32_t index;
    };
    Buffer<Row> rows(list.size());
    std::vector<size_t> missing;
    uint32_t prefix = 0;
    const uint32_t* last = nullptr;
    for (size_t i = 0; i < list.size(); ++i) {
      const uint32_t* const words = list.words.data() + i * n;
      if (last == nullptr || !std::equal(words, words + n - 1, last)) {
        prefix = 0;
        for (size_t k = 0; k + 1 < n && prefix != kNone; ++k) prefix = child(prefix, words[k]);
        last = words;
        if (prefix == kNone) missing.push_back(i);
      }
      rows[i] = {uint64_t{prefix} << 32U | words[n - 1], static_cast<uint32_t>(i)};
    }
    if (!missing.empty()) {
      NgramList& shorter = lists_[n - 2];
      for (const size_t i : missing) {
        const uint32_t* const words = list.words.data() + i * n;
        shorter.words.insert(shorter.words.end(), words, words + n - 1);
        shorter.scores.push_back(std::numeric_limits<float>::quiet_NaN());
        shorter.back_offs.push_back(0.0F);
      }
      drop_repeats(n - 1);
      return false;
    }
    const auto by_key = [](const Row& a, const Row& b) { return a.key < b.key; };
    if (!std::is_sorted(rows.begin(), rows.end(), by_key))
      std::sort(rows.begin(), rows.end(), by_key);
    uint64_t before = UINT64_MAX;
    uint32_t next_prefix = level_[n - 1];
    for (const auto& [key, index] : rows) {
      if (key == before) fail_repeated(n, index);
      before = key;
      for (const auto own = static_cast<uint32_t>(key >> 32U); next_prefix <= own; ++next_prefix)
        first_child_[next_prefix] = static_cast<uint32_t>(word_.size());
      word_.push_back(static_cast<uint32_t>(key));
      score_.push_back(list.scores[index]);
      back_off_.push_back(list.back_offs[index]);
    }
    for (; next_prefix <= level_[n]; ++next_prefix)
      first_child_[next_prefix] = static_cast<uint32_t>(word_.size());
    level_.push_back(static_cast<uint32_t>(word_.size()));
    return true;
  }

  /// Drops added prefixes that occur several times.
  void drop_repeats(size_t n) {
    NgramList& list = lists_[n - 1];
    std::vector<size_t> added;
    for (size_t i = 0; i < list.size(); ++i)
      if (std::isnan(list.scores[i])) added.push_back(i);
    const auto words = [&](size_t i) { return std::span(list.words).subspan(i * n, n); };
    std::ranges::sort(added, [&](size_t a, size_t b) {
      return std::ranges::lexicographical_compare(words(a), words(b));
    });
    const auto is_same = [&](size_t a, size_t b) { return std::ranges::equal(words(a), words(b)); };
    const auto end = std::unique(added.begin(), added.end(), is_same);
    Buffer<uint32_t> kept;
    for (auto it = added.begin(); it != end; ++it)
      kept.insert(kept.end(), words(*it).begin(), words(*it).end());
    const auto num_kept = static_cast<size_t>(end - added.begin());
    const size_t first = list.size() - added.size();  // added prefixes are at the end
    list.words.resize(first * n);
    list.words.insert(list.words.end(), kept.begin(), kept.end());
    list.scores.resize(first + num_kept);
    list.back_offs.resize(first + num_kept);
    std::fill(list.scores.begin() + static_cast<ptrdiff_t>(first), list.scores.end(),
              std::numeric_limits<float>::quiet_NaN());
    std::fill(list.back_offs.begin() + static_cast<ptrdiff_t>(first), list.back_offs.end(), 0.0F);
  }

  [[noreturn]] void fail_repeated(size_t n, size_t index) const {
    std::string shown;
    for (size_t k = 0; k < n; ++k)
      shown += text(k > 0 ? " " : "", names_.name(lists_[n - 1].words[index * n + k]));
    fail(op_, "an n-gram must occur once, but ", quote(shown), " occurs again");
  }

  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t child(uint32_t node, uint32_t word) const {
    const auto begin = word_.begin() + first_child_[node];
    const auto end = word_.begin() + first_child_[node + 1];
    const auto found = std::lower_bound(begin, end, word);
    return found != end && *found == word ? static_cast<uint32_t>(found - word_.begin()) : kNone;
  }

  /// Finds the longest proper suffix of each n-gram that is an n-gram.
  void find_links() {
    link_.assign(word_.size(), 0);
    for (size_t n = 2; n <= lists_.size(); ++n)
      for (uint32_t parent = level_[n - 1]; parent < level_[n]; ++parent)
        for (uint32_t node = first_child_[parent]; node < first_child_[parent + 1]; ++node) {
          uint32_t suffix = link_[parent], found = kNone;
          while ((found = child(suffix, word_[node])) == kNone) suffix = link_[suffix];
          link_[node] = found;
        }
  }

  /// Numbers the n-grams that are states: those that n-grams extend or that have a back-off weight.
  /// All others act like their longest suffix.
  void number_states() {
    state_.assign(word_.size(), 0);
    num_states_ = 1;
    for (uint32_t node = 1; node < word_.size(); ++node) {
      const bool is_state = node < level_[lists_.size()] &&
                            (first_child_[node + 1] > first_child_[node] || back_off_[node] != 0);
      state_[node] = is_state ? num_states_++ : state_[link_[node]];
      if (is_state) owner_.push_back(node);
    }
  }

  std::shared_ptr<const NgramModel> make_model() const {
    NgramHeader h{};
    std::memcpy(h.magic, kNgramMagic, sizeof kNgramMagic);
    h.version = kNgramVersion;
    h.order = static_cast<uint32_t>(lists_.size());
    const auto number = [&](std::string_view name) {
      const uint32_t found = names_.find(name);
      return found == UINT32_MAX ? -1 : static_cast<int32_t>(found);
    };
    h.start_word = number("<s>");
    h.end_word = number("</s>");
    h.unknown_word = number("<unk>") >= 0 ? number("<unk>") : number("<UNK>");
    h.start_state = h.start_word < 0 ? 0 : state_[static_cast<size_t>(h.start_word) + 1];
    h.num_words = names_.size();
    h.num_states = num_states_;
    h.num_arcs = word_.size() - 1;
    h.num_name_bytes = names_.bytes().size();
    h.num_cells = names_.cells().size();
    for (size_t n = 0; n < lists_.size(); ++n) h.counts[n] = lists_[n].size();
    const NgramLayout layout(h);
    Buffer<char> bytes(layout.size, 0);
    auto* const states = reinterpret_cast<NgramState*>(bytes.data() + layout.states);
    auto* const arcs = reinterpret_cast<NgramArc*>(bytes.data() + layout.arcs);
    // The children of each state are its arcs, so arc k is node k + 1.
    states[0] = {0, 0, 0.0F};
    for (uint32_t s = 1; s < num_states_; ++s) {
      const uint32_t node = owner_[s - 1];
      states[s] = {first_child_[node] - 1, state_[link_[node]], back_off_[node]};
    }
    states[num_states_] = {static_cast<uint32_t>(h.num_arcs), 0, 0.0F};
    for (uint32_t node = 1; node < word_.size(); ++node)
      arcs[node - 1] = {word_[node], score_[node], state_[node]};
    const auto copy = [&](uint64_t offset, const auto& values) {
      std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(values[0]));
    };
    copy(layout.name_offsets, names_.offsets());
    copy(layout.cells, names_.cells());
    copy(layout.names, names_.bytes());
    set_added_scores(states, arcs);
    h.checksum = hash_bytes(bytes.data() + sizeof h, bytes.size() - sizeof h);
    h.header_checksum = header_checksum(h);
    std::memcpy(bytes.data(), &h, sizeof h);
    return std::make_shared<NgramModel>(std::move(bytes));
  }

  /// Sets the scores of prefixes that were added: what back-off gives them, from short to long.
  void set_added_scores(const NgramState* states, NgramArc* arcs) const {
    for (uint32_t s = 1; s < num_states_; ++s)
      for (uint32_t a = states[s].first_arc; a < states[s + 1].first_arc; ++a) {
        if (!std::isnan(arcs[a].score)) continue;
        float score = 0.0F;
        uint32_t node = owner_[s - 1], found = kNone;
        do {
          score += back_off_[node];
          node = link_[node];
        } while ((found = child(node, arcs[a].word)) == kNone);
        arcs[a].score = score + arcs[found - 1].score;
      }
  }

  const char* op_;
  const NameTable& names_;
  std::vector<NgramList>& lists_;
  /// Level n is the nodes [level_[n], level_[n + 1]).
  std::vector<uint32_t> level_;
  Buffer<uint32_t> word_, first_child_, link_, state_;
  Buffer<float> score_, back_off_;
  std::vector<uint32_t> owner_;  // the node of each state from 1
  uint32_t num_states_ = 0;
};

}  // namespace

std::shared_ptr<const NgramModel> build_ngram_model(const char* op, const NameTable& names,
                                                    std::vector<NgramList> lists) {
  require(!lists.empty() && lists.size() <= NgramHeader::kMaxOrder, op,
          "a model must have order 1 to ", NgramHeader::kMaxOrder, ", but it has order ",
          lists.size());
  require(lists[0].size() == names.size() && names.size() > 0, op,
          "there must be one 1-gram for each word, but there are ", lists[0].size(), " for ",
          names.size(), " words");
  return NgramTrie(op, names, lists).build();
}

}  // namespace arcgrad
