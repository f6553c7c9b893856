// SPDX-License-Identifier: MIT
//
// Runs a fuzz body without a fuzzer: on each file of the kept corpus, and then on inputs made of those by
// mutation, the same ones each time. A plain compiler is enough, so this is what the test suite runs.
//
//   leaselock_replay_NAME [--mutations N] [--dictionary FILE] FILE|FOLDER...

#include "fuzz/fuzz.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

// of the sanitizers, where there is one: they end the process without a signal
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

using namespace std::string_view_literals;

namespace {

namespace fs = std::filesystem;

// What the body is at: kept where a signal handler finds it.
std::string current_input;
std::string failed_path;
std::string how_to_replay;

void put(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void save_input() {
    const int file = ::open(failed_path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return;
    put(file, current_input);
    ::close(file);
    put(STDERR_FILENO, how_to_replay);
}

extern "C" void on_signal(int signal) {
    save_input();
    (void)std::signal(signal, SIG_DFL);
    (void)std::raise(signal);
}

void watch(const std::string& program) {
    failed_path = fs::absolute(fs::path{program}.filename().string() + ".failed").string();
    how_to_replay = "The input is kept. To replay it:  " + program + " " + failed_path + "\n";
    (void)std::signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback != nullptr) {
        __sanitizer_set_death_callback(save_input);
    } else {
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
            (void)std::signal(signal, on_signal);
        }
    }
}

void run(const std::string& input) {
    current_input = input;
    // an exact copy on the heap, so that a sanitizer sees a read past its end
    const std::vector<std::uint8_t> bytes{input.begin(), input.end()};
    (void)LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string read_file(const fs::path& path) {
    std::ifstream file{path, std::ios::binary};
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        std::exit(2);
    }
    return {std::istreambuf_iterator<char>{file}, {}};
}

void add_files(const fs::path& path, std::vector<fs::path>& files) {
    if (!fs::is_directory(path)) {
        files.push_back(path);
        return;
    }
    for (const auto& entry : fs::directory_iterator{path}) files.push_back(entry.path());
}

/// libFuzzer's format: a line is `"token"`, with `\"`, `\\` and `\xAB`; `#` begins a comment.
std::vector<std::string> read_dictionary(const fs::path& path) {
    std::vector<std::string> words;
    std::ifstream file{path};
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find('"');
        const std::size_t last = line.rfind('"');
        if (line.starts_with('#') || first == last) continue;
        std::string word;
        for (std::size_t i = first + 1; i < last; ++i) {
            if (line[i] != '\\') {
                word += line[i];
            } else if (line[i + 1] == 'x') {
                word += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
                i += 3;
            } else {
                word += line[++i];
            }
        }
        words.push_back(word);
    }
    return words;
}

/// Changes an input the way libFuzzer does, in its simplest moves. The same seed, the same inputs:
/// nothing of the standard library's distributions, which differ.
class Mutator {
public:
    Mutator(const std::vector<std::string>& corpus, std::vector<std::string> words)
        : corpus_(corpus), words_(std::move(words)) {}

    std::string next() {
        std::string input = any_of(corpus_);
        for (std::size_t moves = 1 + below(4); moves != 0; --moves) change(input);
        input.resize(std::min<std::size_t>(input.size(), 4096));
        return input;
    }

private:
    std::size_t below(std::size_t count) {
        return static_cast<std::size_t>(random_() % std::max<std::size_t>(count, 1));
    }
    const std::string& any_of(const std::vector<std::string>& all) {
        return all[below(all.size())];
    }

    void change(std::string& input) {
        static constexpr std::string_view telling = "\0\xff\x7f\x80\r\n 0-:$*+{}@%"sv;
        const std::size_t at = below(input.size() + 1);
        switch (below(8)) {
        case 0: input.erase(at, 1 + below(8)); break;
        case 1: input.insert(at, 1, telling[below(telling.size())]); break;
        case 2: input.insert(at, 1, static_cast<char>(below(256))); break;
        case 3: input.insert(at, input.substr(below(input.size() + 1), 1 + below(16))); break;
        case 4: input = input.substr(0, at) + any_of(corpus_).substr(0, 64); break;
        case 5:
            if (!words_.empty()) input.insert(at, any_of(words_));
            break;
        case 6:
            if (at < input.size()) input[at] = static_cast<char>(below(256));
            break;
        default:
            if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        }
    }

    const std::vector<std::string>& corpus_;
    std::vector<std::string> words_;
    std::mt19937_64 random_{20'260'101};
};

} // namespace

int main(int argc, char** argv) {
    std::size_t mutations = 0;
    std::vector<std::string> words;
    std::vector<fs::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument{argv[i]};
        if (argument == "--mutations" && i + 1 < argc) {
            mutations = std::stoul(argv[++i]);
        } else if (argument == "--dictionary" && i + 1 < argc) {
            words = read_dictionary(argv[++i]);
        } else {
            add_files(argument, files);
        }
    }
    if (files.empty()) {
        std::fprintf(stderr, "usage: %s [--mutations N] [--dictionary FILE] FILE|FOLDER...\n",
                     argv[0]);
        return 2;
    }
    std::sort(files.begin(), files.end());
    watch(argv[0]);

    std::vector<std::string> corpus;
    run({});
    for (const fs::path& file : files) {
        corpus.push_back(read_file(file));
        run(corpus.back());
    }
    Mutator mutator{corpus, std::move(words)};
    for (std::size_t i = 0; i < mutations; ++i) run(mutator.next());
    std::printf("%zu files, %zu inputs made of them: all held\n", files.size(), mutations);
    return 0;
}
