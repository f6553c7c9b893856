// SPDX-License-Identifier: MIT
#include "fault_proxy.hpp"

#include "reserved_port.hpp"
#include "resp_stream.hpp"
#include "signals_blocked.hpp"
#include "sockets.hpp"
#include "system_failure.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace leaselock::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Message {
    std::string bytes;
    Clock::time_point due;
    bool held = false;
    std::size_t sent = 0;
};

struct Rule {
    std::string word;
    Fault fault;
    int times;
};

struct Modes {
    bool drop_requests = false;
    bool drop_replies = false;
    milliseconds delay_requests{0};
    milliseconds delay_replies{0};
    milliseconds drip_requests{0};
    milliseconds drip_replies{0};
    std::optional<std::size_t> cut_after;
};

struct Connection {
    FileDescriptor client;
    FileDescriptor server;
    RespStream requests;
    RespStream replies;
    std::deque<Message> to_server;
    std::deque<Message> to_client;
    std::deque<std::optional<Fault>> fates; // of the replies that are still to come
    Clock::time_point next_to_server;       // byte that drips
    Clock::time_point next_to_client;
    bool requests_lost = false;
    bool replies_lost = false;
    bool replied = true; // since the client's last bytes
    bool end_sent = false;

    void cut() {
        reset_connection(client);
        reset_connection(server);
    }
    [[nodiscard]] Clock::time_point client_due() const {
        return std::max(to_client.front().due, next_to_client);
    }
    [[nodiscard]] Clock::time_point server_due() const {
        return std::max(to_server.front().due, next_to_server);
    }
};

/// Sends at most so many bytes from the front of the queue; false when the connection is broken.
bool send_front(int socket, std::deque<Message>& queue, std::size_t most, std::size_t& sent) {
    auto& front = queue.front();
    const auto taken = send_some(socket, std::string_view{front.bytes}.substr(front.sent, most));
    if (!taken) {
        return false;
    }
    sent = *taken;
    front.sent += sent;
    if (front.sent == front.bytes.size()) {
        queue.pop_front();
    }
    return true;
}

} // namespace

/// One thread owns all of the state; other threads hand it tasks and wait for them.
class FaultProxy::Loop {
public:
    explicit Loop(std::uint16_t forwarded_port)
        : server_port{forwarded_port}, wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
        if (!wake_) {
            system_failure("eventfd");
        }
        listen_again();
        const SignalsBlocked for_the_thread;
        thread_ = std::thread{[this] { run(); }};
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;
    ~Loop() {
        perform([this] { stop_ = true; });
        thread_.join();
    }

    /// Runs a task in the loop's thread, and throws what it throws.
    void perform(const std::function<void()>& task);

    [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
    void listen_again() { listener_ = listen_on_loopback(port()); }

    // For tasks only.
    Modes modes;
    std::vector<Rule> rules;
    Traffic traffic;
    std::list<Connection> connections;
    std::uint16_t server_port;
    void close_listener() { listener_.close(); }

private:
    void run();
    void wait();
    void run_task();
    void accept_all();
    void read_client(Connection& c);
    void read_server(Connection& c);
    void on_request(Connection& c, const std::string& message);
    void on_reply(Connection& c, const std::string& message);
    [[nodiscard]] std::optional<Fault> fault_for(const std::vector<std::string>& words);
    void write_server(Connection& c);
    void write_client(Connection& c);
    static void pass_on_ends(Connection& c);

    ReservedPort port_;
    FileDescriptor wake_;
    FileDescriptor listener_;
    bool stop_ = false;

    std::mutex mutex_;
    std::condition_variable task_changed_;
    const std::function<void()>* task_ = nullptr;
    std::thread thread_;
};

void FaultProxy::Loop::perform(const std::function<void()>& task) {
    std::exception_ptr error;
    const std::function<void()> guarded = [&] {
        try {
            task();
        } catch (...) {
            error = std::current_exception();
        }
    };
    {
        std::unique_lock lock{mutex_};
        task_changed_.wait(lock, [&] { return task_ == nullptr; });
        task_ = &guarded;
        eventfd_write(wake_.get(), 1);
        task_changed_.wait(lock, [&] { return task_ != &guarded; });
    }
    if (error) {
        std::rethrow_exception(error);
    }
}

void FaultProxy::Loop::run_task() {
    const std::lock_guard lock{mutex_};
    if (task_ != nullptr) {
        accept_all(); // whoever connected before the task is subject to it
        (*task_)();
        task_ = nullptr;
        task_changed_.notify_all();
    }
}

void FaultProxy::Loop::run() {
    while (!stop_) {
        wait();
        run_task();
        accept_all();
        for (auto& c : connections) {
            read_client(c);
            read_server(c);
            write_server(c);
            write_client(c);
            pass_on_ends(c);
        }
        connections.remove_if([](const Connection& c) { return !c.client && !c.server; });
    }
}

/// Waits for a task, for bytes, for room to write, or for the next message that falls due.
void FaultProxy::Loop::wait() {
    const auto now = Clock::now();
    auto next = now + std::chrono::seconds{60};
    std::vector<pollfd> waiting{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    const auto add = [&](const FileDescriptor& socket, std::optional<Clock::time_point> due) {
        const bool write = due && *due <= now;
        waiting.push_back({socket.get(), static_cast<short>(write ? POLLIN | POLLOUT : POLLIN), 0});
        next = due && !write ? std::min(next, *due) : next;
    };
    for (const auto& c : connections) {
        const bool to_client = c.client && !c.to_client.empty();
        const bool to_server = c.server && !c.to_server.empty() && !c.to_server.front().held;
        add(c.client, to_client ? std::optional{c.client_due()} : std::nullopt);
        add(c.server, to_server ? std::optional{c.server_due()} : std::nullopt);
    }
    if (poll(waiting.data(), waiting.size(), poll_timeout(next)) < 0 && errno != EINTR) {
        system_failure("poll");
    }
    eventfd_t ignored = 0;
    eventfd_read(wake_.get(), &ignored);
}

void FaultProxy::Loop::accept_all() {
    while (listener_) {
        Connection c;
        c.client = accept_one(listener_.get());
        if (!c.client) {
            return;
        }
        ++traffic.connections;
        c.server = connect_to_loopback(server_port);
        if (c.server) {
            connections.push_back(std::move(c));
        } else {
            reset_connection(c.client);
        }
    }
}

void FaultProxy::Loop::read_client(Connection& c) {
    while (c.client) {
        const auto bytes = receive_some(c.client.get());
        if (!bytes) {
            c.client.close();
            return;
        }
        if (bytes->empty()) {
            return;
        }
        ++traffic.reads;
        traffic.client_bytes += bytes->size();
        traffic.round_trips += std::exchange(c.replied, false) ? 1U : 0U;
        for (const auto& message : c.requests.feed(*bytes)) {
            if (c.client) {
                on_request(c, message);
            }
        }
    }
}

void FaultProxy::Loop::read_server(Connection& c) {
    while (c.server) {
        const auto bytes = receive_some(c.server.get());
        if (!bytes) {
            c.server.close();
            c.to_server.clear();
            return;
        }
        if (bytes->empty()) {
            return;
        }
        traffic.server_bytes += bytes->size();
        for (const auto& message : c.replies.feed(*bytes)) {
            on_reply(c, message);
        }
    }
}

std::optional<Fault> FaultProxy::Loop::fault_for(const std::vector<std::string>& words) {
    for (auto rule = rules.begin(); rule != rules.end(); ++rule) {
        const auto matches = [&](const auto& word) {
            return equal_ignoring_case(word, rule->word);
        };
        if (std::any_of(words.begin(), words.end(), matches)) {
            const auto fault = rule->fault;
            if (--rule->times <= 0) {
                rules.erase(rule);
            }
            return fault;
        }
    }
    return std::nullopt;
}

void FaultProxy::Loop::on_request(Connection& c, const std::string& message) {
    auto words = request_words(message);
    const auto fault = fault_for(words);
    if (!words.empty()) {
        traffic.requests.push_back(std::move(words));
    }
    if (fault == Fault::cut_request) {
        c.cut();
        return;
    }
    c.requests_lost |= modes.drop_requests || fault == Fault::drop_request;
    if (!c.requests_lost) {
        c.to_server.push_back(
            {message, Clock::now() + modes.delay_requests, fault == Fault::hold_request, 0});
        c.fates.push_back(fault);
    }
}

void FaultProxy::Loop::on_reply(Connection& c, const std::string& message) {
    std::optional<Fault> fate;
    if (!c.fates.empty() && message.front() != '>') { // a push answers no request
        fate = c.fates.front();
        c.fates.pop_front();
    }
    if (fate == Fault::cut_reply) {
        c.cut();
    }
    c.replies_lost |= modes.drop_replies || fate == Fault::drop_reply;
    if (!c.replies_lost && c.client) {
        c.to_client.push_back({message, Clock::now() + modes.delay_replies, false, 0});
    }
}

void FaultProxy::Loop::write_server(Connection& c) {
    while (c.server && !c.to_server.empty()) {
        if (c.to_server.front().held || c.server_due() > Clock::now()) {
            return;
        }
        const std::size_t most = modes.drip_requests > milliseconds{0} ? 1 : std::string::npos;
        std::size_t sent = 0;
        if (!send_front(c.server.get(), c.to_server, most, sent)) {
            c.server.close();
        } else if (sent == 0) {
            return;
        }
        c.next_to_server = Clock::now() + modes.drip_requests;
    }
}

void FaultProxy::Loop::write_client(Connection& c) {
    while (c.client && !c.to_client.empty() && c.client_due() <= Clock::now()) {
        std::size_t most = modes.drip_replies > milliseconds{0} ? 1 : std::string::npos;
        most = std::min(most, modes.cut_after.value_or(most));
        std::size_t sent = 0;
        if (most > 0 && !send_front(c.client.get(), c.to_client, most, sent)) {
            c.client.close();
            return;
        }
        if (modes.cut_after && (*modes.cut_after -= sent) == 0) {
            modes.cut_after.reset();
            c.cut();
        }
        if (sent == 0) {
            return;
        }
        c.replied = true;
        c.next_to_client = Clock::now() + modes.drip_replies;
    }
}

/// One side's end is the other's, once what was under way has been delivered.
void FaultProxy::Loop::pass_on_ends(Connection& c) {
    if (!c.server && c.client && c.to_client.empty()) {
        c.client.close();
    }
    if (!c.client && c.server && c.to_server.empty() && !c.end_sent) {
        shutdown(c.server.get(), SHUT_WR); // the server runs what it has got, then closes
        c.end_sent = true;
    }
}

FaultProxy::FaultProxy(std::uint16_t server_port) : loop_{std::make_unique<Loop>(server_port)} {}

FaultProxy::~FaultProxy() = default;

std::uint16_t FaultProxy::port() const noexcept { return loop_->port(); }

std::string FaultProxy::url() const { return "redis://127.0.0.1:" + std::to_string(port()); }

void FaultProxy::pass() {
    loop_->perform([this] {
        loop_->modes = Modes{};
        loop_->rules.clear();
        for (auto& c : loop_->connections) {
            c.next_to_server = c.next_to_client = {};
        }
    });
}

void FaultProxy::drop_requests() {
    loop_->perform([this] { loop_->modes.drop_requests = true; });
}

void FaultProxy::drop_replies() {
    loop_->perform([this] { loop_->modes.drop_replies = true; });
}

void FaultProxy::black_hole() {
    loop_->perform([this] { loop_->modes.drop_requests = loop_->modes.drop_replies = true; });
}

void FaultProxy::delay(std::chrono::milliseconds by) {
    loop_->perform([&] { loop_->modes.delay_requests = loop_->modes.delay_replies = by; });
}

void FaultProxy::delay_requests(std::chrono::milliseconds by) {
    loop_->perform([&] { loop_->modes.delay_requests = by; });
}

void FaultProxy::delay_replies(std::chrono::milliseconds by) {
    loop_->perform([&] { loop_->modes.delay_replies = by; });
}

void FaultProxy::drip(std::chrono::milliseconds each) {
    loop_->perform([&] { loop_->modes.drip_replies = each; });
}

void FaultProxy::drip_requests(std::chrono::milliseconds each) {
    loop_->perform([&] { loop_->modes.drip_requests = each; });
}

void FaultProxy::cut() {
    loop_->perform([this] {
        for (auto& c : loop_->connections) {
            c.cut();
        }
    });
}

void FaultProxy::cut_after_reply_bytes(std::size_t n) {
    loop_->perform([&] { loop_->modes.cut_after = n; });
}

void FaultProxy::refuse() {
    loop_->perform([this] { loop_->close_listener(); });
}

void FaultProxy::forward_to(std::uint16_t server_port) {
    loop_->perform([&] { loop_->server_port = server_port; });
}

void FaultProxy::accept_again() {
    loop_->perform([this] { loop_->listen_again(); });
}

void FaultProxy::on_command(std::string word, Fault fault, int times) {
    loop_->perform([&] { loop_->rules.push_back({std::move(word), fault, times}); });
}

std::size_t FaultProxy::deliver_held() {
    std::size_t delivered = 0;
    loop_->perform([&] {
        for (auto& c : loop_->connections) {
            for (auto& message : c.to_server) {
                delivered += std::exchange(message.held, false) ? 1U : 0U;
            }
        }
    });
    return delivered;
}

std::size_t FaultProxy::held() const {
    std::size_t count = 0;
    loop_->perform([&] {
        for (const auto& c : loop_->connections) {
            for (const auto& message : c.to_server) {
                count += message.held ? 1U : 0U;
            }
        }
    });
    return count;
}

Traffic FaultProxy::traffic() const {
    Traffic copy;
    loop_->perform([&] {
        copy = loop_->traffic;
        copy.open = static_cast<std::size_t>(
            std::count_if(loop_->connections.begin(), loop_->connections.end(),
                          [](const Connection& c) { return static_cast<bool>(c.client); }));
    });
    return copy;
}

void FaultProxy::reset_traffic() {
    loop_->perform([this] { loop_->traffic = Traffic{}; });
}

std::vector<std::string> Traffic::names() const {
    std::vector<std::string> all;
    for (const auto& words : requests) {
        auto name = words.front();
        std::transform(name.begin(), name.end(), name.begin(), [](char c) {
            return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        });
        all.push_back(std::move(name));
    }
    return all;
}

std::size_t Traffic::count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::count_if(requests.begin(), requests.end(),
                      [&](const auto& words) { return equal_ignoring_case(words.front(), name); }));
}

} // namespace leaselock::test
