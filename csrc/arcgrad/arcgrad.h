#pragma once

// Includes all public headers.

#include "arcgrad/autograd/autograd.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/io/io.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/tokens/alignments.h"
#include "arcgrad/tokens/tokens.h"
#include "arcgrad/tokens/trie.h"
#include "arcgrad/trellis/explain.h"
