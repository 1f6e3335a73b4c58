#include "arcgrad/search/arpa.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "arcgrad/io/file.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/search/mapped_file.h"
#include "arcgrad/search/ngram_builder.h"

// The ARPA format: a header with the number of n-grams of each order, then one line for each
// n-gram: a decimal logarithm, the words, and perhaps a back-off weight.

namespace arcgrad {
namespace {

constexpr char kOp[] = "load_ngrams";
constexpr double kLn10 = 2.302585092994045684;
/// Files have this number for the logarithm of 0.
constexpr double kLogZero = -99.0;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

/// A decimal number, or NaN.
double parse_number(std::string_view text) {
  static const std::array<double, 23> kPower = [] {
    std::array<double, 23> out{};
    double power = 1.0;
    for (double& entry : out) entry = std::exchange(power, power * 10.0);
    return out;
  }();
  const char *at = text.data(), *const end = at + text.size();
  const bool is_negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  uint64_t digits = 0;
  int num_digits = 0, exponent = 0;
  const auto read_digits = [&](int step) {
    for (; at != end && *at >= '0' && *at <= '9'; ++at) {
      ++num_digits;
      // Further digits are below the precision.
      if (digits < 100'000'000'000'000'000U) {
        digits = digits * 10 + static_cast<uint64_t>(*at - '0');
        exponent -= step;
      } else {
        exponent += 1 - step;
      }
    }
  };
  read_digits(0);
  if (at != end && *at == '.') {
    ++at;
    read_digits(1);
  }
  if (num_digits == 0) {
    if (text == "-inf" || text == "-Inf" || text == "-Infinity" || text == "-infinity")
      return -std::numeric_limits<double>::infinity();
    return kNaN;
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool is_small = at != end && *at == '-';
    if (at != end && (*at == '-' || *at == '+')) ++at;
    if (at == end) return kNaN;
    int power = 0;
    for (; at != end && *at >= '0' && *at <= '9'; ++at)
      power = std::min(power * 10 + *at - '0', 9999);
    exponent += is_small ? -power : power;
  }
  if (at != end) return kNaN;
  auto value = static_cast<double>(digits);
  if (exponent < 0)
    value = exponent >= -22 ? value / kPower[static_cast<size_t>(-exponent)]
                            : value * std::pow(10.0, exponent);
  else if (exponent > 0)
    value *= std::pow(10.0, exponent);
  return is_negative ? -value : value;
}

class ArpaParser {
 public:
  ArpaParser(const std::string& file_name, std::string_view text)
      : file_name_(file_name), text_(text) {}

  std::shared_ptr<const NgramModel> parse() {
    read_sizes();
    for (size_t n = 1; n <= sizes_.size(); ++n) read_section(n);
    if (line_ != "\\end\\") fail_line("there must be \\end\\", quote(line_));
    // A model of order 1 has an empty list of 2-grams, because KenLM reads no other.
    while (lists_.size() > 1 && lists_.back().size() == 0) lists_.pop_back();
    try {
      return build_ngram_model(kOp, names_, std::move(lists_));
    } catch (const std::invalid_argument& error) {
      const std::string_view message = error.what();
      fail(kOp, quote(file_name_), message.substr(sizeof(kOp) - 1));
    }
  }

 private:
  /// Reads the next line without spaces around it; false at the end of the text.
  bool next_line() {
    line_begin_ = at_;
    if (at_ >= text_.size()) {
      line_ = {};
      return false;
    }
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    line_ = text_.substr(at_, end - at_);
    while (!line_.empty() && is_space(line_.front())) line_.remove_prefix(1);
    while (!line_.empty() && is_space(line_.back())) line_.remove_suffix(1);
    at_ = end + 1;
    return true;
  }

  [[noreturn]] void fail_line(std::string_view rule, const std::string& given) const {
    const std::string_view before = text_.substr(0, std::min(line_begin_, text_.size()));
    fail(kOp, "line ", std::ranges::count(before, '\n') + 1, " of ", quote(file_name_), ": ", rule,
         ", but it is ", line_begin_ >= text_.size() ? "the end of the file" : given);
  }

  void read_sizes() {
    bool is_data = false;
    while (next_line() && !(is_data = line_ == "\\data\\")) {
    }
    require(is_data, kOp, quote(file_name_),
            " must have a line \\data\\, as ARPA files have, but it has none");
    while (next_line()) {
      if (line_.empty()) continue;
      if (line_.front() == '\\') break;
      const size_t equals = line_.find('=');
      const double count =
          equals == std::string_view::npos ? kNaN : parse_number(trimmed(line_.substr(equals + 1)));
      const std::string_view left = trimmed(line_.substr(0, equals));
      const bool is_ngram = left.starts_with("ngram") && parse_number(trimmed(left.substr(5))) ==
                                                             static_cast<double>(sizes_.size() + 1);
      if (!is_ngram || !(count >= 0 && count <= 2e9) || count != std::floor(count))
        fail_line(text("there must be ngram ", sizes_.size() + 1, "=<number>"), quote(line_));
      sizes_.push_back(static_cast<size_t>(count));
    }
    if (sizes_.empty()) fail_line("there must be ngram 1=<number>", quote(line_));
  }

  static std::string_view trimmed(std::string_view part) {
    while (!part.empty() && is_space(part.front())) part.remove_prefix(1);
    while (!part.empty() && is_space(part.back())) part.remove_suffix(1);
    return part;
  }

  void read_section(size_t n) {
    const std::string title = text("\\", n, "-grams:");
    if (line_ != title) fail_line(text("there must be ", title), quote(line_));
    NgramList& list = lists_.emplace_back();
    // What a damaged header promises is not allocated: a line of an n-gram has at least 2 n + 2
    // bytes.
    const size_t most = std::min(sizes_[n - 1], (text_.size() - at_) / (2 * n + 2) + 1);
    list.words.reserve(most * n);
    list.scores.reserve(most);
    list.back_offs.reserve(most);
    if (n == 1) names_.reserve(most);
    while (next_line()) {
      if (line_.empty()) continue;
      if (line_.front() == '\\') break;
      read_ngram(n, list);
      poll_(16);
    }
    if (list.size() != sizes_[n - 1])
      fail_line(text("after ", sizes_[n - 1], " ", n, "-grams there must be a new section"),
                text(quote(line_), " after ", list.size()));
  }

  void read_ngram(size_t n, NgramList& list) {
    const char *at = line_.data(), *const end = at + line_.size();
    const auto field = [&] {
      const char* const begin = at;
      while (at != end && !is_space(*at)) ++at;
      const std::string_view out(begin, static_cast<size_t>(at - begin));
      while (at != end && is_space(*at)) ++at;
      return out;
    };
    const std::string_view score = field();
    list.scores.push_back(log_of(score, "a score must be a number of at most 0", true));
    for (size_t k = 0; k < n; ++k) {
      const std::string_view word = field();
      if (word.empty())
        fail_line(text("there must be a score, ", n, " words and perhaps a back-off weight"),
                  quote(line_));
      if (n == 1) {
        const auto [number, is_new] = names_.add(word);
        if (!is_new) fail_line("an n-gram must occur once", text(quote(word), " again"));
        list.words.push_back(number);
      } else {
        const uint32_t number = names_.find(word);
        if (number == UINT32_MAX) fail_line("a word must be among the 1-grams", quote(word));
        list.words.push_back(number);
      }
    }
    const std::string_view back_off = field();
    list.back_offs.push_back(
        back_off.empty() ? 0.0F : log_of(back_off, "a back-off weight must be a number", false));
    if (at != end)
      fail_line(text("there must be a score, ", n, " words and perhaps a back-off weight"),
                quote(line_));
  }

  float log_of(std::string_view field, const char* rule, bool is_score) const {
    const double value = parse_number(field);
    // False for NaN too.
    if (!(value <= (is_score ? 0.0 : 1e30))) fail_line(rule, quote(field));
    if (value == kLogZero) return -std::numeric_limits<float>::infinity();
    return static_cast<float>(value * kLn10);
  }

  std::string file_name_;
  std::string_view text_, line_;
  size_t at_ = 0, line_begin_ = 0;
  std::vector<size_t> sizes_;
  NameTable names_;
  std::vector<NgramList> lists_;
  InterruptPoll poll_;
};

}  // namespace

std::shared_ptr<const NgramModel> parse_arpa(const std::string& file_name, std::string_view text) {
  return ArpaParser(file_name, text).parse();
}

std::shared_ptr<const NgramModel> load_ngram_model(const std::string& file_name) {
  auto file = std::make_shared<const MappedFile>(kOp, file_name);
  const std::string_view content = file->content();
  if (content.starts_with(std::string_view(kNgramMagic, sizeof kNgramMagic)))
    return std::make_shared<NgramModel>(std::move(file), quote(file_name));
  return parse_arpa(file_name, content);
}

}  // namespace arcgrad
