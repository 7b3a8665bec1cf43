#include "ascendcl/json.h"

#include <algorithm>
#include <charconv>

#include "device/fault.h"

namespace vnpu::acl {
namespace {

constexpr int kDeepest = 10;  // CANN's own limit for its configuration files

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Json document() {
        Json value = any(0);
        space();
        if (at_ < text_.size()) expected("the end");
        return value;
    }

  private:
    [[noreturn]] void expected(std::string_view what) const {
        const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
        fail(FaultKind::InvalidArgument, "line {} is no JSON: {} was expected", line, what);
    }

    void space() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    }

    bool take(char wanted) {
        space();
        if (at_ >= text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    bool take_word(std::string_view word) {
        if (!text_.substr(at_).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    Json any(int depth) {
        if (depth > kDeepest) expected("less nesting");
        space();
        if (take('{')) return object(depth);
        if (take('[')) return list(depth);
        if (take('"')) return string();
        if (take_word("true")) return true;
        if (take_word("false")) return false;
        if (take_word("null")) return nullptr;
        return number();
    }

    size_t digits() {
        const size_t begin = at_;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
        return at_ - begin;
    }

    // std::from_chars takes more than JSON does: nan, inf, .5, 1. and 01.
    double number() {
        const size_t begin = at_;
        take_word("-");
        const bool zero = at_ < text_.size() && text_[at_] == '0';
        const size_t whole = digits();
        if (whole == 0) expected("a value");
        if (zero && whole > 1) expected("a number without a zero in front");
        if (take_word(".") && digits() == 0) expected("a digit behind the point");
        if (take_word("e") || take_word("E")) {
            if (!take_word("+")) take_word("-");
            if (digits() == 0) expected("a digit of the exponent");
        }
        double value = 0;
        if (std::from_chars(text_.data() + begin, text_.data() + at_, value).ec != std::errc())
            expected("a number that fits into 64 bits");
        return value;
    }

    Json object(int depth) {
        Json::Object members;
        if (take('}')) return members;
        do {
            if (!take('"')) expected("a name in double quotes");
            std::string name = string();
            if (!take(':')) expected("a colon");
            members.insert_or_assign(std::move(name), any(depth + 1));
        } while (take(','));
        if (!take('}')) expected("a comma or }");
        return members;
    }

    Json list(int depth) {
        Json::List values;
        if (take(']')) return values;
        do values.push_back(any(depth + 1));
        while (take(','));
        if (!take(']')) expected("a comma or ]");
        return values;
    }

    std::string string() {
        std::string value;
        while (true) {
            if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) expected("a double quote");
            const char next = text_[at_++];
            if (next == '"') return value;
            if (next == '\\')
                escaped(value);
            else
                value += next;
        }
    }

    void escaped(std::string &value) {
        constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
        const char name = at_ < text_.size() ? text_[at_++] : ' ';
        if (const size_t found = kNames.find(name); found != std::string_view::npos) {
            value += kMeanings[found];
            return;
        }
        if (name != 'u') expected("an escape that JSON has");
        uint32_t point = code_unit();
        if (point >= 0xD800 && point < 0xDC00) {  // the first of two UTF-16 units
            const uint32_t second = take_word("\\u") ? code_unit() : 0;
            if (second < 0xDC00 || second > 0xDFFF) expected("the second half of a surrogate pair");
            point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00);
        } else if (point >= 0xDC00 && point < 0xE000) {
            expected("the first half of a surrogate pair");
        }
        append_utf8(value, point);
    }

    uint32_t code_unit() {
        uint32_t unit = 0;
        const char *begin = text_.data() + at_;
        if (at_ + 4 > text_.size() || std::from_chars(begin, begin + 4, unit, 16).ptr != begin + 4)
            expected("four hexadecimal digits");
        at_ += 4;
        return unit;
    }

    static void append_utf8(std::string &value, uint32_t point) {
        const auto tail = [&](int shift) { value += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
        if (point < 0x80) {
            value += static_cast<char>(point);
        } else if (point < 0x800) {
            value += static_cast<char>(0xC0 | (point >> 6));
            tail(0);
        } else if (point < 0x10000) {
            value += static_cast<char>(0xE0 | (point >> 12));
            tail(6), tail(0);
        } else {
            value += static_cast<char>(0xF0 | (point >> 18));
            tail(12), tail(6), tail(0);
        }
    }

    std::string_view text_;
    size_t at_ = 0;
};

}  // namespace

Json parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace vnpu::acl
