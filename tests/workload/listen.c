/* An HTTP server that has little to say, with a thread for each connection. */
#define _GNU_SOURCE
#include "listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A request is one segment here. */
static void *answer(void *accepted)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    int connection = (int)(intptr_t)accepted;
    char request[4096];
    ssize_t length;
    while ((length = recv(connection, request, sizeof(request) - 1, 0)) > 0) {
        request[length] = 0;
        if (send(connection, text, sizeof(text) - 1, MSG_NOSIGNAL) < 0 || strstr(request, "Connection: close"))
            break;
    }
    close(connection);
    return NULL;
}

static int detached(void *(*run)(void *), intptr_t argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, (void *)argument);
    return error ? error : pthread_detach(thread);
}

static void *accept_all(void *listener)
{
    pthread_setname_np(pthread_self(), "listener");
    for (;;) {
        int connection = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);
        /* One that cannot be accepted, or answered, has given up or will. */
        if (connection >= 0 && detached(answer, connection))
            close(connection);
    }
    return NULL;
}

int listen_at(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 64))
        return errno;
    return detached(accept_all, listener);
}
