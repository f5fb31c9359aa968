/*
 * One HTTP/1.1 request on a connection, and its answer.
 *
 * The peer is the gateway, through Flotilla's bridge: what it sends has been parsed and framed once. Every
 * connection carries one request. A head has at most HEAD_BYTES_MAX, a body BODY_BYTES_MAX.
 */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HEAD_BYTES_MAX ((size_t)64 * 1024)
#define BODY_BYTES_MAX ((size_t)16 * 1024 * 1024)
#define PIECE_BYTES 65536
/* The flag of an envelope that ends a stream. */
#define END_OF_STREAM 2

/* What was received and is not read yet. */
struct input {
  int connection;
  struct text text;
  size_t at;
};

static bool receive(struct input *input) {
  char piece[PIECE_BYTES];
  ssize_t length;
  do length = recv(input->connection, piece, sizeof piece, 0);
  while (length < 0 && errno == EINTR);
  if (length <= 0) return false;
  text_add(&input->text, piece, (size_t)length);
  return true;
}

static bool take_bytes(struct input *input, struct text *to, size_t length) {
  if (to->length + length > BODY_BYTES_MAX) return false;
  while (input->text.length - input->at < length)
    if (!receive(input)) return false;
  text_add(to, input->text.bytes + input->at, length);
  input->at += length;
  return true;
}

/* The line without its end, which becomes a NUL; NULL: there is none. */
static char *take_line(struct input *input) {
  for (;;) {
    char *begin = input->text.bytes + input->at;
    char *end = input->text.length > input->at ? strstr(begin, "\r\n") : NULL;
    if (end != NULL) {
      *end = '\0';
      input->at += (size_t)(end - begin) + 2;
      return begin;
    }
    if (input->text.length - input->at > HEAD_BYTES_MAX || !receive(input)) return NULL;
  }
}

static bool read_chunks(struct input *input, struct text *body) {
  for (;;) {
    const char *line = take_line(input);
    if (line == NULL) return false;
    char *end = NULL;
    unsigned long length = strtoul(line, &end, 16);
    if (end == line || length > BODY_BYTES_MAX) return false;
    if (length == 0) {
      do line = take_line(input);
      while (line != NULL && *line != '\0');
      return line != NULL;
    }
    struct text ending = {0};
    bool is_whole = take_bytes(input, body, length) && take_bytes(input, &ending, 2);
    text_free(&ending);
    if (!is_whole) return false;
  }
}

const char *request_header(const struct request *request, const char *name) {
  size_t length = strlen(name);
  for (const char *at = request->fields; at < request->fields_end; at += strlen(at) + 1) {
    if (strncasecmp(at, name, length) != 0 || at[length] != ':') continue;
    const char *value = at + length + 1;
    return value + strspn(value, " \t");
  }
  return NULL;
}

/* Ends each line of the head with a NUL, and finds the parts of the first. */
static bool split_head(struct request *request) {
  char *line = request->head.bytes;
  char *end = strstr(line, "\r\n");
  if (end == NULL) return false;
  *end = '\0';
  request->fields = end + 2;
  request->fields_end = request->head.bytes + request->head.length;
  char *to = request->fields;
  for (char *from = request->fields; from < request->fields_end;) {
    char *line_end = strstr(from, "\r\n");
    if (line_end == NULL) return false;
    size_t length = (size_t)(line_end - from);
    memmove(to, from, length);
    to[length] = '\0';
    to += length + 1;
    from = line_end + 2;
  }
  request->fields_end = to;
  request->method = line;
  request->path = strchr(line, ' ');
  if (request->path == NULL) return false;
  *request->path++ = '\0';
  request->path[strcspn(request->path, " ?")] = '\0';
  return true;
}

bool request_read(struct request *request, int connection) {
  *request = (struct request){.connection = connection};
  struct input input = {.connection = connection};
  char *end = NULL;
  while (end == NULL) {
    if (input.text.length > HEAD_BYTES_MAX || !receive(&input)) goto broken;
    end = strstr(input.text.bytes, "\r\n\r\n");
  }
  size_t length = (size_t)(end - input.text.bytes) + 2;
  text_add(&request->head, input.text.bytes, length);
  input.at = length + 2;
  text_add(&request->body, "", 0);
  if (!split_head(request)) goto broken;
  const char *coding = request_header(request, "transfer-encoding");
  const char *size = request_header(request, "content-length");
  if (coding != NULL && strcasestr(coding, "chunked") != NULL) {
    if (!read_chunks(&input, &request->body)) goto broken;
  } else if (size != NULL && !take_bytes(&input, &request->body, strtoul(size, NULL, 10))) goto broken;
  text_free(&input.text);
  return true;
broken:
  text_free(&input.text);
  request_free(request);
  return false;
}

void request_free(struct request *request) {
  text_free(&request->head);
  text_free(&request->body);
  text_free(&request->waiting);
}

static bool send_all(int connection, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t sent = send(connection, bytes, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    length -= (size_t)sent;
  }
  return true;
}

bool answer(struct request *request, int status, const char *type, const char *body) {
  struct text text = {0};
  text_say(&text, "HTTP/1.1 %d Answer\r\nconnection: close\r\n", status);
  if (status != 204) text_say(&text, "content-type: %s\r\ncontent-length: %zu\r\n", type, strlen(body));
  text_say(&text, "\r\n%s", body);
  bool is_sent = send_all(request->connection, text.bytes, text.length);
  text_free(&text);
  return is_sent;
}

void answer_begin(struct request *request, const char *type) {
  text_say(&request->waiting, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n",
           type);
}

static bool flush(struct request *request) {
  bool is_sent = send_all(request->connection, request->waiting.bytes, request->waiting.length);
  text_free(&request->waiting);
  return is_sent;
}

static void add_envelope(struct request *request, unsigned char flags, const struct text *json) {
  uint32_t length = htonl((uint32_t)json->length);
  text_say(&request->waiting, "%zx\r\n", json->length + 5);
  text_add(&request->waiting, &flags, 1);
  text_add(&request->waiting, &length, sizeof length);
  text_add(&request->waiting, json->bytes, json->length);
  text_add(&request->waiting, "\r\n", 2);
}

void answer_prepare(struct request *request, const struct text *json) { add_envelope(request, 0, json); }

bool answer_envelope(struct request *request, const struct text *json) {
  add_envelope(request, 0, json);
  return flush(request);
}

bool answer_end(struct request *request, const struct text *json) {
  add_envelope(request, END_OF_STREAM, json);
  text_say(&request->waiting, "0\r\n\r\n");
  return flush(request);
}
