#include "device/injection.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "device/abort.h"
#include "device/stream.h"

namespace vnpu::injection {

std::atomic<bool> armed{false};

namespace {

enum class What { Oom, Exception, Timeout, Hang, Ecc, LinkDown, Slow };
enum class Where { Allocation, Operator, Step, Collective, Rank, Host };

struct Form {
    std::string_view text;  // as it is written, for people
    std::string_view what, where;
    What kind;
    Where place;
    bool name;            // whether an operator's name comes first
    int numbers, needed;  // how many numbers there may be, and have to be
};

constexpr Form kForms[] = {
    {"oom@alloc:N", "oom", "alloc", What::Oom, Where::Allocation, false, 1, 1},
    {"exception@op:NAME[:N]", "exception", "op", What::Exception, Where::Operator, true, 1, 0},
    {"timeout@op:NAME[:N]", "timeout", "op", What::Timeout, Where::Operator, true, 1, 0},
    {"hang@op:NAME[:N]", "hang", "op", What::Hang, Where::Operator, true, 1, 0},
    {"ecc@step:N", "ecc", "step", What::Ecc, Where::Step, false, 1, 1},
    {"timeout@collective:N", "timeout", "collective", What::Timeout, Where::Collective, false, 1, 1},
    {"linkdown@rank:R", "linkdown", "rank", What::LinkDown, Where::Rank, false, 1, 1},
    {"slow@rank:R:MS", "slow", "rank", What::Slow, Where::Rank, false, 2, 2},
    {"slow@host:MS", "slow", "host", What::Slow, Where::Host, false, 1, 1},
};

struct Rule {
    std::string text, name;
    What what;
    Where where;
    int64_t first = 1, second = 0;
    std::atomic<int64_t> seen{0};

    // Whether this is the time that the rule names; `on`: or a later one.
    bool due(bool on) noexcept {
        const int64_t now = seen.fetch_add(1, std::memory_order_relaxed) + 1;
        return on ? now >= first : now == first;
    }
};

std::deque<Rule> &rules() {
    static auto *all = new std::deque<Rule>;  // never destroyed: tasks run until the very end
    return *all;
}

std::atomic<uint64_t> given_up{0};
// A hang that nobody waits for ends some time, so that the process can.
constexpr auto kLongest = std::chrono::minutes(10);

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    for (size_t end; (end = text.find(at)) != std::string_view::npos; text.remove_prefix(end + 1))
        parts.push_back(trimmed(text.substr(0, end)));
    parts.push_back(trimmed(text));
    return parts;
}

[[noreturn]] void refuse(std::string_view rule, std::string_view why) {
    std::string forms;
    for (const Form &form : kForms) forms += fmt::format("{}{}", forms.empty() ? "" : ", ", form.text);
    fail(FaultKind::InvalidArgument,
         "VNPU_FAULTS: {} in \"{}\". Rules are separated by semicolons: {}; each may end with @rank:R.", why, rule,
         forms);
}

int64_t number(std::string_view text, std::string_view rule) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1'000'000'000)
        refuse(rule, fmt::format("\"{}\" is not a whole number", text));
    return value;
}

int64_t own_rank() {
    const char *rank = std::getenv("RANK");
    return rank == nullptr ? 0 : std::strtoll(rank, nullptr, 10);
}

void read(std::string_view text) {
    std::vector<std::string_view> parts = split(text, '@');
    if (parts.size() < 2 || parts.size() > 3) refuse(text, "a rule is WHAT@WHERE");
    const std::vector<std::string_view> place = split(parts[1], ':');
    const Form *form = nullptr;
    for (const Form &each : kForms)
        if (each.what == parts[0] && each.where == place[0]) form = &each;
    if (form == nullptr) refuse(text, fmt::format("nothing is called {}@{}", parts[0], place[0]));
    std::span<const std::string_view> rest = std::span(place).subspan(1);
    std::string name;
    if (form->name) {
        if (rest.empty() || rest[0].empty()) refuse(text, "an operator's name is missing");
        name = rest[0];
        rest = rest.subspan(1);
    }
    const auto given = static_cast<int>(rest.size());
    if (given < form->needed || given > form->numbers)
        refuse(text, fmt::format("{} numbers stand where {} belong", given, form->numbers));
    std::vector<int64_t> numbers;
    for (const std::string_view each : rest) numbers.push_back(number(each, text));
    const bool counted = form->place != Where::Rank && form->place != Where::Host;
    if (counted && !numbers.empty() && numbers[0] < 1) refuse(text, "times count from 1");
    if (parts.size() == 3) {
        const std::vector<std::string_view> last = split(parts[2], ':');
        if (last.size() != 2 || last[0] != "rank") refuse(text, "behind the second @ stands rank:R");
        if (number(last[1], text) != own_rank()) return;
    }
    if (form->place == Where::Rank && numbers[0] != own_rank()) return;
    Rule &rule = rules().emplace_back();
    rule.text = text;
    rule.name = name;
    rule.what = form->kind;
    rule.where = form->place;
    if (!numbers.empty()) rule.first = numbers[0];
    if (numbers.size() > 1) rule.second = numbers[1];
}

void sleep_for(int64_t milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void hang(const Rule &rule) {
    const uint64_t before = given_up.load();
    const auto end = Clock::now() + kLongest;
    while (given_up.load() == before && Clock::now() < end) {
        refuse_aborted();
        sleep_for(10);
    }
    fail(FaultKind::Timeout, "It hung, provoked by VNPU_FAULTS ({}).", rule.text);
}

void at_operator(Rule &rule) {
    switch (rule.what) {
        case What::Exception:
            fail(FaultKind::KernelFailure, "Provoked by VNPU_FAULTS ({}).", rule.text);
        case What::Timeout:
            fail(FaultKind::KernelTimeout, "Provoked by VNPU_FAULTS ({}).", rule.text);
        default:
            hang(rule);
    }
}

}  // namespace

void arm(const char *text) {
    if (text == nullptr) return;
    for (const std::string_view rule : split(text, ';'))
        if (!rule.empty()) read(rule);
    armed.store(!rules().empty());
}

void at_allocation() {
    for (Rule &rule : rules())
        if (rule.where == Where::Allocation && rule.due(true))
            fail(FaultKind::OutOfMemory, "Full, provoked by VNPU_FAULTS ({}).", rule.text);
}

void at_launch() {
    for (const Rule &rule : rules())
        if (rule.where == Where::Host) sleep_for(rule.first);
}

void at_task(const Task &task) {
    const std::string name = task.name();
    const bool collective = name.starts_with("Hccl");
    for (Rule &rule : rules()) {
        if (rule.where == Where::Operator && rule.name == name && rule.due(false)) at_operator(rule);
        if (!collective) continue;
        if (rule.where == Where::Collective && rule.due(false))
            fail(FaultKind::RankSilent, "Nobody answers, provoked by VNPU_FAULTS ({}).", rule.text);
        if (rule.where != Where::Rank) continue;
        if (rule.what == What::LinkDown)
            fail(FaultKind::LinkBroken, "The link is down, provoked by VNPU_FAULTS ({}).", rule.text);
        sleep_for(rule.second);
    }
}

void at_wait() {
    for (Rule &rule : rules())
        if (rule.where == Where::Step && rule.due(true))
            fail(FaultKind::MemoryBroken, "Provoked by VNPU_FAULTS ({}).", rule.text);
}

void gave_up() noexcept { given_up.fetch_add(1); }

}  // namespace vnpu::injection
