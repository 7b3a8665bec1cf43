#include "record/source.h"

#include <dlfcn.h>

#include <string_view>

namespace torchport::record {
namespace {

// Functions of Python's stable API since 3.11, none of which is changed in 3.13.
struct Python {
    void *(*this_thread)() = nullptr;  // PyGILState_GetThisThreadState
    int (*ending)() = nullptr;         // Py_IsFinalizing, which older versions begin with an underscore
    int (*ensure)() = nullptr;         // PyGILState_Ensure
    void (*release)(int) = nullptr;
    void *(*frame)(void *) = nullptr;  // PyThreadState_GetFrame
    void *(*back)(void *) = nullptr;   // PyFrame_GetBack
    void *(*code)(void *) = nullptr;   // PyFrame_GetCode
    int (*line)(void *) = nullptr;     // PyFrame_GetLineNumber
    void *(*attribute)(void *, const char *) = nullptr;
    void *(*call)(void *, ...) = nullptr;  // PyObject_CallFunctionObjArgs
    const char *(*utf8)(void *) = nullptr;
    void (*increase)(void *) = nullptr;
    void (*decrease)(void *) = nullptr;
    void (*clear_error)() = nullptr;
    bool whole = true;

    Python() {
        find(this_thread, "PyGILState_GetThisThreadState");
        find(ending, dlsym(RTLD_DEFAULT, "Py_IsFinalizing") != nullptr ? "Py_IsFinalizing" : "_Py_IsFinalizing");
        find(ensure, "PyGILState_Ensure");
        find(release, "PyGILState_Release");
        find(frame, "PyThreadState_GetFrame");
        find(back, "PyFrame_GetBack");
        find(code, "PyFrame_GetCode");
        find(line, "PyFrame_GetLineNumber");
        find(attribute, "PyObject_GetAttrString");
        find(call, "PyObject_CallFunctionObjArgs");
        find(utf8, "PyUnicode_AsUTF8");
        find(increase, "Py_IncRef");
        find(decrease, "Py_DecRef");
        find(clear_error, "PyErr_Clear");
    }
    template <class Function>
    void find(Function &function, const char *name) {
        function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
        whole = whole && function != nullptr;
    }
};

const Python &python() {
    static const Python found;
    return found;
}

constexpr int kDeepest = 80;

}  // namespace

Source::Code &Source::code_of(void *code) {
    const auto [found, added] = codes_.try_emplace(code);
    Code &known = found->second;
    if (!added) return known;
    const Python &py = python();
    // Our reference to the code stays: its address is not given out again.
    if (void *answer = py.call(classify_, code, nullptr)) {
        const char *said = py.utf8(answer);
        if (said != nullptr && (*said == '+' || *said == '-')) {
            known.kind = *said == '+' ? 1 : -1;
            const std::string_view both(said + 1);
            const size_t tab = both.find('\t');
            known.name = both.substr(0, tab);
            known.function = texts_.number(tab == std::string_view::npos ? "" : both.substr(tab + 1));
        }
        py.decrease(answer);
    } else {
        py.clear_error();
    }
    return known;
}

Source::Source(Texts &texts, void *classify) noexcept : texts_(texts), classify_(classify) {
    // Kept for ever, as we are: a thread may call an operator while the interpreter already takes itself apart.
    if (classify_ != nullptr && python().whole) python().increase(classify_);
}

Place Source::here() {
    const Python &py = python();
    // A thread that asks an interpreter in its end for the lock is ended itself, within an operator.
    if (classify_ == nullptr || !py.whole || py.ending() || py.this_thread() == nullptr) return {};
    const int state = py.ensure();
    Place found;
    bool users = false;
    void *frame = py.frame(py.this_thread());
    for (int depth = 0; frame != nullptr && depth < kDeepest && !users; ++depth) {
        void *code = py.code(frame);
        const bool seen = codes_.contains(code);
        Code &known = code_of(code);
        if (seen) py.decrease(code);
        users = known.kind > 0;
        if (users || (known.kind < 0 && found.source < 0)) {
            const int line = py.line(frame);
            const auto [text, added] = known.lines.try_emplace(line, -1);
            if (added) text->second = texts_.number(known.name + ":" + std::to_string(line));
            found = {known.function, text->second};
        }
        void *outer = py.back(frame);
        py.decrease(frame);
        frame = outer;
    }
    if (frame != nullptr) py.decrease(frame);
    py.release(state);
    return found;
}

}  // namespace torchport::record
