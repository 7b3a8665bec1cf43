// One function for each format: the text of a file.
#pragma once

#include <string>
#include <string_view>

#include "msprof/profile.h"

namespace msprof {

std::string trace(const Profile &profile);  // JSON

// CSV. Empty: there is nothing for such a file.
std::string op_summary(const Profile &profile);
std::string op_statistic(const Profile &profile);
std::string api_statistic(const Profile &profile);
std::string task_time(const Profile &profile);
std::string module_memory(const Profile &profile);
std::string aicpu(const Profile &profile);

std::string communication(const Profile &profile);         // JSON; empty: no rank has talked to another
std::string communication_matrix(const Profile &profile);  // likewise

// Databases: the bytes of a SQLite file.
std::string database(const Profile &profile);
std::string communication_database(const Profile &profile);

// "predicted":true, for the arguments of an event.
std::string predicted(const Profile &profile);
std::string escaped(std::string_view text);  // as JSON wants it

}  // namespace msprof
