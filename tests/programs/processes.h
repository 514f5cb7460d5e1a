// A second process of the same program, for what processes share: the parent starts it and talks to
// it over a socket.
#pragma once

#include <spawn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "check.h"

extern char** environ;

// Where the child finds its end of the socket.
static const int CHILD_SOCKET = 100;

// Starts this program again with one argument; `socket` becomes our end of the connection.
inline pid_t start_child(const char* role, int* socket) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], CHILD_SOCKET);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    char name[] = "child";
    char* arguments[] = {name, const_cast<char*>(role), nullptr};
    pid_t child;
    EXPECT(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *socket = ends[0];
    return child;
}

// Waits for the child, which must end with 0.
inline void expect_good_end(pid_t child) {
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

template <typename T>
void send_value(int socket, const T& value) {
    EXPECT(write(socket, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
}

template <typename T>
T receive_value(int socket) {
    T value;
    size_t done = 0;
    while (done < sizeof value) {
        ssize_t count = read(socket, reinterpret_cast<char*>(&value) + done, sizeof value - done);
        if (count < 0 && errno == EINTR) continue;
        EXPECT(count > 0);
        done += static_cast<size_t>(count);
    }
    return value;
}

// Passes an open file to the other process.
inline void send_descriptor(int socket, int descriptor) {
    char byte = 'd';
    iovec data = {&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = space, message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket, &message, 0) == 1);
}

inline int receive_descriptor(int socket) {
    char byte;
    iovec data = {&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = space, message.msg_controllen = sizeof space;
    EXPECT(recvmsg(socket, &message, 0) == 1);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    EXPECT(header != nullptr && header->cmsg_type == SCM_RIGHTS);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}
