// SPDX-License-Identifier: MIT

#include "chaos/job.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace leaselock::chaos {

std::vector<std::string> Job::to_words() const {
    std::vector<std::string> words{"actor=" + actor,
                                   "serial=" + std::to_string(serial),
                                   "seed=" + std::to_string(seed),
                                   "epoch=" + std::to_string(epoch),
                                   "ppm=" + std::to_string(ppm),
                                   "keys=" + std::to_string(keys),
                                   "history=" + history,
                                   "witness=" + witness,
                                   "store=" + store,
                                   "shares=" + std::to_string(shares ? 1 : 0),
                                   "probe=" + std::to_string(probe)};
    for (const std::string& url : urls) words.push_back("url=" + url);
    return words;
}

Job Job::from_words(const std::vector<std::string>& words) {
    Job job;
    for (const std::string& word : words) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) throw std::runtime_error("no value: " + word);
        const std::string name = word.substr(0, equals);
        const std::string value = word.substr(equals + 1);
        if (name == "actor")
            job.actor = value;
        else if (name == "serial")
            job.serial = std::stoull(value);
        else if (name == "seed")
            job.seed = std::stoull(value);
        else if (name == "epoch")
            job.epoch = std::stoll(value);
        else if (name == "ppm")
            job.ppm = std::stoll(value);
        else if (name == "keys")
            job.keys = std::stoul(value);
        else if (name == "history")
            job.history = value;
        else if (name == "witness")
            job.witness = value;
        else if (name == "store")
            job.store = value;
        else if (name == "shares")
            job.shares = value == "1";
        else if (name == "probe")
            job.probe = std::stoll(value);
        else if (name == "url")
            job.urls.push_back(value);
        else
            throw std::runtime_error("what is " + word);
    }
    return job;
}

} // namespace leaselock::chaos
