#pragma once

// Language models in ARPA format.

#include <memory>
#include <string>
#include <string_view>

#include "arcgrad/search/ngram_model.h"

namespace arcgrad {

/// Parses the text of an ARPA file; errors name the file and the line.
std::shared_ptr<const NgramModel> parse_arpa(const std::string& file_name, std::string_view text);
/// Parses an ARPA file, or maps a file by NgramModel::save().
std::shared_ptr<const NgramModel> load_ngram_model(const std::string& file_name);

}  // namespace arcgrad
