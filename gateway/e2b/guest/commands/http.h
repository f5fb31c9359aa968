/* One HTTP/1.1 request on a connection, and its answer. */
#ifndef HTTP_H
#define HTTP_H

#include "text.h"

struct request {
  int connection;
  char *method;
  char *path;
  /* `name: value` lines, each ended by a NUL. */
  char *fields;
  const char *fields_end;
  /* Ends with a NUL. */
  struct text body;
  struct text head;
  /* The head of an answer that is not sent yet. */
  struct text waiting;
};

/* False: the peer has gone, or what it sent is not HTTP or too large. */
bool request_read(struct request *request, int connection);
void request_free(struct request *request);
/* NULL where there is none. The name is in lower case. */
const char *request_header(const struct request *request, const char *name);

/* Each returns false when the peer has gone. */
bool answer(struct request *request, int status, const char *type, const char *body);
/* A chunked answer; its head goes with the first chunk. */
void answer_begin(struct request *request, const char *type);
/* One envelope of Connect as a chunk. */
bool answer_envelope(struct request *request, const struct text *json);
/* The same, but it goes with what follows. */
void answer_prepare(struct request *request, const struct text *json);
/* The last envelope, and the end of the answer. */
bool answer_end(struct request *request, const struct text *json);

#endif
