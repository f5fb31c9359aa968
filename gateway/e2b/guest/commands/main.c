/*
 * The gateway's helper in a machine for commands and terminals of an E2B sandbox: the service Process over
 * the Connect protocol with JSON, on one port.
 *
 * Always:
 * - A request without the token of the gateway gets 401.
 * - A stream ends with one end envelope, unless its connection breaks. A fault of a stream is in that
 *   envelope, and the status is 200. Nothing is compressed.
 * - A failure of one request ends that one only. It keeps nothing on disk.
 *
 * It is a static program of C, because it is the first to run in each sandbox: an interpreter begins later.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls.h"

#define INPUT_BYTES_MAX ((size_t)2 * 1024 * 1024)
#define RECEIVE_SECONDS 30
#define STACK_BYTES ((size_t)512 * 1024)

static void *serve_one(void *given) {
  int connection = (int)(intptr_t)given;
  struct request request;
  if (request_read(&request, connection)) {
    calls_answer(&request);
    request_free(&request);
    shutdown(connection, SHUT_WR);
  }
  close(connection);
  return NULL;
}

static int listen_at(long port) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int yes = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 256) < 0) {
    perror("listen");
    exit(1);
  }
  return listener;
}

static _Noreturn void serve(int listener) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (;;) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0) {
      // None is free: some end meanwhile.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) usleep(10000);
      continue;
    }
    int yes = 1;
    struct timeval wait = {.tv_sec = RECEIVE_SECONDS};
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, serve_one, (void *)(intptr_t)connection) != 0) close(connection);
  }
}

static struct json *read_given(void) {
  struct text text = {0};
  char piece[65536];
  ssize_t length;
  text_add(&text, "", 0);
  while (text.length < INPUT_BYTES_MAX && (length = read(0, piece, sizeof piece)) > 0) text_add(&text, piece, (size_t)length);
  struct json *given = json_parse(text.bytes, text.length);
  text_free(&text);
  return given;
}

/* Continues without its caller, whose pipes it does not keep open. */
static void leave_caller(void) {
  pid_t pid = fork();
  if (pid < 0) exit(1);
  if (pid > 0) _exit(0);
  setsid();
  if (chdir("/") < 0) exit(1);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int at = 0; at < 3; at++) dup2(null, at);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  struct json *given = read_given();
  const struct json *port = json_get(given, "port");
  if (port == NULL || port->kind != JSON_NUMBER) {
    fprintf(stderr, "expected {\"token\":…,\"port\":…,\"environment\":…} on standard input\n");
    return 2;
  }
  calls_begin(json_string(json_get(given, "token"), ""), json_get(given, "environment"));
  int listener = listen_at((long)port->number);
  const struct json *stays = json_get(given, "stays");
  if (stays != NULL && stays->kind == JSON_TRUE) {
    if (write(1, "listening\n", 10) < 0) return 1;
  } else leave_caller();
  json_free(given);
  serve(listener);
}
