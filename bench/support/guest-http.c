/*
 * The smallest web server that keeps connections alive: answers every request on port 80 with two bytes. One
 * thread, so that what it costs in an emulated guest is mostly the kernel's part. A request that asks for
 * `Connection: close` gets it. Requests have no body. For benchmarks.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define HEAD_MAX 8192

static struct pollfd polled[CONNECTIONS_MAX + 1];
static char heads[CONNECTIONS_MAX + 1][HEAD_MAX + 1];
static size_t lengths[CONNECTIONS_MAX + 1];

static const char KEPT[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
static const char LAST[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

static void forget(nfds_t at, nfds_t *count) {
  close(polled[at].fd);
  *count -= 1;
  polled[at] = polled[*count];
  lengths[at] = lengths[*count];
  memcpy(heads[at], heads[*count], lengths[at]);
}

/* Whether the connection is kept. */
static int serve(nfds_t at) {
  ssize_t got = read(polled[at].fd, heads[at] + lengths[at], HEAD_MAX - lengths[at]);
  if (got <= 0) return 0;
  lengths[at] += (size_t)got;
  heads[at][lengths[at]] = 0;
  if (strstr(heads[at], "\r\n\r\n") == NULL) return lengths[at] < HEAD_MAX;
  int isLast = strcasestr(heads[at], "\r\nconnection: close") != NULL;
  lengths[at] = 0;
  const char *answer = isLast ? LAST : KEPT;
  return write(polled[at].fd, answer, strlen(answer)) > 0 && !isLast;
}

int main(void) {
  int one = 1;
  int listening = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listening, (struct sockaddr *)&address, sizeof address) != 0 || listen(listening, CONNECTIONS_MAX) != 0) return 1;
  nfds_t count = 1;
  polled[0] = (struct pollfd){.fd = listening, .events = POLLIN};
  for (;;) {
    polled[0].events = count <= CONNECTIONS_MAX ? POLLIN : 0;
    if (poll(polled, count, -1) < 0) return 1;
    for (nfds_t at = count - 1; at > 0; at -= 1)
      if (polled[at].revents != 0 && !serve(at)) forget(at, &count);
    if ((polled[0].revents & POLLIN) == 0) continue;
    int fd = accept(listening, NULL, NULL);
    if (fd < 0) continue;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    polled[count] = (struct pollfd){.fd = fd, .events = POLLIN};
    lengths[count] = 0;
    count += 1;
  }
}
