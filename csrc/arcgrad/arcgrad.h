#pragma once

/// Everything a C++ program needs.

#include "arcgrad/alignments.h"
#include "arcgrad/batch.h"
#include "arcgrad/graph.h"
#include "arcgrad/io/io.h"
#include "arcgrad/ops.h"
#include "arcgrad/parallel.h"
#include "arcgrad/product.h"
#include "arcgrad/tape.h"
#include "arcgrad/tokens.h"
#include "arcgrad/trie.h"
