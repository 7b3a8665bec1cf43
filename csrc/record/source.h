// The user's line that calls an operator. Python's own API, found in the process: the library needs none.
#pragma once

#include <cstdint>

#include "record/tables.h"

namespace torchport::record {

struct Place {
    int32_t function = -1, source = -1;  // texts
};

class Source {
  public:
    // `classify` is a callable of Python's that gives for a code object "+file\tfunction" for one of the user's,
    // "-file\tfunction" for an installed one, "" for what stands between. Needs the interpreter's lock.
    Source(Texts &texts, void *classify) noexcept;
    // Of the calling thread; nothing in one that runs no Python. Takes the interpreter's lock for a moment.
    Place here();

  private:
    struct Code {
        int kind = 0;  // 1: the user's, -1: installed, 0: between
        std::string name;
        int32_t function = -1;
        std::unordered_map<int, int32_t> lines;
    };
    Code &code_of(void *code);

    Texts &texts_;
    void *const classify_;
    std::unordered_map<void *, Code> codes_;  // under the interpreter's lock
};

}  // namespace torchport::record
